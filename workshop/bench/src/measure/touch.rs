//! Touches a packet as the peers' harness does: accesses the third word of its first cache line, which moves
//! the line to this core.

// UNSAFETY: the compiler must neither drop nor merge these accesses; only volatile ones guarantee that.
#![expect(unsafe_code)]

/// The third word.
const WORD: std::ops::Range<usize> = 16..24;

#[inline(always)]
pub fn write(packet: Option<&mut [u8]>, value: u64) {
    let Some(word) = packet.and_then(|packet| packet.get_mut(WORD)) else { return };
    let word = word.as_mut_ptr().cast::<u64>();
    debug_assert!(word.is_aligned(), "headroom, colours and fragments of these pools are multiples of 8");
    // SAFETY: the slice has 8 bytes and is borrowed exclusively; it is aligned as asserted.
    unsafe { word.write_volatile(value) };
}

#[inline(always)]
pub fn read(packet: Option<&[u8]>) -> u64 {
    let Some(word) = packet.and_then(|packet| packet.get(WORD)) else { return 0 };
    let word = word.as_ptr().cast::<u64>();
    debug_assert!(word.is_aligned(), "headroom, colours and fragments of these pools are multiples of 8");
    // SAFETY: the slice has 8 bytes, aligned as asserted.
    unsafe { word.read_volatile() }
}
