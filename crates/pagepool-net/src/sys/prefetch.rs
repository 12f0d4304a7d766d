//! Prefetches: the CPU fetches a cache line while it executes on. Nothing outside x86-64.

// UNSAFETY: two instructions that read and change nothing, whatever the address.
#![cfg_attr(target_arch = "x86_64", expect(unsafe_code))]

#[cfg(target_arch = "x86_64")]
use std::arch::{
    asm,
    x86_64::{_MM_HINT_T0, _mm_prefetch},
};

/// Bytes of a cache line.
pub(crate) const LINE: usize = 64;

/// All lines of some bytes, for reading.
#[inline(always)]
pub(crate) fn bytes(addr: usize, len: usize) {
    for line in (addr & !(LINE - 1)..addr + len).step_by(LINE) {
        to_read(line as *const u8);
    }
}

/// The line of a place, for reading.
#[inline(always)]
pub(crate) fn to_read<T>(place: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the instruction accepts any address.
    unsafe {
        _mm_prefetch::<_MM_HINT_T0>(place.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}

/// The line of a place, for writing.
#[inline(always)]
pub(crate) fn to_write<T>(place: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the instruction accepts any address.
    unsafe {
        asm!("prefetchw [{}]", in(reg) place.addr(), options(nostack, preserves_flags, nomem));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}
