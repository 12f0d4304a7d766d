//! The content of a stream: any part of it shows its place.

use std::sync::LazyLock;

/// The content repeats after a prime number of bytes, so a misplaced segment shows.
const PERIOD: usize = 65_521;

/// Two periods: any period begins in the first.
static TWO_PERIODS: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let byte = |at: usize| (at.wrapping_mul(0x9e37_79b1) >> 13) as u8;
    (0..2 * PERIOD).map(|at| byte(at % PERIOD)).collect()
});

/// At most `len` bytes of the stream from `position` on; at least one, unless `len` is 0.
pub fn from(position: u64, len: usize) -> &'static [u8] {
    &TWO_PERIODS[(position % PERIOD as u64) as usize..][..len.min(PERIOD)]
}

/// Writes the stream from `position` on.
pub fn write(position: u64, bytes: &mut [u8]) {
    let mut position = position;
    for part in bytes.chunks_mut(PERIOD) {
        part.copy_from_slice(from(position, part.len()));
        position += part.len() as u64;
    }
}

/// Whether the bytes are the stream from `position` on.
pub fn is(position: u64, bytes: &[u8]) -> bool {
    let places = (position..).step_by(PERIOD);
    bytes.chunks(PERIOD).zip(places).all(|(part, at)| part == from(at, part.len()))
}
