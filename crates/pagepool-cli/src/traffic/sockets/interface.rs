//! What a command works on: an interface with its data from the kernel, or the socket of a switch.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use pagepool_link::{Ethtool, LinkInfo, Netlink, SshSession, Tap, cautions, shell_word};
use pagepool_net::{Driver, DriverMemory, DriverQueues, OtherEnd};

use crate::report::{in_words, output};
use crate::traffic::options::Numbers;
use crate::traffic::sockets::{HEADERS, HEADROOM};

const LOOPBACK: &str = "lo";
/// The scheme of an interface that is given by its name alone.
const SCHEME: &str = "af_xdp";
/// The MTU of a device without an interface, unless longer packets come from another; and the highest.
const MTUS: [u32; 2] = [1500, 9000];
/// Drivers that round the length of zero-copy buffers down to whole KiB (igb_setup_srrctl and
/// igc_configure_rx_ring, v7.3).
const WHOLE_KIB: [&str; 2] = ["igb", "igc"];

/// How long a card's link may take to restart: autonegotiation of 1 Gbit/s takes 2 to 4 s.
const RESTART: Duration = Duration::from_secs(6);
/// How often the link is checked.
const LOOK: Duration = Duration::from_millis(10);

/// Queries the kernel about interfaces of this network namespace.
pub struct Kernel {
    pub netlink: Netlink,
    pub ethtool: Ethtool,
    session: Option<SshSession>,
}

/// An interface, or a device without one.
#[derive(Clone, Debug)]
pub struct Interface {
    /// The name that its queues are opened by: `af_xdp:eth0`.
    pub device: String,
    /// The kind of device.
    pub row: &'static Driver,
    /// The name in reports: `eth0`, or `vhost_user:/run/sw0.sock`.
    pub name: String,
    /// The longest packet without its Ethernet header.
    pub mtu: u32,
    pub link: Option<LinkInfo>,
    /// The name of the interface's driver, if it has one.
    pub driver: Option<String>,
    pub queues: Vec<u32>,
    /// The number of queues that both receive and send.
    pub queues_of: u32,
    /// Slots of the hardware's receive ring; 0 without hardware.
    pub hardware_ring: u32,
    /// The other ends of a TAP, which are open from the start.
    pub taps: Vec<Arc<Tap>>,
}

impl Kernel {
    pub fn open() -> Result<Self, String> {
        let netlink = Netlink::open().map_err(in_words)?;
        let ethtool = Ethtool::open().map_err(in_words)?;
        Ok(Self { netlink, ethtool, session: SshSession::current() })
    }

    /// Looks up a device, with the given queues or all. Opens a TAP, or makes it.
    pub fn interface(&mut self, device: &str, queues: Option<&Numbers>) -> Result<Interface, String> {
        let (row, argument) = split(device)?;
        match (row.other_end, row.queues) {
            (OtherEnd::Socket, _) => Ok(Interface::without_link(row, argument, queues)),
            (OtherEnd::Tap, DriverQueues::Requested) => self.tap_with_header(row, argument, queues),
            (OtherEnd::Tap, _) => {
                let tap = Arc::new(Tap::open(argument).map_err(in_words)?);
                Ok(Interface { taps: vec![tap], ..self.with_link(row, argument, queues)? })
            }
            _ => self.with_link(row, argument, queues),
        }
    }

    /// A TAP of which each queue has the other end of a pair of virtio queues.
    fn tap_with_header(
        &mut self,
        row: &'static Driver,
        argument: &str,
        queues: Option<&Numbers>,
    ) -> Result<Interface, String> {
        let of = Interface::without_link(row, argument, queues);
        let taps = Tap::open_with_header(argument, of.queues.len()).map_err(in_words)?;
        let link = self.netlink.link(argument).map_err(in_words)?;
        let (mtu, taps) = (link.mtu, taps.into_iter().map(Arc::new).collect());
        Ok(Interface { mtu, link: Some(link), taps, ..of })
    }

