//! The copies of `handle_copy` in registers of 32 bytes, for CPUs with AVX2.
//!
//! What   a register holds two handles: pool, bits, pool, bits. For a whole page the bits are the
//!        zero-extended page number; for all else they are negative.
//! Cost   per handle: 1.5 instructions to write, 1.75 to read, plus the loops.

// UNSAFETY: handles and page numbers are loaded and stored as vectors.
#![expect(unsafe_code)]

use std::arch::x86_64::*;
use std::mem::MaybeUninit;

use crate::buf::handle_copy::each::{read_each, write_each};
use crate::buf::page_buf::PageBuf;
use crate::core::pool_core::PoolPtr;

/// Handles copied at once.
const EIGHT: usize = 8;

/// Whether the CPU has AVX2 and there are enough buffers: a load and a test.
#[inline(always)]
pub(super) fn is_worth_it(buffers: usize) -> bool {
    buffers >= EIGHT && is_x86_feature_detected!("avx2")
}

/// See `write_whole` of `handle_copy`.
#[target_feature(enable = "avx2")]
pub(super) fn write_whole(pool: PoolPtr, pages: &[u32], room: &mut [MaybeUninit<PageBuf>]) {
    let pools = _mm256_set1_epi64x(pool.addr() as i64);
    let (eights, rest) = pages.as_chunks::<EIGHT>();
    let (room_eights, room_rest) = room[..pages.len()].as_chunks_mut::<EIGHT>();
    for (pages, handles) in eights.iter().zip(room_eights) {
        for half in 0..2 {
            let from: *const __m128i = pages.as_ptr().cast();
            // SAFETY: a half is 16 bytes.
            let from = unsafe { from.add(half) };
            // SAFETY: it lies in the eight numbers.
            let numbers = _mm256_cvtepu32_epi64(unsafe { _mm_loadu_si128(from) });
            // Order 0, 2, 1, 3, because the next step works on halves of a register.
            let numbers = _mm256_permute4x64_epi64::<0b11_01_10_00>(numbers);
            let pairs = [_mm256_unpacklo_epi64(pools, numbers), _mm256_unpackhi_epi64(pools, numbers)];
            let to: *mut [__m256i; 2] = handles.as_mut_ptr().cast();
            // SAFETY: four handles are 64 bytes.
            let to = unsafe { to.add(half) };
            // SAFETY: it lies in the room for eight handles. A handle is two words, valid for any pool and
            // any number.
            unsafe { to.write_unaligned(pairs) };
        }
    }
    if !rest.is_empty() {
        write_each(pool, rest, room_rest);
    }
}

/// See `read_whole` of `handle_copy`.
#[target_feature(enable = "avx2")]
pub(super) fn read_whole(pool: PoolPtr, buffers: &[PageBuf], numbers: &mut [u32]) -> bool {
    let pools = _mm256_set_epi64x(0, pool.addr() as i64, 0, pool.addr() as i64);
    let mut any = _mm256_setzero_si256();
    let (eights, rest) = buffers.as_chunks::<EIGHT>();
    let (number_eights, number_rest) = numbers[..buffers.len()].as_chunks_mut::<EIGHT>();
    for (handles, numbers) in eights.iter().zip(number_eights) {
        let from: *const [__m256i; 4] = handles.as_ptr().cast();
        // SAFETY: eight handles are 128 bytes, and words.
        let pairs = unsafe { from.read_unaligned() }.map(|pair| _mm256_xor_si256(pair, pools));
        any = pairs.into_iter().fold(any, |any, pair| _mm256_or_si256(any, pair));
        let copied = numbers_of(pairs);
        let to: *mut __m256i = numbers.as_mut_ptr().cast();
        // SAFETY: eight numbers are 32 bytes.
        unsafe { _mm256_storeu_si256(to, copied) };
    }
    // All bits of a pool's word, and the sign of the bits.
    let wrong = _mm256_set_epi64x(i64::MIN, -1, i64::MIN, -1);
    _mm256_testz_si256(any, wrong) == 1 && (rest.is_empty() || read_each(pool, rest, number_rest))
}

/// The page numbers of four pairs of handles. Meaningless unless the upper halves of the bits are 0.
#[target_feature(enable = "avx2")]
#[inline]
fn numbers_of([pair0, pair1, pair2, pair3]: [__m256i; 4]) -> __m256i {
    let low = _mm256_unpackhi_epi64(pair0, pair1); // 0, 2 and 1, 3, each 64 bits
    let high = _mm256_slli_epi64::<32>(_mm256_unpackhi_epi64(pair2, pair3)); // 4, 6 and 5, 7
    let in_order = _mm256_set_epi32(7, 3, 5, 1, 6, 2, 4, 0);
    _mm256_permutevar8x32_epi32(_mm256_or_si256(low, high), in_order)
}

const _: () = assert!(size_of::<[PageBuf; 2]>() == size_of::<__m256i>(), "a register is two handles");
const _: () = assert!(std::mem::offset_of!(PageBuf, pool) == 0, "the pool comes first");
