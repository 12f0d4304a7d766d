//! Touching a packet as the peers' harness does: 8 bytes of its first cache line, the third word, so that the
//! line must come to the core that asks.

// UNSAFETY: the compiler must neither drop nor merge these accesses, and only volatile ones promise that.
#![expect(unsafe_code)]

/// The third word of a packet.
const WORD: std::ops::Range<usize> = 16..24;

/// Writes the word of a packet.
#[inline(always)]
pub fn write(packet: Option<&mut [u8]>, value: u64) {
    let Some(word) = packet.and_then(|packet| packet.get_mut(WORD)) else { return };
    let word = word.as_mut_ptr().cast::<u64>();
    debug_assert!(word.is_aligned(), "headroom, colours and fragments of these pools are multiples of 8");
    // SAFETY: the slice has 8 bytes of its own, aligned as asserted.
    unsafe { word.write_volatile(value) };
}

/// Reads the word of a packet.
#[inline(always)]
pub fn read(packet: Option<&[u8]>) -> u64 {
    let Some(word) = packet.and_then(|packet| packet.get(WORD)) else { return 0 };
    let word = word.as_ptr().cast::<u64>();
    debug_assert!(word.is_aligned(), "headroom, colours and fragments of these pools are multiples of 8");
    // SAFETY: the slice has 8 bytes, aligned as asserted.
    unsafe { word.read_volatile() }
}
