//! What most programs need, in one call each: a device with its own memory and pool; a redirect for one port.

use std::sync::Arc;

use pagepool::{Arena, ArenaParams, Bound, Error, PAGE_SIZE, Pool, PoolParams, REGION_SHIFT};

use super::bpf::redirect::{Attach, Redirect};
use super::device::{UnboundSocket, XskDevice};
use super::params::{UmemParams, XDP_HEADROOM, XskParams};
use super::umem::Umem;
use crate::device::Device;
use crate::device::device::HEADERS;
use crate::error::{parameter, within};
use crate::interface::lookup;

impl XskDevice {
    /// Opens a queue of an interface with all that it requires: memory, a UMEM, a pool that this thread owns,
    /// and an XDP program that takes all packets of the queue.
    ///
    /// Packets of other queues stay with the kernel. To give this queue back to the kernel, drop both, or end
    /// the process. The memory is twice what the rings hold: 16 MiB with the rings of `XskParams::default()`,
    /// in pages of 2 KiB; 32 MiB in pages of 4 KiB if the MTU is above 1,774 bytes or the interface is a card
    /// (which may fill only whole KiB of a page), and more for a card with zero copy. Open the device again
    /// after a higher MTU is set.
    ///
    /// Packets have one buffer, so the MTU may be at most 3,822 bytes; for more see
    /// [`UmemParams::multi_buffer`](super::UmemParams::multi_buffer). For some of the packets see
    /// [`Redirect::attach_udp_port`], for other parameters [`simple_with`](Self::simple_with), for several
    /// queues [`open_devices`](crate::open_devices).
    ///
    /// Requires `CAP_NET_RAW`, `CAP_BPF`, `CAP_NET_ADMIN`, and as much locked memory or `CAP_IPC_LOCK`; the
    /// error names what is missing. Takes some milliseconds, or seconds if a card restarts for the program.
    ///
    /// ```no_run
    /// // It needs root and an interface.
    /// use pagepool_net::{Device, DeviceExt, Wake, XskDevice};
    ///
    /// let (mut device, pool) = XskDevice::simple("eth0", 0)?;
    /// let mut packets = Vec::new();
    /// while device.wait(&pool, std::time::Duration::from_secs(1)) != Wake::Gone {
    ///     device.receive(&pool, &mut packets, 64);
    ///     packets.drain(..).for_each(|packet| println!("{} bytes", packet.len())); // and its page returns
    /// }
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    pub fn simple(interface: &str, queue: u32) -> Result<(Self, Bound), Error> {
        Self::simple_with(XskParams { interface: interface.into(), queue, ..Default::default() })
    }

    /// Opens a queue like [`simple`](Self::simple), with other parameters. With a
    /// [redirect](XskParams::redirect) it loads no other XDP program.
    ///
    /// The kernel has its buffers before the socket is in the map, so in copy mode no packet is lost. With
    /// zero copy the driver's queue has no buffers from the bind until then.
    ///
    /// ```no_run
    /// // It needs root and an interface.
    /// use pagepool_net::{Redirect, XskDevice, XskParams};
    ///
    /// let redirect = Some(Redirect::attach_udp_port("eth0", 7)?);
    /// let params = XskParams { interface: "eth0".into(), redirect, ..Default::default() };
    /// let (device, pool) = XskDevice::simple_with(params)?;
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    pub fn simple_with(mut params: XskParams) -> Result<(Self, Bound), Error> {
        params.check()?;
        let link = lookup::look_up(&params.interface)?;
        params.interface.clone_from(&link.name); // it may be an alternative name
        let name = format!("{}:{}", params.interface, params.queue);
        let (umem, pool) = memory(&name, &params, link.mtu as usize)?;
        check_mtu(link.mtu as usize, &umem)?;
        let redirect = match params.redirect.take() {
            Some(redirect) => redirect,
            None => Redirect::load(&params.interface, Attach::Auto, false)?,
        };
        redirect.key(params.queue, params.map_key)?; // refused before anything is opened
        redirect.pass()?; // otherwise drivers have no zero copy, and some restart their queues later
        let map_key = params.map_key;
        let mut this = Self::bind(UnboundSocket::make(params, &umem)?)?;
        this.check_pool(&pool)?;
        this.receive(&pool, &mut Vec::new(), 0);
        this.join(redirect.clone(), map_key, Redirect::insert)?;
        redirect.start()?;
        Ok((this, pool))
    }
}

impl Redirect {
    /// Takes the UDP packets to a port, of IPv4 and IPv6, to any address. All others stay with the kernel:
    /// ARP, ICMP, other ports, and datagrams in fragments.
    ///
    /// [Loads](Self::load) an XDP program, [steers](Self::steer) it by `udp dst port N and not fragment`, and
    /// [starts](Self::start) it: the packets go to a socket once it is in the map, and to the kernel until
    /// then. See the example of [`XskDevice::simple_with`](crate::XskDevice::simple_with). Requires
    /// `CAP_BPF`, `CAP_NET_ADMIN` and, on older kernels, `CAP_PERFMON`: see [`steer`](Self::steer).
    ///
    /// A card with several queues spreads flows over them, and the kernel gets the packets of queues without
    /// a socket. Open a device for each, or restrict the card to one ([`HeldFlowSpread`]).
    ///
    /// [`HeldFlowSpread`]: pagepool_link::HeldFlowSpread
    pub fn attach_udp_port(interface: &str, port: u16) -> Result<Arc<Self>, Error> {
        within("port", port, 1..=u16::MAX)?;
        let this = Self::load(interface, Attach::Auto, false)?;
        this.steer(&format!("udp dst port {port} and not fragment").parse()?)?;
        this.start()?;
        Ok(this)
    }
}

/// Memory for the rings, and as much again for the program.
fn memory(name: &str, params: &XskParams, mtu: usize) -> Result<(Arc<Umem>, Bound), Error> {
    let hardware_ring = lookup::hardware_ring(&params.interface);
    let on_rings = u64::from(params.rx_ring.max(params.rx_buffers))
        + u64::from(params.tx_ring)
        + u64::from(hardware_ring);
    let fits_half = mtu + HEADERS <= PAGE_SIZE / 2 - XDP_HEADROOM as usize;
    let page_size = if fits_half && hardware_ring == 0 { PAGE_SIZE / 2 } else { PAGE_SIZE };
    let max_bytes = (2 * on_rings * page_size as u64).next_multiple_of(1 << REGION_SHIFT);
    let arena = Arena::new(ArenaParams { max_bytes, page_size, commit_all: true, ..Default::default() })?;
    let umem = Umem::new(UmemParams { name: name.into(), ..Default::default() }, &arena)?;
    let pool = PoolParams {
        name: name.into(),
        headroom: XDP_HEADROOM as usize,
        wakeup: true,
        domains: vec![umem.clone()],
        ..Default::default()
    };
    Ok((umem, Pool::new(pool, arena)?.bind()))
}

fn check_mtu(mtu: usize, umem: &Umem) -> Result<(), Error> {
    let most = umem.packet_capacity() - HEADERS;
    if mtu <= most {
        return Ok(());
    }
    let must_be = format!(
        "at most {most} for packets of one buffer: lower it (ip link set ... mtu {most}), or open the device \
         with UmemParams::multi_buffer"
    );
    Err(parameter("mtu", mtu, must_be))
}
