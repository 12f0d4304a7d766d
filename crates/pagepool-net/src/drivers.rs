//! Opens devices by name. One table has one row per kind of device.
//!
//! A name is a scheme and an argument: `af_xdp:eth0`, `tap:tap0`, `memory:`. A new kind of device is a file
//! with its [`Device`](crate::Device) and the function that opens it, and a row in [`DRIVERS`].

mod af_xdp;
mod memory;
pub(crate) mod open_params;
pub(crate) mod opened_device;
mod queues;
mod tap;
mod vhost;
mod vhost_net;
mod vhost_user;

use std::fmt;
use std::sync::Arc;

use open_params::OpenParams;
use opened_device::OpenedDevice;
use pagepool::{Arena, Error};
use queues::Queues;

use crate::error::parameter;

/// A kind of device that can be opened by name.
#[derive(Clone, Copy)]
pub struct Driver {
    /// The part of a name before the colon.
    pub scheme: &'static str,
    /// The part after the colon, for help and errors.
    pub argument: &'static str,
    /// One line that says what it opens.
    pub about: &'static str,
    /// What the argument names.
    pub other_end: OtherEnd,
    /// What the devices' memory must be.
    pub memory: DriverMemory,
    /// Which queues a device has.
    pub queues: DriverQueues,
    open: Open,
}

/// What the argument of a device's name names: the device's other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OtherEnd {
    /// A network interface.
    Interface,
    /// A TAP: a network interface that the device creates if it does not exist.
    Tap,
    /// A Unix socket, with a switch behind it. There is no interface.
    Socket,
    /// Something of this process, which has both ends. There is no interface.
    ThisProcess,
}

/// What the memory of devices must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DriverMemory {
    /// Any arena.
    Any,
    /// An arena with [`commit_all`](pagepool::ArenaParams::commit_all): the kernel maps all of it at once.
    Committed,
    /// An arena over a file, [`Backing::Memfd`](pagepool::Backing::Memfd): another process maps all of it.
    Memfd,
}

/// Which queues a device has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DriverQueues {
    /// Those of its interface.
    OfInterface,
    /// One: queue 0.
    One,
    /// Those that the caller asks for, usually queue 0 alone. Whether the other end has so many is known when
    /// it is connected. The queues share this connection and its memory: open them in one call.
    Requested,
}

/// Opens devices of one kind over the arena: one device per queue of each name.
type Open = fn(&[Queues<'_>], &OpenParams, &Arc<Arena>) -> Result<Vec<Vec<OpenedDevice>>, Error>;

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.scheme, self.argument)
    }
}

/// Every kind of device that can be opened by name.
pub const DRIVERS: &[Driver] = &[
    Driver {
        scheme: "af_xdp",
        argument: "INTERFACE",
        about: "AF_XDP sockets",
        other_end: OtherEnd::Interface,
        memory: DriverMemory::Committed,
        queues: DriverQueues::OfInterface,
        open: af_xdp::open,
    },
    Driver {
        scheme: "tap",
        argument: "NAME",
        about: "a TAP, created if it does not exist",
        other_end: OtherEnd::Tap,
        memory: DriverMemory::Any,
        queues: DriverQueues::One,
        open: tap::open,
    },
    Driver {
        scheme: "vhost_user",
        argument: "PATH[,server=1]",
        about: "virtio queues of a vhost-user back end at a Unix socket",
        other_end: OtherEnd::Socket,
        memory: DriverMemory::Memfd,
        queues: DriverQueues::Requested,
        open: vhost_user::open,
    },
    Driver {
        scheme: "vhost_net",
        argument: "NAME",
        about: "virtio queues of the kernel's vhost-net, over a TAP, created if it does not exist",
        other_end: OtherEnd::Tap,
        memory: DriverMemory::Any,
        queues: DriverQueues::Requested,
        open: vhost_net::open,
    },
    Driver {
        scheme: "memory",
        argument: "[NAME]",
        about: "a NIC in memory, with its wire",
        other_end: OtherEnd::ThisProcess,
        memory: DriverMemory::Any,
        queues: DriverQueues::One,
        open: memory::open,
    },
];

impl Driver {
    /// The row for a name, and the part after the colon.
    pub fn find(name: &str) -> Result<(&'static Self, &str), Error> {
        let (scheme, argument) = name.split_once(':').unwrap_or((name, ""));
        match DRIVERS.iter().find(|driver| driver.scheme == scheme) {
            Some(driver) => Ok((driver, argument)),
            None => {
                let names: Vec<_> = DRIVERS.iter().map(|driver| format!("{driver:?}")).collect();
                Err(parameter("device", name, names.join(" or ")))
            }
        }
    }

    /// An argument without its options, which begin with a comma.
    pub fn without_options(argument: &str) -> &str {
        queues::without_options(argument)
    }
}