    fn with_link(
        &mut self,
        row: &'static Driver,
        name: &str,
        queues: Option<&Numbers>,
    ) -> Result<Interface, String> {
        let link = self.netlink.link(name).map_err(in_words)?;
        let name = &*link.name; // ethtool takes no alternative name
        if link.mac.is_none() {
            return Err(format!("{name} is not an Ethernet interface: it has no MAC address"));
        }
        let (rx, tx) = match self.ethtool.channels(name).map_err(in_words)? {
            Some(channels) => (channels.rx, channels.tx),
            None => (link.rx_queues, link.tx_queues),
        };
        let queues = chosen(name, rx.min(tx), queues)?;
        if rx > tx {
            output::note(format_args!(
                "queues {tx} to {} of {name} only receive and are not used: their packets go to the \
                 kernel; `ethtool -L {}` changes the number of queues",
                rx - 1,
                shell_word(name)
            ));
        }
        let ring = self.ethtool.rx_ring(name).map_err(in_words)?;
        let hardware_ring = ring.map_or(0, |(slots, _)| slots);
        let driver = self.ethtool.driver(name).map_err(in_words)?;
        let (device, queues_of, taps) = (format!("{}:{name}", row.scheme), rx.min(tx), Vec::new());
        let (name, mtu, link) = (link.name.clone(), link.mtu, Some(link));
        Ok(Interface { device, row, name, mtu, link, driver, queues, queues_of, hardware_ring, taps })
    }

    /// Refuses an interface that the machine or this session depends on, unless `proceed`. `effect`: what the
    /// command does to it.
    pub fn refuse_if_needed(
        &mut self,
        interface: &Interface,
        effect: &str,
        proceed: bool,
    ) -> Result<(), String> {
        let Some(LinkInfo { name, index, .. }) = &interface.link else { return Ok(()) };
        let reasons = cautions(&mut self.netlink, *index, self.session).map_err(in_words)?;
        let mut reasons: Vec<String> = reasons.iter().map(ToString::to_string).collect();
        if name == LOOPBACK {
            reasons.push("local programs reach each other through it".into());
        }
        for reason in reasons {
            let why = format!("{effect} {name}, and {reason}");
            if !proceed {
                return Err(format!("{why}. Use another interface, or --yes to proceed"));
            }
            output::warn(format_args!("{why}; proceeding, because --yes is given"));
        }
        Ok(())
    }

    /// Waits until all interfaces that had a link have it again, or a signal ends the command. Many cards
    /// restart their link for an XDP program, and may drop packets until it is up. Warns after 6 s for an
    /// interface, and goes on.
    pub fn wait_for_links(&mut self, interfaces: &[Interface], interrupted: &AtomicBool) {
        let start = Instant::now();
        let links = interfaces.iter().filter_map(|interface| interface.link.as_ref());
        for link in links.filter(|link| link.has_carrier) {
            while !interrupted.load(Ordering::Relaxed) {
                let now = self.netlink.link_at(link.index).ok().flatten();
                // An interface that is gone is not waited for.
                let Some(LinkInfo { name, .. }) = now.filter(|now| !now.has_carrier) else { break };
                if start.elapsed() > RESTART {
                    let seconds = RESTART.as_secs();
                    output::warn(format_args!(
                        "{name} has been without a link for {seconds} s; packets may be lost until it is up"
                    ));
                    break;
                }
                std::thread::sleep(LOOK);
            }
        }
    }
}

impl Interface {
    /// A device whose queues are those that are requested, or queue 0.
    fn without_link(row: &'static Driver, argument: &str, queues: Option<&Numbers>) -> Self {
        let queues = queues.map_or_else(|| vec![0], |Numbers(requested)| requested.clone());
        Self {
            device: format!("{}:{argument}", row.scheme),
            row,
            name: format!("{}:{}", row.scheme, Driver::without_options(argument)),
            mtu: MTUS[0],
            link: None,
            driver: None,
            queues_of: queues.len() as u32,
            queues,
            hardware_ring: 0,
            taps: Vec::new(),
        }
    }

    /// Whether its queues are AF_XDP sockets.
    pub fn has_sockets(&self) -> bool {
        self.row.other_end == OtherEnd::Interface
    }

