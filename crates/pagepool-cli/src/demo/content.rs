//! The source's packets, which are numbered frames, and their check at the sink.

use pagepool::{Error, XdpBuff};
use pagepool_link::Mac;
use pagepool_net::{Arrival, NumberedFrames};

use crate::traffic::frame_check::FrameCheck;

/// Locally administered addresses of the two ends.
const HERE: Mac = Mac([2, 0, 0, 0, 0, 1]);
const THERE: Mac = Mac([2, 0, 0, 0, 0, 2]);

/// Packets of `size` bytes.
pub fn frames(size: usize) -> Result<NumberedFrames, Error> {
    NumberedFrames::new(HERE, THERE, size)
}

/// Checks that packets are whole, unchanged, and in order.
#[derive(Debug)]
pub struct ContentCheck {
    /// The addresses in each packet.
    ends: [[u8; 6]; 2],
    /// Expects no number, so it tracks none.
    check: FrameCheck,
    /// The smallest number that may come next: packets may be lost, but never overtake each other.
    next: u64,
}

impl ContentCheck {
    /// `exchanged`: the addresses were swapped on the way.
    pub fn new(exchanged: bool) -> Self {
        let ends = if exchanged { [HERE.0, THERE.0] } else { [THERE.0, HERE.0] };
        Self { ends, check: FrameCheck::default(), next: 0 }
    }

    /// Whether a packet is good.
    pub fn is_good(&mut self, packet: &[u8]) -> bool {
        let arrival = self.check.tally.take(packet);
        self.is_next(arrival, packet)
    }

    /// Whether a packet of one or several buffers is good.
    pub fn is_good_buff(&mut self, packet: &XdpBuff) -> bool {
        let arrival = self.check.take(packet);
        self.is_next(arrival, packet.data())
    }

    fn is_next(&mut self, arrival: Arrival, packet: &[u8]) -> bool {
        let Arrival::Beyond(number) = arrival else { return false };
        let is_next = number >= self.next && packet.starts_with(self.ends.as_flattened());
        if is_next {
            self.next = number + 1;
        }
        is_next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_is_accepted_once_and_in_order() {
        let (frames, mut packet, mut check) = (frames(100).unwrap(), [0; 100], ContentCheck::new(false));
        for number in [0, 1, 7, 300] {
            frames.write(number, &mut packet);
            assert!(check.is_good(&packet), "{number}");
            assert!(!check.is_good(&packet), "{number} came twice");
        }
        frames.write(299, &mut packet);
        assert!(!check.is_good(&packet), "it was overtaken");
    }

    #[test]
    fn every_changed_byte_shows() {
        let mut packet = [0; 64];
        frames(64).unwrap().write(u64::MAX / 2, &mut packet);
        for at in 0..packet.len() {
            packet[at] ^= 1;
            assert!(!ContentCheck::new(false).is_good(&packet), "byte {at}");
            packet[at] ^= 1;
        }
        let mut check = ContentCheck::new(false);
        assert!(!check.is_good(&packet[..63]) && !check.is_good(&[]), "too short");
        assert!(!ContentCheck::new(true).is_good(&packet), "the addresses were not exchanged");
        assert!(check.is_good(&packet));
    }

    #[test]
    fn a_packet_of_several_buffers_is_checked_as_a_whole() {
        let arena = pagepool::Arena::new(pagepool::ArenaParams { max_bytes: 1 << 20, ..Default::default() });
        let pool = pagepool::Pool::new(pagepool::PoolParams::default(), arena.unwrap()).unwrap().bind();
        let (mut bytes, mut check) = ([0; 100], ContentCheck::new(false));
        for number in [0, 1] {
            frames(100).unwrap().write(number, &mut bytes);
            bytes[99] ^= number as u8;
            let mut packet = XdpBuff::received(pool.alloc_page().unwrap(), 40).unwrap();
            packet.data_mut().copy_from_slice(&bytes[..40]);
            let mut more = pool.alloc_page().unwrap();
            more.packet_mut().unwrap()[..60].copy_from_slice(&bytes[40..]);
            packet.add_frag(more, 0, 60).unwrap();
            assert_eq!(
                check.is_good_buff(&packet),
                number == 0,
                "the last byte of the second one is damaged"
            );
        }
    }
}
