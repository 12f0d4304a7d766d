//! The content of the source's packets, and its check at the sink.
//!
//! A packet has a header, a number and its complement, and a pattern that is shifted by the number. So the
//! check finds bytes that changed, moved, or belong to another packet, even to an older one in the same page.

use std::sync::Arc;

/// Locally administered addresses of the two ends.
const HERE: [u8; 6] = [2, 0, 0, 0, 0, 1];
const THERE: [u8; 6] = [2, 0, 0, 0, 0, 2];
/// The EtherType for experiments (IEEE 802).
const TYPE: [u8; 2] = [0x88, 0xb5];
/// Bytes of the header, and where the pattern begins: after the number and its complement.
const HEADER: usize = 14;
const START: usize = HEADER + 16;
/// The number of different shifts of the pattern.
const SHIFTS: u64 = 256;

#[derive(Clone, Debug)]
pub struct Content {
    pattern: Arc<[u8]>,
    size: usize,
}

impl Content {
    /// Makes packets of `size` bytes, at least 64.
    pub fn new(size: usize) -> Self {
        let mut state = 1u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        Self { pattern: (0..size + SHIFTS as usize).map(|_| next()).collect(), size }
    }

    /// The bytes after the numbers.
    fn body(&self, number: u64) -> &[u8] {
        &self.pattern[(number % SHIFTS) as usize..][..self.size - START]
    }

    pub fn write<'a>(&self, number: u64, into: &'a mut Vec<u8>) -> &'a [u8] {
        into.clear();
        let numbers = [number.to_be_bytes(), (!number).to_be_bytes()];
        for part in [&THERE[..], &HERE, &TYPE, numbers.as_flattened(), self.body(number)] {
            into.extend_from_slice(part);
        }
        into
    }

    /// Makes the check for the sink. `exchanged`: the addresses were swapped on the way.
    pub fn check(self, exchanged: bool) -> ContentCheck {
        let [first, second] = if exchanged { [HERE, THERE] } else { [THERE, HERE] };
        let mut header = [0; HEADER];
        header[..6].copy_from_slice(&first);
        header[6..12].copy_from_slice(&second);
        header[12..].copy_from_slice(&TYPE);
        ContentCheck { content: self, header, next: 0 }
    }
}

/// Checks that packets are whole, unchanged, and in order.
#[derive(Debug)]
pub struct ContentCheck {
    content: Content,
    header: [u8; HEADER],
    /// The smallest number that may come next: packets may be lost, but never overtake each other.
    next: u64,
}

impl ContentCheck {
    /// Whether a packet is good. Takes its parts in order.
    pub fn is_good<'a>(&mut self, mut parts: impl Iterator<Item = &'a [u8]>) -> bool {
        let Some((header, first)) = parts.next().and_then(|first| first.split_first_chunk::<HEADER>()) else {
            return false;
        };
        let Some((numbers, first)) = first.split_first_chunk::<16>() else { return false };
        let (numbers, _) = numbers.as_chunks::<8>();
        let [number, complement] = [0, 1].map(|at| u64::from_be_bytes(numbers[at]));
        if *header != self.header || number != !complement || number < self.next {
            return false;
        }
        self.next = number + 1;
        let mut expected = self.content.body(number);
        for part in std::iter::once(first).chain(parts) {
            match expected.split_at_checked(part.len()) {
                Some((now, later)) if now == part => expected = later,
                _ => return false,
            }
        }
        expected.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good(check: &mut ContentCheck, packet: &[u8]) -> bool {
        let (first, rest) = packet.split_at(packet.len().min(40));
        check.is_good([first, rest].into_iter())
    }

    #[test]
    fn content_is_accepted_once_and_in_order() {
        let content = Content::new(100);
        let mut check = content.clone().check(false);
        let mut packet = Vec::new();
        for number in [0, 1, 7, 300] {
            assert!(good(&mut check, content.write(number, &mut packet)), "{number}");
            assert!(!good(&mut check, &packet), "{number} came twice");
        }
        assert!(!good(&mut check, content.write(299, &mut packet)), "it was overtaken");
    }

    #[test]
    fn every_changed_byte_shows() {
        let content = Content::new(64);
        let mut packet = Vec::new();
        content.write(u64::MAX / 2, &mut packet);
        for at in 0..packet.len() {
            let mut check = content.clone().check(false);
            packet[at] ^= 1;
            assert!(!good(&mut check, &packet), "byte {at}");
            packet[at] ^= 1;
        }
        let mut check = content.clone().check(false);
        assert!(!good(&mut check, &packet[..63]) && !good(&mut check, &[]), "too short");
        assert!(!good(&mut content.check(true), &packet), "the addresses were not exchanged");
    }
}
