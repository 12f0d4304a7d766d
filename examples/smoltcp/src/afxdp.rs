//! A queue of an interface as a [`Phy`]: AF_XDP for the packets of a match, the kernel for all others.

use pagepool::{Arena, ArenaParams, PAGE_SIZE};
use pagepool_link::{Ethtool, Netlink, Offload, XdpMode, offload_faults};
use pagepool_net::{AfXdpParams, Device, Match, OpenParams, TxMode, open_device};
use smoltcp::phy::{Checksum, ChecksumCapabilities};

use crate::phy::Phy;

/// An error that says what is missing.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// Slots of each ring.
const RING: u32 = 1024;
/// Bytes of a page that hold no packet: the kernel's headroom, and headers beyond the MTU.
const NOT_PACKET: usize = 256 + 18;

/// Opens queue 0 of an interface of this thread's network namespace. Packets that do not match stay with the
/// kernel: its ARP and its ssh, for example.
pub fn open(interface: &str, steer: Match, tx_mode: TxMode) -> Result<Phy<Box<dyn Device>>, Error> {
    let mut netlink = Netlink::open()?;
    let link = netlink.link(interface)?;
    let mtu = link.mtu as usize;
    let page_size = if mtu + NOT_PACKET <= PAGE_SIZE / 2 { PAGE_SIZE / 2 } else { PAGE_SIZE };
    // The rings, and as much again.
    let max_bytes = 4 * u64::from(RING) * page_size as u64;
    let arena = Arena::new(ArenaParams { max_bytes, page_size, commit_all: true, ..Default::default() })?;
    let params = OpenParams {
        rx_ring: RING,
        tx_ring: RING,
        multi_buffer: mtu + NOT_PACKET > page_size,
        af_xdp: AfXdpParams { steer: Some(steer), tx_mode, ..Default::default() },
        ..Default::default()
    };
    let opened = open_device(&format!("af_xdp:{interface}"), &params, &arena)?;
    // A sender that leaves checksums to its device leaves them unfinished: a veth's peer, for example.
    let faults = offload_faults(&mut netlink, &Ethtool::open()?, &link, XdpMode::Native)?;
    let offloads = || faults.iter().flat_map(|fault| fault.offloads.iter().chain(&fault.fixed));
    let mut checksum = ChecksumCapabilities::default();
    if offloads().any(|&offload| offload == Offload::TxChecksum) {
        (checksum.tcp, checksum.udp) = (Checksum::Tx, Checksum::Tx);
    }
    Ok(Phy::new(opened.device, opened.pool.bind(), checksum))
}
