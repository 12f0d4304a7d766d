//! The sum of what TCP and UDP checksums cover beside their own bytes: addresses, protocol and length (RFC
//! 9293, RFC 768, RFC 8200).

use crate::steering::Headers;

const TCP: u8 = 6;
const UDP: u8 = 17;

/// Where a packet's TCP or UDP header begins, where in it the checksum is, and its initial value.
pub(super) fn locate(packet: &[u8]) -> Option<(usize, usize, u16)> {
    let headers = Headers::read(packet);
    let (protocol, [network, transport]) = (headers.protocol?, headers.places?);
    let (offset, least) = match protocol {
        TCP => (16, 20),
        UDP => (6, 8),
        _ => return None,
    };
    if headers.is_fragment || packet.len() < transport + least {
        return None;
    }
    let field = |at| Some(usize::from(u16::from_be_bytes(*packet.get(at..)?.first_chunk()?)));
    let (mut sum, end) = match (headers.v4, headers.v6) {
        (Some(addresses), _) => {
            (addresses.map(|address| words(u128::from(address))), network + field(network + 2)?)
        }
        (_, Some(addresses)) => (addresses.map(words), network + 40 + field(network + 4)?),
        _ => return None,
    };
    let len = u64::try_from(end.checked_sub(transport).filter(|&len| len >= least)?).ok()?;
    sum[0] += sum[1] + u64::from(protocol) + len;
    Some((transport, offset, fold(sum[0])))
}

/// The sum of the 16-bit words of a number.
fn words(number: u128) -> u64 {
    (0..8).map(|at| (number >> (16 * at)) as u64 & 0xffff).sum()
}

/// Folds a sum into 16 bits.
fn fold(sum: u64) -> u16 {
    let once = (sum >> 16) + (sum & 0xffff); // of some ten words: less than 2^17
    ((once >> 16) + (once & 0xffff)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The Internet checksum, as the kernel computes it.
    fn checksum(bytes: &[u8]) -> u16 {
        let word = |pair: &[u8]| u64::from(pair[0]) << 8 | u64::from(pair.get(1).copied().unwrap_or(0));
        let mut sum: u64 = bytes.chunks(2).map(word).sum();
        while sum > 0xffff {
            sum = (sum >> 16) + (sum & 0xffff);
        }
        !(sum as u16)
    }

    fn v4(protocol: u8, payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![0xaa; 12];
        let len = 24 + payload.len() as u8;
        frame.extend([0x81, 0, 0, 5, 8, 0]); // a tag
        frame.extend([0x46, 0, 0, len, 0, 0, 0, 0, 64, protocol, 0, 0, 192, 0, 2, 1, 198, 51, 100, 2]);
        frame.extend([1, 1, 1, 0]); // options
        frame.extend(payload);
        frame.resize(frame.len() + 3, 0); // padding
        frame
    }

    fn v6(protocol: u8, payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![0xaa; 12];
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 8 + payload.len() as u8, 60, 64]);
        frame.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xfe]);
        frame.extend([0x20, 1, 0xd, 0xb8, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0xab, 0xcd]);
        frame.extend([protocol, 0, 1, 4, 0, 0, 0, 0]); // options for the destination
        frame.extend(payload);
        frame
    }

    #[test]
    fn with_it_a_checksum_is_that_of_packets_that_were_seen() {
        // RFC 1071's sum over pseudo-header and payload, written out.
        for (protocol, offset) in [(TCP, 16), (UDP, 6)] {
            let payload: Vec<u8> =
                (0..31).map(|at| if at == offset || at == offset + 1 { 0 } else { at as u8 }).collect();
            let full = |addresses: &[u8]| {
                let mut bytes = addresses.to_vec();
                bytes.extend([0, protocol, 0, payload.len() as u8]);
                bytes.extend(&payload);
                checksum(&bytes)
            };
            for (mut frame, at, addresses) in
                [(v4(protocol, &payload), 42, 30..38), (v6(protocol, &payload), 62, 22..54)]
            {
                let wanted = full(&frame[addresses]);
                let (start, place, sum) = locate(&frame).expect("it has one");
                assert_eq!((start, place), (at, offset));
                frame[start + place..start + place + 2].copy_from_slice(&sum.to_be_bytes());
                assert_eq!(checksum(&frame[start..]), wanted, "{protocol}");
            }
        }
    }

    #[test]
    fn packets_without_a_pseudo_header_checksum_are_recognised() {
        let payload = [7; 24];
        let fragment = |mut frame: Vec<u8>| {
            frame[18 + 6] = 0x20; // more follow
            frame
        };
        let short = |mut frame: Vec<u8>| {
            frame[18 + 3] = 24 + 7; // shorter than a UDP header, according to IP
            frame
        };
        let none = [v4(1, &payload), fragment(v4(UDP, &payload)), short(v4(UDP, &payload)), v4(UDP, &[7; 4])];
        assert_eq!(none.map(|frame| locate(&frame)), [None; 4]);
        let whole = v6(TCP, &payload);
        assert!(locate(&whole).is_some());
        assert!((0..14 + 40 + 8 + 20).all(|len| locate(&whole[..len]).is_none()));
    }
}
