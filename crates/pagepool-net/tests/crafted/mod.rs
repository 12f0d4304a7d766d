//! Packets made by hand, and at random; and random expressions about them.

#![allow(dead_code, reason = "each test binary uses a part")]

use std::net::Ipv6Addr;

/// A VLAN tag: its EtherType and its ID, with some priority.
pub fn tag(ether_type: u16, id: u16) -> [u8; 4] {
    let [[a, b], [c, d]] = [ether_type, id | 0x6000].map(u16::to_be_bytes);
    [a, b, c, d]
}

/// An Ethernet frame.
pub fn frame(tags: &[[u8; 4]], ether_type: u16, payload: &[u8]) -> Vec<u8> {
    [&[2; 12], tags.concat().as_slice(), &ether_type.to_be_bytes(), payload].concat()
}

/// A packet of IPv4; `place` has the flags and the offset of a fragment, and `options` counts words.
pub fn ip(from: [u8; 4], to: [u8; 4], protocol: u8, place: u16, options: u8, payload: &[u8]) -> Vec<u8> {
    let [high, low] = place.to_be_bytes();
    let header = [0x45 + options, 0, 0, 99, 1, 2, high, low, 64, protocol, 0, 0];
    [&header, from.as_slice(), &to, &vec![1; 4 * usize::from(options)], payload].concat()
}

/// A packet of IPv6 with the header that is first behind its own.
pub fn ip6(from: &str, to: &str, first: u8, extensions: &[u8], payload: &[u8]) -> Vec<u8> {
    let [from, to] = [from, to].map(|text| text.parse::<Ipv6Addr>().expect("an address").octets());
    [&[0x6f, 1, 2, 3, 0, 99, first, 64], from.as_slice(), &to, extensions, payload].concat()
}

/// A header of options of so many bytes, a multiple of eight.
pub fn extension(next: u8, len: usize) -> Vec<u8> {
    let mut header = vec![0x11; len];
    (header[0], header[1]) = (next, (len / 8 - 1) as u8);
    header
}

/// An authentication header of so many bytes, a multiple of four.
pub fn authentication(next: u8, len: usize) -> Vec<u8> {
    let mut header = vec![0x11; len];
    (header[0], header[1]) = (next, (len / 4 - 2) as u8);
    header
}

/// A fragment header: 1 means that more follow, and eights are the offset.
pub fn fragment6(next: u8, place: u16) -> Vec<u8> {
    let [high, low] = place.to_be_bytes();
    vec![next, 0, high, low, 1, 2, 3, 4]
}

/// The beginning of what has ports.
pub fn udp(from: u16, to: u16) -> Vec<u8> {
    [from.to_be_bytes().as_slice(), &to.to_be_bytes(), &[0; 20]].concat()
}

/// Dice that look random and are the same each time.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// One below `end`. A generator of Marsaglia's: shifts of 13, 7 and 17.
    pub fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % end
    }

    pub fn one<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())].clone()
    }
}

const V4: [[u8; 4]; 4] = [[10, 0, 0, 1], [10, 1, 0, 2], [192, 168, 7, 1], [0, 0, 0, 0]];
const V6: [&str; 4] = ["fd00::1", "fd00:0:0:1::2", "2001:db8::ff:1", "fe80::1"];
const PORTS: [u16; 5] = [0, 53, 80, 4789, 65535];
const PROTOCOLS: [u8; 6] = [1, 6, 17, 47, 58, 132];
const NEXT: [u8; 11] = [0, 43, 44, 51, 60, 6, 17, 58, 132, 44, 60];

