//! Devices by name: one table, one row a kind of device.
//!
//! A name is a scheme and what follows it: `af_xdp:eth0`, `memory:`. A new kind of device is a file with its
//! [`Device`], and a row in [`DRIVERS`] with the function that opens one.

use std::fmt;
use std::sync::Arc;

use pagepool::{Arena, Error, Pool, PoolParams};

use crate::device::Device;
use crate::error::parameter;
use crate::mem_nic::nic_domain::NicDomain;
use crate::mem_nic::{MemNicParams, NicPort, mem_nic};
use crate::xsk::{Attach, Redirect, Umem, UmemParams, XDP_HEADROOM, XskDevice, XskParams};

/// A kind of device that can be opened by name.
#[derive(Clone, Copy)]
pub struct Driver {
    /// What a name begins with, before the colon.
    pub scheme: &'static str,
    /// What follows the colon, for help and errors.
    pub argument: &'static str,
    /// What it opens, in a line.
    pub about: &'static str,
    open: fn(&str, OpenParams, &Arc<Arena>) -> Result<OpenedDevice, Error>,
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.scheme, self.argument)
    }
}

/// Every kind of device that can be opened by name.
pub const DRIVERS: &[Driver] = &[
    Driver { scheme: "af_xdp", argument: "INTERFACE", about: "an AF_XDP socket", open: open_af_xdp },
    Driver {
        scheme: "memory",
        argument: "[NAME]",
        about: "a NIC in memory, with its wire",
        open: open_memory,
    },
];

/// How to open a device, of whichever kind.
#[derive(Clone, Debug)]
pub struct OpenParams {
    /// The queue of the interface, if it has several.
    pub queue: u32,
    /// Slots of the receive ring: a power of two.
    pub rx_ring: u32,
    /// Slots of the transmit ring: a power of two.
    pub tx_ring: u32,
    /// Whether packets may have several buffers.
    pub multi_buffer: bool,
    /// The pool that the device receives into, but for what the device decides: its domain, and the least
    /// headroom.
    pub pool: PoolParams,
}

impl Default for OpenParams {
    fn default() -> Self {
        let pool = PoolParams { wakeup: true, ..PoolParams::default() };
        Self { queue: 0, rx_ring: 1024, tx_ring: 1024, multi_buffer: false, pool }
    }
}

/// A device, the pool that it receives into, and its other end.
#[derive(Debug)]
pub struct OpenedDevice {
    /// The device. Drop it before the pool.
    pub device: Box<dyn Device>,
    /// Mapped in the device's domain.
    pub pool: Pool,
    /// The hardware's end of a NIC in memory.
    pub wire: Option<NicPort>,
}

/// Opens the device of a name, as [`DRIVERS`] has them, with a pool over the arena.
///
/// ```
/// use pagepool::{Arena, ArenaParams};
/// use pagepool_net::{OpenParams, open_device};
///
/// let arena = Arena::new(ArenaParams { max_bytes: 16 << 20, ..Default::default() })?;
/// let nic = open_device("memory:", OpenParams::default(), &arena)?;
/// let (mut device, pool, mut wire) = (nic.device, nic.pool.bind(), nic.wire.expect("it has one"));
/// let mut packets = Vec::with_capacity(64);
/// device.receive(&pool, &mut packets, 64); // the first buffers
/// assert!(wire.deliver(&[7; 60]));
/// assert_eq!(device.receive(&pool, &mut packets, 64), 1);
///
/// let unknown = open_device("tun:tun0", OpenParams::default(), &arena).map(drop).unwrap_err();
/// assert_eq!(unknown.to_string(), "device is tun:tun0, but must be af_xdp:INTERFACE or memory:[NAME]");
/// # drop(packets);
/// # Ok::<(), pagepool::Error>(())
/// ```
pub fn open_device(name: &str, params: OpenParams, arena: &Arc<Arena>) -> Result<OpenedDevice, Error> {
    let (scheme, argument) = name.split_once(':').unwrap_or((name, ""));
    match DRIVERS.iter().find(|driver| driver.scheme == scheme) {
        Some(driver) => (driver.open)(argument, params, arena),
        None => {
            let names: Vec<_> = DRIVERS.iter().map(|driver| format!("{driver:?}")).collect();
            Err(parameter("device", name, names.join(" or ")))
        }
    }
}

fn open_memory(name: &str, params: OpenParams, arena: &Arc<Arena>) -> Result<OpenedDevice, Error> {
    let defaults = MemNicParams::default();
    let name = if name.is_empty() { defaults.name } else { name.into() };
    let domain = NicDomain::new(&*name);
    let max_buffers = if params.multi_buffer { defaults.max_buffers } else { 1 };
    let (rx_ring, tx_ring) = (params.rx_ring as usize, params.tx_ring as usize);
    let nic = MemNicParams { name, rx_ring, tx_ring, max_buffers, ..defaults };
    let (device, port) = mem_nic(nic, domain.clone())?;
    let mut pool = params.pool;
    pool.domains.push(domain);
    Ok(OpenedDevice { device: Box::new(device), pool: Pool::new(pool, arena.clone())?, wire: Some(port) })
}

/// The whole arena becomes a UMEM, so it must be committed (`commit_all`).
fn open_af_xdp(interface: &str, params: OpenParams, arena: &Arc<Arena>) -> Result<OpenedDevice, Error> {
    let umem = UmemParams { name: interface.into(), multi_buffer: params.multi_buffer, ..Default::default() };
    let umem = Umem::new(umem, &**arena)?;
    let redirect = Some(Redirect::attach(interface, Attach::Auto, params.multi_buffer)?);
    let OpenParams { queue, rx_ring, tx_ring, mut pool, .. } = params;
    let xsk =
        XskParams { interface: interface.into(), queue, rx_ring, tx_ring, redirect, ..Default::default() };
    let device = Box::new(XskDevice::open(xsk, &umem)?);
    pool.headroom = pool.headroom.max(XDP_HEADROOM as usize);
    pool.domains.push(umem);
    Ok(OpenedDevice { device, pool: Pool::new(pool, arena.clone())?, wire: None })
}