/// Opens the first queue of one device. See [`open_devices`].
///
/// ```
/// use pagepool::{Arena, ArenaParams};
/// use pagepool_net::{DRIVERS, OpenParams, open_device};
///
/// let arena = Arena::new(ArenaParams { max_bytes: 16 << 20, ..Default::default() })?;
/// let nic = open_device("memory:", &OpenParams::default(), &arena)?;
/// let (mut device, pool, mut wire) = (nic.device, nic.pool.bind(), nic.wire.expect("it has one"));
/// let mut packets = Vec::with_capacity(64);
/// device.receive(&pool, &mut packets, 64); // the first buffers
/// assert!(wire.deliver(&[7; 60]));
/// assert_eq!(device.receive(&pool, &mut packets, 64), 1);
///
/// let unknown = open_device("tun:tun0", &OpenParams::default(), &arena).map(drop).unwrap_err();
/// let names: Vec<_> = DRIVERS.iter().map(|driver| format!("{driver:?}")).collect();
/// assert_eq!(unknown.to_string(), format!("device is tun:tun0, but must be {}", names.join(" or ")));
/// # drop(packets);
/// # Ok::<(), pagepool::Error>(())
/// ```
pub fn open_device(name: &str, params: &OpenParams, arena: &Arc<Arena>) -> Result<OpenedDevice, Error> {
    let opened = open_devices(&[(name, &[0])], params, arena)?.into_iter().flatten().next();
    Ok(opened.unwrap_or_else(|| unreachable!("a row opens each queue that it is given")))
}

/// Opens queues of devices by name (see [`DRIVERS`]). Returns the queues of each name, in order, each with a
/// pool over the arena.
///
/// Each of them can send packets that another received: without a copy if they are of one kind, or reach the
/// memory.
///
/// `af_xdp:` requires an arena with `commit_all`, because the kernel registers the whole memory once:
///
/// ```no_run
/// // It needs root and an interface with two queues.
/// use pagepool::{Arena, ArenaParams};
/// use pagepool_net::{OpenParams, open_devices};
///
/// let arena = ArenaParams { max_bytes: 64 << 20, commit_all: true, ..Default::default() };
/// let arena = Arena::new(arena)?;
/// let opened = open_devices(&[("af_xdp:eth0", &[0, 1])], &OpenParams::default(), &arena)?;
/// # drop(opened);
/// # Ok::<(), pagepool::Error>(())
/// ```
///
/// `tap:` requires neither `commit_all` nor AF_XDP. It opens the TAP with this name. If there is none, it
/// creates one, sets it up, and deletes it with the device; the kernel then queues
/// [`rx_ring`](OpenParams::rx_ring) packets for it. A TAP made by `ip tuntap add` stays, and is not changed,
/// up or down.
///
/// `vhost_user:` requires an arena with `Backing::Memfd`, which the back end maps as a whole: it can read and
/// write all packets in this memory. It connects to the socket, or with `,server=1` creates it and listens;
/// then the back end may come later. The path has no comma.
///
/// ```no_run
/// // It needs a switch, such as OVS-DPDK, that listens at this socket.
/// use pagepool::{Arena, ArenaParams, Backing};
/// use pagepool_net::{OpenParams, open_devices};
///
/// let backing = Backing::Memfd { huge: false };
/// let arena = ArenaParams { max_bytes: 64 << 20, commit_all: true, backing, ..Default::default() };
/// let arena = Arena::new(arena)?;
/// let opened = open_devices(&[("vhost_user:/run/sw0.sock", &[0])], &OpenParams::default(), &arena)?;
/// # drop(opened);
/// # Ok::<(), pagepool::Error>(())
/// ```
///
/// `vhost_net:` requires `/dev/vhost-net`. It opens, creates and keeps a TAP like `tap:`, with a queue of it for
/// each of its queues: a TAP made before requires `multi_queue` for several. The kernel reads and writes the
/// packets' memory where it is.
///
/// Refuses a pool whose buffers the device cannot fill: for `af_xdp:`, if
/// [`XskDevice::check_pool`](crate::XskDevice::check_pool) fails.
///
/// Any thread, in the network namespace of the interfaces. AF_XDP takes milliseconds per queue. Several
/// threads may open devices over their own arenas at once; the kernel does that in parallel. If another
/// process still uses a queue, it waits up to [`busy_limit`](crate::AfXdpParams::busy_limit). An error leaves
/// no trace.
pub fn open_devices(
    devices: &[(&str, &[u32])],
    params: &OpenParams,
    arena: &Arc<Arena>,
) -> Result<Vec<Vec<OpenedDevice>>, Error> {
    let mut rows = Vec::with_capacity(devices.len());
    for &(name, numbers) in devices {
        let (driver, argument) = Driver::find(name)?;
        rows.push((driver.scheme, Queues { argument, numbers }));
    }
    let mut opened: Vec<_> = devices.iter().map(|_| Vec::new()).collect();
    for driver in DRIVERS {
        let of_driver = || rows.iter().enumerate().filter(|(_, (scheme, _))| *scheme == driver.scheme);
        let queues: Vec<_> = of_driver().map(|(_, (_, queues))| *queues).collect();
        if !queues.is_empty() {
            let devices = (driver.open)(&queues, params, arena)?;
            of_driver().zip(devices).for_each(|((at, _), devices)| opened[at] = devices);
        }
    }
    Ok(opened)
}