/// A packet: mostly a sound one, sometimes cut, or with one byte changed.
pub fn random(dice: &mut Dice) -> Vec<u8> {
    let types = [0x8100, 0x88a8, 0x9100];
    let count = dice.one(&[0, 0, 0, 1, 1, 2, 3]);
    let tags: Vec<_> = (0..count).map(|_| tag(dice.one(&types), dice.one(&[0, 7, 100, 4095]))).collect();
    let payload = [dice.one(&[8, 133, 136, 137]), 0];
    let payload = if dice.below(4) == 0 { payload.to_vec() } else { udp(dice.one(&PORTS), dice.one(&PORTS)) };
    let (ether_type, payload) = match dice.below(8) {
        0 => (dice.one(&[0x0806, 0x88b5, 0x0800, 0x86dd]), vec![dice.below(256) as u8; 50]),
        1..=3 => (0x0800, random_ip(dice, &payload)),
        _ => (0x86dd, random_ip6(dice, &payload)),
    };
    let mut frame = frame(&tags, ether_type, &payload);
    match dice.below(8) {
        0 => frame.truncate(14 + dice.below(frame.len() - 13)),
        1 => {
            let at = 12 + dice.below(frame.len() - 12);
            frame[at] = dice.below(256) as u8;
        }
        _ => {}
    }
    frame
}

fn random_ip(dice: &mut Dice, payload: &[u8]) -> Vec<u8> {
    let place = dice.one(&[0, 0, 0, 0x4000, 0x2000, 0x2001, 0x1fff, 0x8000]);
    let options = dice.one(&[0, 0, 0, 1, 10]);
    ip(dice.one(&V4), dice.one(&V4), dice.one(&PROTOCOLS), place, options, payload)
}

fn random_ip6(dice: &mut Dice, payload: &[u8]) -> Vec<u8> {
    let first = dice.one(&NEXT);
    let (mut next, mut headers) = (first, Vec::new());
    for _ in 0..dice.below(9) {
        let kind = next;
        next = dice.one(&NEXT);
        headers.extend(match kind {
            44 => fragment6(next, dice.one(&[0, 0, 1, 8, 9, 6])),
            51 => authentication(next, dice.one(&[8, 12, 24])),
            0 | 43 | 60 => extension(next, dice.one(&[8, 8, 16, 64])),
            _ => break,
        });
    }
    ip6(dice.one(&V6), dice.one(&V6), first, &headers, payload)
}

/// An expression of some depth.
pub fn expression(dice: &mut Dice, depth: usize) -> String {
    let mut inner = || expression(dice, depth - 1);
    if depth == 0 {
        return part(dice);
    }
    let [a, b, c] = [inner(), inner(), inner()];
    match dice.below(6) {
        0 => format!("not ({a})"),
        1 => format!("({a}) and not ({b})"),
        2 => format!("({a}) or ({b}) or ({c})"),
        3 => format!("({a}) and ({b}) or ({c})"),
        4 => format!("not (({a}) or not ({b}))"),
        _ => part(dice),
    }
}

fn part(dice: &mut Dice) -> String {
    let side = dice.one(&["", "src ", "dst "]);
    let port = dice.one(&PORTS);
    match dice.below(14) {
        0 => format!("{side}port {port}"),
        1 => format!("{} {side}port {port}", dice.one(&["udp", "tcp", "sctp", "ip", "ip6"])),
        2 => format!("{side}portrange {}", dice.one(&["0-79", "53-4788", "80-65535", "0-65535"])),
        3 => format!("{side}host {}", dice.one(&V6)),
        4 => format!("{side}net {}", dice.one(&["fd00::/64", "2001:db8::/33", "fe80::/10", "::/0"])),
        5 => format!("{side}net {}", dice.one(&["10.0.0.0/8", "10.1.0.0/31", "0.0.0.0/0"])),
        6 => format!("{side}host {}", dice.one(&["10.0.0.1", "192.168.7.1"])),
        7 => format!("proto {}", dice.one(&NEXT)),
        8 => format!("vlan {}", dice.one(&[0, 7, 100, 4095])),
        9 => format!("ethertype {}", dice.one(&["0x88b5", "0x8100", "arp", "ip6"])),
        _ => dice
            .one(&[
                "fragment", "nd", "vlan", "icmp", "icmp6", "udp", "tcp", "sctp", "ip", "ip6", "arp", "all",
            ])
            .into(),
    }
}