    /// Whether another process maps the memory of its packets.
    pub fn needs_memfd(&self) -> bool {
        self.row.memory == DriverMemory::Memfd
    }

    /// Whether its queues share a connection, and so must share their memory.
    pub fn is_one_device(&self) -> bool {
        self.row.queues == DriverQueues::Requested
    }

    /// Takes packets of this MTU, as far as it can, if no interface says how long packets are.
    pub fn take_mtu(&mut self, mtu: u32) {
        let [least, most] = MTUS;
        if self.link.is_none() {
            self.mtu = mtu.clamp(least, most);
        }
    }

    /// A warning if the card's zero-copy buffers hold less than a packet, although a chunk holds it.
    pub fn cut_short(&self, chunk: u32) -> Option<String> {
        cut_short(self.driver.as_deref()?, self.link.as_ref()?, chunk)
    }
}

/// Those that sockets are opened on.
pub fn with_sockets(interfaces: &[Interface]) -> Vec<Interface> {
    interfaces.iter().filter(|interface| interface.has_sockets()).cloned().collect()
}

/// The number of pairs of queues, or of queues of a single interface.
pub fn pairs_of(interfaces: &[Interface]) -> usize {
    interfaces.iter().map(|interface| interface.queues.len()).min().unwrap_or(0)
}

/// The kind and the argument of a device; without a scheme the kind is `af_xdp`. An error if both ends of the
/// device are in this process.
fn split(device: &str) -> Result<(&'static Driver, &str), String> {
    if !device.contains(':') {
        return Ok((Driver::find(SCHEME).map_err(in_words)?.0, device));
    }
    let (row, argument) = Driver::find(device).map_err(in_words)?;
    match row.other_end {
        OtherEnd::ThisProcess => Err(format!(
            "both ends of {device} are in this process, so no packet comes from outside. Use \
             {SCHEME}:INTERFACE; `pagepool demo` runs in memory"
        )),
        _ => Ok((row, argument)),
    }
}

/// A card whose buffer length is in KiB puts the rest of a longer packet into the next buffer, where it is
/// not expected.
fn cut_short(driver: &str, link: &LinkInfo, chunk: u32) -> Option<String> {
    let room = (chunk as usize - HEADROOM) & !1023;
    let fits = link.mtu as usize + HEADERS <= room;
    (WHOLE_KIB.contains(&driver) && !fits).then(|| {
        format!(
            "{driver} gives {} {room} of the {chunk} bytes of a chunk with zero copy: longer packets arrive \
             damaged. Use --chunk-size 4096, --mode copy, or an MTU of at most {}",
            link.name,
            room.saturating_sub(HEADERS)
        )
    })
}

/// The given queues or all, or an error if the interface lacks one.
fn chosen(name: &str, there: u32, asked: Option<&Numbers>) -> Result<Vec<u32>, String> {
    let word = shell_word(name);
    if there == 0 {
        return Err(format!(
            "{name} has no queue that both receives and sends; `ethtool -l {word}` lists its queues (a TAP \
             has one per process that opened it)"
        ));
    }
    let Some(Numbers(asked)) = asked else { return Ok((0..there).collect()) };
    match asked.iter().find(|&&queue| queue >= there) {
        None => Ok(asked.clone()),
        Some(queue) => {
            let last = there - 1;
            let are = if last == 0 { "only queue is 0".into() } else { format!("queues are 0 to {last}") };
            Err(format!("{name} has no queue {queue}: its {are}; `ethtool -L {word}` changes the number"))
        }
    }
}

#[cfg(test)]
mod tests {
    use pagepool_lab::or_skip;
    use pagepool_link::{Namespace, VethEnd};

    use super::*;

