//! Answers smoltcp's ARP requests from the kernel's table.
//!
//! The program shares an interface and its address with the kernel, which gets all ARP packets: smoltcp's
//! requests leave, but their answers go to the kernel. The kernel has an entry for each neighbour that asked
//! for its address, and for each router that it uses. So an ARP request that smoltcp sends is also looked up
//! there, and the entry comes to smoltcp as an answer. smoltcp asks at most once per second.

use smoltcp::phy::{self, DeviceCapabilities};
use smoltcp::time::Instant;
use smoltcp::wire::{EthernetAddress, Ipv4Address};

use crate::nic::{Gone, Nic};

/// An ARP packet with its Ethernet header.
type Arp = [u8; 42];

/// A device whose ARP requests are answered from the kernel's table.
pub struct Neighbours<N> {
    /// The device.
    pub nic: N,
    interface: String,
    answer: Option<Arp>,
}

impl<N> Neighbours<N> {
    /// Answers from the kernel's entries for an interface.
    pub fn new(nic: N, interface: &str) -> Self {
        Self { nic, interface: interface.into(), answer: None }
    }
}

/// The neighbour's address in a table like `/proc/net/arp`.
fn look_up(table: &str, interface: &str, neighbour: Ipv4Address) -> Option<EthernetAddress> {
    table.lines().find_map(|line| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let [ip, _, flags, mac, _, device] = columns[..] else { return None };
        let is_it = ip.parse() == Ok(neighbour) && device == interface && flags != "0x0";
        if is_it { mac.parse().ok() } else { None }
    })
}

/// The answer to a frame, if it is an ARP request for a neighbour that is found.
fn answer(frame: &[u8], find: impl FnOnce(Ipv4Address) -> Option<EthernetAddress>) -> Option<Arp> {
    let request: &Arp = frame.get(..size_of::<Arp>())?.try_into().ok()?;
    if request[12..14] != [8, 6] || request[20..22] != [0, 1] {
        return None;
    }
    let (asking, their_ip) = (&request[22..32], [request[38], request[39], request[40], request[41]]);
    let mac = find(their_ip.into())?;
    let mut reply = *request;
    reply[..6].copy_from_slice(&asking[..6]);
    reply[6..12].copy_from_slice(mac.as_bytes());
    reply[21] = 2;
    reply[22..28].copy_from_slice(mac.as_bytes());
    reply[28..32].copy_from_slice(&their_ip);
    reply[32..42].copy_from_slice(asking);
    Some(reply)
}

/// A received packet, or an answer.
pub enum RxToken<R> {
    /// From the device.
    Received(R),
    /// From the table.
    Answer(Arp),
}

impl<R: phy::RxToken> phy::RxToken for RxToken<R> {
    fn consume<T, F: FnOnce(&[u8]) -> T>(self, read: F) -> T {
        match self {
            Self::Received(packet) => packet.consume(read),
            Self::Answer(arp) => read(&arp),
        }
    }
}

/// Room for a packet of the device.
pub struct TxToken<'a, T>(T, &'a str, &'a mut Option<Arp>);

impl<T: phy::TxToken> phy::TxToken for TxToken<'_, T> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, write: F) -> R {
        let Self(token, interface, next) = self;
        token.consume(len, |frame| {
            let result = write(frame);
            let find =
                |ip| look_up(&std::fs::read_to_string("/proc/thread-self/net/arp").ok()?, interface, ip);
            if let Some(arp) = answer(frame, find) {
                *next = Some(arp);
            }
            result
        })
    }
}

impl<N: phy::Device + 'static> phy::Device for Neighbours<N> {
    type RxToken<'a> = RxToken<N::RxToken<'a>>;
    type TxToken<'a> = TxToken<'a, N::TxToken<'a>>;

    fn receive(&mut self, now: Instant) -> Option<(Self::RxToken<'_>, Self::TxToken<'_>)> {
        let Self { nic, interface, answer } = self;
        if let Some(arp) = *answer {
            let token = nic.transmit(now)?;
            *answer = None;
            return Some((RxToken::Answer(arp), TxToken(token, interface, answer)));
        }
        let (received, token) = nic.receive(now)?;
        Some((RxToken::Received(received), TxToken(token, interface, answer)))
    }

    fn transmit(&mut self, now: Instant) -> Option<Self::TxToken<'_>> {
        Some(TxToken(self.nic.transmit(now)?, &self.interface, &mut self.answer))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        self.nic.capabilities()
    }
}

impl<N: Nic + 'static> Nic for Neighbours<N> {
    fn turn(&mut self) -> usize {
        self.nic.turn() + usize::from(self.answer.is_some())
    }

    fn wait(&mut self, timeout: std::time::Duration) -> Result<(), Gone> {
        self.nic.wait(timeout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "IP address       HW type     Flags       HW address            Mask     Device
198.18.0.1       0x1         0x2         02:70:70:00:01:00     *        eth0
198.18.0.2       0x1         0x0         00:00:00:00:00:00     *        eth0
198.18.0.3       0x1         0x2         02:70:70:00:01:03     *        eth1
";

    #[test]
    fn a_row_counts_if_it_is_complete_and_of_the_interface() {
        let find =
            |last| look_up(TABLE, "eth0", Ipv4Address::new(198, 18, 0, last)).map(|mac| mac.0[4..].to_vec());
        assert_eq!((find(1), find(2), find(3), find(4)), (Some(vec![1, 0]), None, None, None));
    }

    #[test]
    fn a_request_is_answered_and_nothing_else() {
        let mut request = [0; 60];
        request[..12].copy_from_slice(&[255, 255, 255, 255, 255, 255, 2, 0, 0, 0, 0, 9]);
        request[12..22].copy_from_slice(&[8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
        request[22..32].copy_from_slice(&[2, 0, 0, 0, 0, 9, 198, 18, 0, 9]);
        request[38..42].copy_from_slice(&[198, 18, 0, 1]);
        let find = |ip| look_up(TABLE, "eth0", ip);
        let reply = answer(&request, find).expect("it is known");
        assert_eq!(reply[..12], [2, 0, 0, 0, 0, 9, 2, 0x70, 0x70, 0, 1, 0]);
        assert_eq!(reply[20..32], [0, 2, 2, 0x70, 0x70, 0, 1, 0, 198, 18, 0, 1]);
        assert_eq!(reply[32..], [2, 0, 0, 0, 0, 9, 198, 18, 0, 9]);
        assert_eq!(answer(&reply, find), None, "a reply");
        assert_eq!(answer(&request[..41], find), None, "a short frame");
        request[41] = 7;
        assert_eq!(answer(&request, find), None, "an unknown neighbour");
    }
}
