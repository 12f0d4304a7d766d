//! An interface that a command works on: its data from the kernel, and what depends on it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use pagepool_link::{Ethtool, LinkInfo, Netlink, SshSession, Tap, cautions, shell_word};
use pagepool_net::{Driver, OtherEnd};

use crate::report::{in_words, output};
use crate::traffic::options::Numbers;
use crate::traffic::sockets::{HEADERS, HEADROOM};

const LOOPBACK: &str = "lo";
/// The scheme of an interface that is given by its name alone.
const SCHEME: &str = "af_xdp";
/// The scheme of an interface whose other end is a file of this process.
const TAP: &str = "tap";
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

#[derive(Clone, Debug)]
pub struct Interface {
    /// The name that its queues are opened by: `af_xdp:eth0`.
    pub device: String,
    /// The name of its driver, if it has one.
    pub driver: Option<String>,
    pub link: LinkInfo,
    pub queues: Vec<u32>,
    /// The number of queues that both receive and send.
    pub queues_of: u32,
    /// Slots of the hardware's receive ring; 0 without hardware.
    pub hardware_ring: u32,
    /// The other end of a TAP, which is open from the start: then there are no AF_XDP sockets.
    pub tap: Option<Arc<Tap>>,
}

impl Kernel {
    pub fn open() -> Result<Self, String> {
        let netlink = Netlink::open().map_err(in_words)?;
        let ethtool = Ethtool::open().map_err(in_words)?;
        Ok(Self { netlink, ethtool, session: SshSession::current() })
    }

    /// Looks up the interface of a device, with the given queues or all. Opens a TAP, or makes it.
    pub fn interface(&mut self, device: &str, queues: Option<&Numbers>) -> Result<Interface, String> {
        let (scheme, name) = split(device)?;
        let tap = if scheme == TAP { Some(Arc::new(Tap::open(name).map_err(in_words)?)) } else { None };
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
        let device = format!("{scheme}:{}", link.name);
        let driver = self.ethtool.driver(name).map_err(in_words)?;
        Ok(Interface { device, driver, link, queues, queues_of: rx.min(tx), hardware_ring, tap })
    }

    /// Refuses an interface that the machine or this session depends on, unless `proceed`. `effect`: what the
    /// command does to it.
    pub fn refuse_if_needed(
        &mut self,
        interface: &Interface,
        effect: &str,
        proceed: bool,
    ) -> Result<(), String> {
        let LinkInfo { name, index, .. } = &interface.link;
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
        for Interface { link, .. } in interfaces.iter().filter(|interface| interface.link.has_carrier) {
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
    /// A warning if the card's zero-copy buffers hold less than a packet, although a chunk holds it.
    pub fn cut_short(&self, chunk: u32) -> Option<String> {
        cut_short(self.driver.as_deref()?, &self.link, chunk)
    }
}

/// Those that sockets are opened on.
pub fn with_sockets(interfaces: &[Interface]) -> Vec<Interface> {
    interfaces.iter().filter(|interface| interface.tap.is_none()).cloned().collect()
}

/// The number of pairs of queues, or of queues of a single interface.
pub fn pairs_of(interfaces: &[Interface]) -> usize {
    interfaces.iter().map(|interface| interface.queues.len()).min().unwrap_or(0)
}

/// The scheme and the interface of a device; without a scheme `af_xdp`. An error if the device has no
/// interface.
fn split(device: &str) -> Result<(&'static str, &str), String> {
    if !device.contains(':') {
        return Ok((SCHEME, device));
    }
    let (driver, interface) = Driver::find(device).map_err(in_words)?;
    match driver.other_end {
        OtherEnd::Interface | OtherEnd::Tap => Ok((driver.scheme, interface)),
        _ => Err(format!(
            "{device} has no network interface. Use {SCHEME}:INTERFACE; `pagepool demo` runs in memory"
        )),
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
            let (device, queues) = ("one".into(), vec![0]);
            let (driver, tap) = (None, None);
            let interface = Interface { device, driver, link, queues, queues_of: 1, hardware_ring: 0, tap };
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
        assert_eq!(split("eth0"), Ok(("af_xdp", "eth0")));
        assert_eq!(split("af_xdp:eth0"), Ok(("af_xdp", "eth0")));
        assert_eq!(split("tap:eth0"), Ok((TAP, "eth0")));
        let error = split("memory:").unwrap_err();
        assert!(
            error.starts_with("memory: has no network interface. ") && error.contains("af_xdp:"),
            "{error}"
        );
        let unknown = split("tun:tun0").unwrap_err();
        assert!(pagepool_net::DRIVERS.iter().all(|driver| unknown.contains(&format!("{driver:?}"))));
    }
}