    #[test]
    fn a_signal_ends_the_wait_for_a_link() {
        let Some(apart) = or_skip("a_link", Namespace::new("apart")) else { return };
        let took = apart.run(|| {
            let end = |name| VethEnd { name, namespace: None, mac: None, mtu: 1500, queues: 1 };
            let mut netlink = Netlink::open().unwrap();
            netlink.add_veth(&end("one"), &end("other")).unwrap();
            let mut link = netlink.link("one").unwrap();
            assert!(!link.has_carrier, "both ends are down");
            link.has_carrier = true; // as before the card restarted
            let (row, argument) = split("vhost_user:one").unwrap();
            let interface = Interface { link: Some(link), ..Interface::without_link(row, argument, None) };
            let (interrupted, start) = (AtomicBool::new(false), Instant::now());
            std::thread::scope(|threads| {
                threads.spawn(|| {
                    std::thread::sleep(10 * LOOK);
                    interrupted.store(true, Ordering::Relaxed);
                });
                Kernel::open().unwrap().wait_for_links(&[interface], &interrupted);
            });
            start.elapsed()
        });
        assert!((10 * LOOK..RESTART).contains(&took), "{took:?}");
    }

    #[test]
    fn a_missing_queue_is_refused_with_the_number_of_queues() {
        let all = |there, asked: &[u32]| chosen("v", there, Some(&Numbers(asked.to_vec())));
        assert_eq!(chosen("v", 3, None), Ok(vec![0, 1, 2]));
        assert_eq!(all(3, &[2, 0]), Ok(vec![2, 0]));
        assert!(all(1, &[1]).unwrap_err().starts_with("v has no queue 1: its only queue is 0;"));
        assert!(all(4, &[0, 4]).unwrap_err().starts_with("v has no queue 4: its queues are 0 to 3;"));
        assert!(chosen("v", 0, None).is_err());
    }

    #[test]
    fn a_card_that_would_cut_packets_causes_a_warning() {
        let lo = Netlink::open().unwrap().link("lo").unwrap();
        let warning = |driver, mtu, chunk| {
            let mut link = lo.clone();
            link.mtu = mtu;
            cut_short(driver, &link, chunk)
        };
        let said = warning("igb", 1500, 2048).unwrap();
        assert!(
            said.starts_with("igb gives lo 1024 of the 2048 bytes") && said.contains("MTU of at most 1002")
        );
        assert!(warning("igc", 1003, 2048).is_some() && warning("igc", 1002, 2048).is_none());
        assert!(warning("igb", 1500, 4096).is_none() && warning("igb", 3498, 4096).is_some());
        assert!(warning("ice", 1500, 2048).is_none());
    }

    #[test]
    fn a_device_is_a_scheme_and_an_interface() {
        let split = |device| split(device).map(|(row, argument)| (row.scheme, argument));
        assert_eq!(split("eth0"), Ok(("af_xdp", "eth0")));
        assert_eq!(split("af_xdp:eth0"), Ok(("af_xdp", "eth0")));
        assert_eq!(split("tap:eth0"), Ok(("tap", "eth0")));
        assert_eq!(split("vhost_user:/run/a:b"), Ok(("vhost_user", "/run/a:b")));
        let error = split("memory:").unwrap_err();
        assert!(error.starts_with("both ends of memory: are in this process") && error.contains("af_xdp:"));
        let unknown = split("tun:tun0").unwrap_err();
        assert!(pagepool_net::DRIVERS.iter().all(|driver| unknown.contains(&format!("{driver:?}"))));
    }

    #[test]
    fn a_switch_has_the_queues_that_are_requested() {
        let (row, argument) = split("vhost_user:/run/a,server=1").unwrap();
        let mut one = Interface::without_link(row, argument, None);
        assert_eq!((&*one.name, &*one.queues, one.mtu), ("vhost_user:/run/a", &[0][..], 1500));
        assert_eq!(one.device, "vhost_user:/run/a,server=1");
        assert!(!one.has_sockets() && one.needs_memfd() && one.is_one_device());
        for (asked, gets) in [(9000, 9000), (576, 1500), (65_536, 9000)] {
            one.take_mtu(asked);
            assert_eq!(one.mtu, gets);
        }
        let two = Interface::without_link(row, argument, Some(&Numbers(vec![3, 1])));
        assert_eq!((two.queues, two.queues_of), (vec![3, 1], 2));
    }
}
