//! Two hosts on one subnet, with room for a forwarder between them.
//!
//! ```text
//!      namespace a             between              namespace b
//!   198.18.0.1  far0 ======= near0   near1 ======= far1  198.18.0.2
//! ```
//!
//! The forwarder is the cable between `near0` and `near1`: without one the hosts do not reach each other. It
//! must carry all frames, ARP included.
//!
//! The near ends have their own namespace, the third. Two other places are worse. In the machine's first
//! namespace a network manager would see them, and might configure them; after a kill they would stay until
//! the kernel removes the hosts' namespaces. In a host's namespace, its stack would own both ends of its
//! link, and would receive what the forwarder sends.

mod coalesce;
mod steering;

use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::time::Duration;

use crate::error::LinkError;
use crate::ethtool::offload::Offload;
use crate::link_info::{LinkInfo, Mac};
use crate::namespace::Namespace;
use crate::netlink::VethEnd;

/// For links to come up.
const LIMIT: Duration = Duration::from_secs(10);
/// About ten packets at a few Gbit/s; short compared with a TCP round trip on a busy machine.
const GATHER: Duration = Duration::from_micros(20);
const PREFIX: u8 = 24;

/// The parameters of [`TwoHosts`].
#[derive(Clone, Copy, Debug)]
pub struct TwoHostsParams {
    /// The MTU of every link: 68 to 65535 bytes, without the Ethernet header.
    pub mtu: u32,
    /// Queues of every link: 1 to 4096.
    pub queues: u32,
    /// How long the hosts gather packets for GRO, as a NIC does between two interrupts; zero: not at all.
    /// Requires Linux 5.2 and fsopen(2); without them packets are received at once.
    pub gather: Duration,
    /// The CPU on which each host's stack receives; `None`: that of the sender, the forwarding thread.
    /// [`Host::stack`] says whether the kernel does it.
    pub stacks: [Option<u32>; 2],
}

impl Default for TwoHostsParams {
    fn default() -> Self {
        Self { mtu: 1500, queues: 1, gather: GATHER, stacks: [None; 2] }
    }
}

/// One of the hosts: a namespace, its link and its address.
#[derive(Debug)]
pub struct Host {
    /// The namespace of the host.
    pub namespace: Namespace,
    /// The link of the host, which also has a loopback.
    pub link: LinkInfo,
    /// The address of the host.
    pub address: Ipv4Addr,
    /// The CPU on which its stack receives, if requested and if the kernel does it. That requires sysfs,
    /// receive packet steering, and a CPU that is online and not isolated.
    pub stack: Option<u32>,
}

/// Two hosts, with room for a forwarder between them. Dropping it removes them and their links.
///
/// All links are up, and send whole packets with their checksums and VLAN tags: these offloads of senders are
/// off. The hosts receive with GRO, which saves their TCP much work; the near ends do not. Nothing sends by
/// itself: IPv6 is off in all three namespaces. Open sockets
/// keep a host's namespace alive: close them first.
///
/// ```
/// use pagepool_link::{TwoHosts, TwoHostsParams};
/// use std::net::UdpSocket;
///
/// let hosts = match TwoHosts::new(&TwoHostsParams::default()) {
///     Ok(hosts) => hosts,
///     Err(error) if error.is_permission() => return Ok(()), // not root: it says which capability is missing
///     Err(error) => return Err(error),
/// };
/// let near = hosts.run_between(pagepool_link::Netlink::open)?.link("near0")?;
/// assert_eq!(near.mac, hosts.near[0].mac);
/// let address = hosts.b.address;
/// let socket = hosts.b.namespace.run(move || UdpSocket::bind((address, 7))).expect("its own address");
/// // Once something forwards between `hosts.near`, the other host reaches this socket.
/// # drop(socket);
/// # Ok::<(), pagepool_link::LinkError>(())
/// ```
#[derive(Debug)]
pub struct TwoHosts {
    /// 198.18.0.1 on `far0`.
    pub a: Host,
    /// 198.18.0.2 on `far1`.
    pub b: Host,
    /// The namespace of the near ends.
    pub between: Namespace,
    /// The ends to forward between: `near0`, the peer of `a`'s link, and `near1`, the peer of `b`'s.
    pub near: [LinkInfo; 2],
}

impl TwoHosts {
    /// Creates both hosts and their links, and waits until the links are up.
    pub fn new(params: &TwoHostsParams) -> Result<Self, LinkError> {
        let between = Namespace::new("between")?;
        let (a, near_a) = host(&between, 0, params)?;
        let (b, near_b) = host(&between, 1, params)?;
        Ok(Self { a, b, between, near: [near_a, near_b] })
    }

    /// Runs a closure in the near ends' namespace, for example to open devices on them.
    pub fn run_between<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        self.between.run(work)
    }
}

impl Drop for TwoHosts {
    /// Removes the links at once. Does not wait for the kernel to remove the namespaces.
    fn drop(&mut self) {
        let Ok(mut netlink) = self.between.netlink() else { return }; // the links go with their namespaces
        for link in &self.near {
            let _ = netlink.delete(link.index); // a link already gone is as good
        }
    }
}

/// Creates host 0 or 1 with its link. Returns it and the near end.
fn host(between: &Namespace, number: u8, params: &TwoHostsParams) -> Result<(Host, LinkInfo), LinkError> {
    let namespace = Namespace::new(&format!("host{number}"))?;
    let (near, far) = (format!("near{number}"), format!("far{number}"));
    let TwoHostsParams { mtu, queues, gather, stacks } = *params;
    let mac = |side| Some(Mac([2, 0x70, 0x70, 0, side, number]));
    let near_end = VethEnd { name: &near, namespace: None, mac: mac(0), mtu, queues };
    let far_end = VethEnd { name: &far, namespace: Some(namespace.as_fd()), mac: mac(1), mtu, queues };
    let (mut netlink, mut near_netlink) = (namespace.netlink()?, between.netlink()?);
    near_netlink.add_veth(&near_end, &far_end)?;
    prepare(&namespace, &far, true)?;
    let link = far.clone();
    let stack = namespace.run(move || {
        let _ = coalesce::gather(&link, gather); // without it the host is slower
        stacks[usize::from(number)].filter(|&cpu| steering::steer(&link, queues, cpu).is_ok())
    });
    prepare(between, &near, false)?;
    let loopback = netlink.link("lo")?.index;
    netlink.set_up(loopback, true)?;
    let (index, address) = (netlink.link(&far)?.index, Ipv4Addr::new(198, 18, 0, number + 1));
    netlink.add_address(index, address, PREFIX)?;
    let near = near_netlink.wait_up(&near, LIMIT)?;
    let link = netlink.wait_up(&far, LIMIT)?;
    Ok((Host { namespace, link, address, stack }, near))
}

/// Sets the offloads of a link, and sets it up.
fn prepare(namespace: &Namespace, link: &str, gro: bool) -> Result<(), LinkError> {
    let (ethtool, mut netlink) = (namespace.ethtool()?, namespace.netlink()?);
    ethtool.send_whole_packets(link)?;
    ethtool.set_offload(link, Offload::Gro, gro)?;
    let index = netlink.link(link)?.index;
    netlink.set_up(index, true)
}
