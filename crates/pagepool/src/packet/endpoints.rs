//! Swaps sender and receiver of a packet, to send it back.
//!
//! What   MAC addresses, IPv4 or IPv6 addresses, and TCP or UDP ports.
//! Sums   the checksums of IPv4, TCP, UDP and ICMPv6 are sums of 16-bit words in any order, and whole words
//!        are swapped: valid checksums stay valid. SCTP's is no such sum, so SCTP packets are left alone.
//! Trust  none: nothing is read beyond the given bytes.

/// Bytes of a MAC address.
const MAC: usize = 6;
/// Bytes of an Ethernet header, and of a VLAN tag.
const ETHERNET: usize = 14;
const TAG: usize = 4;
/// VLAN tags to skip.
const MOST_TAGS: usize = 2;
/// IPv6 extension headers to skip.
const MOST_EXTENSIONS: usize = 6;

const TCP: u8 = 6;
const UDP: u8 = 17;
const SCTP: u8 = 132;
/// Its checksum depends on the order of the addresses.
const AUTHENTICATION: u8 = 51;
const HOP_BY_HOP: u8 = 0;
/// It lists hops to the destination.
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const FOR_DESTINATION: u8 = 60;

/// Offset of both addresses, length of one, and offset of the ports if any.
struct Places {
    addresses: usize,
    len: usize,
    ports: Option<usize>,
}

/// Swaps sender and receiver of a packet. False, and nothing changes, if it is not a unicast IP packet, or
/// cannot be sent back this way.
pub(crate) fn swap(frame: &mut [u8]) -> bool {
    let Some(Places { addresses, len, ports }) = Places::of(frame) else { return false };
    exchange(frame, 0, MAC);
    exchange(frame, addresses, len);
    ports.into_iter().for_each(|at| exchange(frame, at, 2));
    true
}

/// Swaps `len` bytes at `at` with those behind them.
fn exchange(frame: &mut [u8], at: usize, len: usize) {
    let (one, other) = frame[at..at + 2 * len].split_at_mut(len);
    one.swap_with_slice(other);
}

/// `N` bytes at `at`, if the frame has them.
fn bytes<const N: usize>(frame: &[u8], at: usize) -> Option<[u8; N]> {
    frame.get(at..at.checked_add(N)?)?.try_into().ok()
}

impl Places {
    fn of(frame: &[u8]) -> Option<Self> {
        if frame.first()? & 1 == 1 {
            return None; // multicast: never a sender
        }
        let mut at = ETHERNET;
        for _ in 0..=MOST_TAGS {
            match bytes(frame, at - 2)? {
                [0x08, 0x00] => return Self::of_v4(frame, at),
                [0x86, 0xdd] => return Self::of_v6(frame, at),
                [0x81 | 0x91, 0x00] | [0x88, 0xa8] => at += TAG,
                _ => return None,
            }
        }
        None
    }

    fn of_v4(frame: &[u8], at: usize) -> Option<Self> {
        let header: [u8; 20] = bytes(frame, at)?;
        let len = 4 * usize::from(header[0] & 15);
        let to_many = header[16] >= 224; // multicast and broadcast
        if header[0] >> 4 != 4 || len < 20 || to_many {
            return None;
        }
        let is_later_part = u16::from_be_bytes([header[6], header[7]]) & 0x1fff != 0;
        let ports = Self::ports(frame, at + len, header[9], is_later_part)?;
        Some(Self { addresses: at + 12, len: 4, ports })
    }

    fn of_v6(frame: &[u8], at: usize) -> Option<Self> {
        let header: [u8; 40] = bytes(frame, at)?;
        if header[0] >> 4 != 6 || header[24] == 0xff {
            return None;
        }
        let (mut behind, mut next, mut is_later_part) = (at + 40, header[6], false);
        for _ in 0..MOST_EXTENSIONS {
            if is_later_part || !matches!(next, HOP_BY_HOP | FRAGMENT | FOR_DESTINATION) {
                break;
            }
            let [following, len, high, low, ..]: [u8; 8] = bytes(frame, behind)?;
            if next == FRAGMENT {
                is_later_part = u16::from_be_bytes([high, low]) & 0xfff8 != 0;
                behind += 8;
            } else {
                behind += 8 * (usize::from(len) + 1);
            }
            next = following;
        }
        let ports = Self::ports(frame, behind, next, is_later_part)?;
        Some(Self { addresses: at + 8, len: 16, ports })
    }

