//! How to open devices by name.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use pagepool::PoolParams;

use crate::mem_nic::device_memory::DeviceMemory;
use crate::steering::Match;
use crate::xsk::{Attach, BusyPoll, Redirect, TxMode, UmemParams, XskParams};

/// How to open devices. What every kind has comes first, then what only one kind has.
#[derive(Clone, Debug)]
pub struct OpenParams {
    /// Slots of the receive ring: a power of two.
    pub rx_ring: u32,
    /// Slots of the transmit ring: a power of two.
    pub tx_ring: u32,
    /// Whether packets may have several buffers.
    pub multi_buffer: bool,
    /// The pool of each device. The device decides its name, adds its domain, and raises the headroom to the
    /// least that it requires.
    pub pool: PoolParams,
    /// For AF_XDP sockets.
    pub af_xdp: AfXdpParams,
    /// For NICs in memory.
    pub memory: MemoryParams,
}

impl Default for OpenParams {
    fn default() -> Self {
        Self {
            rx_ring: 1024,
            tx_ring: 1024,
            multi_buffer: false,
            pool: PoolParams { wakeup: true, ..PoolParams::default() },
            af_xdp: AfXdpParams::default(),
            memory: MemoryParams::default(),
        }
    }
}

/// How to open AF_XDP sockets.
#[derive(Clone, Debug)]
pub struct AfXdpParams {
    /// The UMEM that all sockets opened together share. It is `multi_buffer` if [`OpenParams`] says so.
    pub umem: UmemParams,
    /// The XDP program that redirects packets to the sockets.
    pub program: XdpProgram,
    /// The packets that go to the sockets, with [`XdpProgram::Attach`]; the rest goes to the stack. `None`:
    /// all packets. With redirects of the caller's own, see [`Redirect::steer`].
    pub steer: Option<Match>,
    /// How packets are sent in copy mode.
    pub tx_mode: TxMode,
    /// Busy-poll the driver.
    pub busy_poll: Option<BusyPoll>,
    /// How long to retry while a queue is busy.
    pub busy_limit: Duration,
    /// Retry no longer once this is true, as after Ctrl-C.
    pub give_up: Option<Arc<AtomicBool>>,
}

impl Default for AfXdpParams {
    fn default() -> Self {
        let XskParams { tx_mode, busy_poll, busy_limit, .. } = XskParams::default();
        let (umem, program) = (UmemParams::default(), XdpProgram::default());
        Self { umem, program, steer: None, tx_mode, busy_poll, busy_limit, give_up: None }
    }
}

/// The XDP program that redirects an interface's packets to its sockets.
#[derive(Clone, Debug)]
pub enum XdpProgram {
    /// Attach one to each interface, last: when all sockets are open and have buffers.
    Attach(Attach),
    /// Use these, one for each interface, in their order: the maps of programs that are attached already, or
    /// what [`Redirect::load`] gave. The caller calls [`receive`](crate::Device::receive) once for each
    /// device, which gives it its buffers, and then starts those by [`Redirect::start_all`]. Not before are
    /// sockets in the map of another program, or of one in a [chain](Redirect::load_beside). Where one of
    /// `load` has started already, its devices get their buffers here, and then packets at once.
    Redirects(Vec<Arc<Redirect>>),
    /// None: the sockets only send. With zero copy one is attached that passes all packets to the stack, if
    /// there is none, because most drivers send nothing without.
    None,
}

impl Default for XdpProgram {
    fn default() -> Self {
        Self::Attach(Attach::Auto)
    }
}

/// How to open NICs in memory.
#[derive(Clone, Debug, Default)]
pub struct MemoryParams {
    /// The address space that the NIC sees; `None` gives each NIC a [`NicDomain`](crate::NicDomain).
    pub domain: Option<Arc<dyn DeviceMemory>>,
}