    /// Offset of the ports, if this packet has them; `None` if its protocol cannot be sent back.
    fn ports(frame: &[u8], at: usize, protocol: u8, is_later_part: bool) -> Option<Option<usize>> {
        match protocol {
            SCTP | AUTHENTICATION | ROUTING | HOP_BY_HOP | FRAGMENT | FOR_DESTINATION => None,
            TCP | UDP if !is_later_part => bytes::<4>(frame, at).map(|_| Some(at)),
            _ => Some(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MACS: [u8; 12] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];

    fn v4(protocol: u8, options: usize, place: u16, payload: &[u8]) -> Vec<u8> {
        let mut packet = [&MACS[..], &[8, 0, 0x45 + options as u8, 0, 0, 40, 0, 1]].concat();
        packet.extend(place.to_be_bytes());
        packet.extend([64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        packet.extend(vec![1; 4 * options]);
        packet.extend(payload);
        packet
    }

    fn v6(next: u8, payload: &[u8]) -> Vec<u8> {
        let mut packet = [&MACS[..], &[0x86, 0xdd, 0x60, 0, 0, 0, 0, payload.len() as u8, next, 64]].concat();
        packet.extend([[0xfd; 15], [1; 15]].map(|address| [&address[..], &[7]].concat()).concat());
        packet.extend(payload);
        packet
    }

    /// Begins with two ports.
    const SEGMENT: [u8; 8] = [0x12, 0x34, 0, 7, 0, 8, 0xab, 0xcd];

    /// The sum of 16-bit words of Internet checksums.
    fn sum(bytes: &[u8]) -> u32 {
        let all = bytes.chunks(2).map(|two| u32::from(two[0]) << 8 | u32::from(*two.get(1).unwrap_or(&0)));
        let sum = all.sum::<u32>();
        (sum & 0xffff) + (sum >> 16)
    }

    /// A swap exchanges exactly these places; a second one restores them.
    fn swaps(packet: &[u8], places: &[(usize, usize)]) {
        let mut swapped = packet.to_vec();
        assert!(swap(&mut swapped), "{packet:02x?}");
        let mut expected = packet.to_vec();
        for &(at, len) in places {
            let one = packet[at..at + len].to_vec();
            expected.copy_within(at + len..at + 2 * len, at);
            expected[at + len..at + 2 * len].copy_from_slice(&one);
        }
        assert_eq!(swapped, expected);
        assert_eq!(sum(&swapped[14..]), sum(&packet[14..]), "so checksums stay right");
        assert!(swap(&mut swapped) && swapped == packet, "twice is as before");
        let whole = packet.len();
        for len in 0..whole {
            let mut short = packet[..len].to_vec();
            assert!(swap(&mut short) || short == packet[..len], "{len} of {whole}: unchanged");
        }
    }

    fn stays(packet: Vec<u8>) {
        let mut left = packet.clone();
        assert!(!swap(&mut left) && left == packet, "{packet:02x?}");
    }

    #[test]
    fn both_ends_of_both_versions_are_exchanged() {
        swaps(&v4(UDP, 0, 0, &SEGMENT), &[(0, 6), (26, 4), (34, 2)]);
        swaps(&v4(TCP, 2, 0x4000, &SEGMENT), &[(0, 6), (26, 4), (42, 2)]);
        swaps(&v4(1, 0, 0, &SEGMENT), &[(0, 6), (26, 4)]); // ICMP has no ports
        swaps(&v6(UDP, &SEGMENT), &[(0, 6), (22, 16), (54, 2)]);
        swaps(&v6(58, &SEGMENT), &[(0, 6), (22, 16)]);
        let behind = [&[UDP, 1][..], &[0; 14], &SEGMENT].concat();
        swaps(&v6(HOP_BY_HOP, &behind), &[(0, 6), (22, 16), (70, 2)]);
    }

    #[test]
    fn tags_are_skipped_and_later_parts_have_no_ports() {
        let (packet, mut tagged) = (v4(UDP, 0, 0, &SEGMENT), MACS.to_vec());
        tagged.extend([0x88, 0xa8, 0, 5, 0x81, 0, 0, 6]);
        tagged.extend(&packet[12..]);
        swaps(&tagged, &[(0, 6), (34, 4), (42, 2)]);
        tagged.splice(12..12, [0x81, 0, 0, 7]);
        stays(tagged); // three tags
        swaps(&v4(UDP, 0, 0x2000, &SEGMENT), &[(0, 6), (26, 4), (34, 2)]); // the first part
        swaps(&v4(UDP, 0, 0x00b9, &SEGMENT), &[(0, 6), (26, 4)]);
        let part = |place: u16| {
            let [high, low] = place.to_be_bytes();
            v6(FRAGMENT, &[&[UDP, 0, high, low, 0, 0, 0, 9][..], &SEGMENT].concat())
        };
        swaps(&part(1), &[(0, 6), (22, 16), (62, 2)]);
        swaps(&part(8), &[(0, 6), (22, 16)]);
    }

    #[test]
    fn what_cannot_go_back_stays_as_it_is() {
        stays(vec![0; 13]);
        stays([&MACS[..], &[8, 6], &[0; 46]].concat()); // ARP
        for protocol in [SCTP, AUTHENTICATION] {
            stays(v4(protocol, 0, 0, &SEGMENT));
            stays(v6(protocol, &SEGMENT));
        }
        stays(v6(ROUTING, &SEGMENT));
        stays(v4(UDP, 0, 0, &SEGMENT[..3])); // no room for ports
        let mut to_all = v4(UDP, 0, 0, &SEGMENT);
        to_all[30] = 255;
        stays(to_all.clone());
        (to_all[0], to_all[30]) = (0xff, 10);
        stays(to_all);
        let mut short_header = v4(UDP, 0, 0, &SEGMENT);
        short_header[14] = 0x44;
        stays(short_header);
    }

    #[test]
    fn any_bytes_are_read_to_their_end_at_most() {
        let mut random = 7u64;
        for len in (0..120).cycle().take(20_000) {
            let mut frame: Vec<u8> = (0..len)
                .map(|_| {
                    random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                    (random >> 56) as u8
                })
                .collect();
            let kinds = [[8, 0], [0x86, 0xdd], [0x81, 0]];
            if let Some(kind) = frame.get_mut(12..15) {
                kind[..2].copy_from_slice(&kinds[random as usize % 3]);
                kind[2] = if kind[0] == 8 { 0x45 } else { 0x60 };
            }
            let before = frame.clone();
            assert!(swap(&mut frame) || frame == before);
        }
    }
}
