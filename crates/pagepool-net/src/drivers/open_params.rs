//! Parameters for opening devices by name.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use pagepool::PoolParams;
use pagepool_link::Tap;

use crate::steering::Match;
use crate::xsk::{Attach, BusyPoll, Redirect, TxMode, UmemParams, XskParams};

/// Parameters for opening devices: first those of every kind, then those of one kind.
#[derive(Clone, Debug)]
pub struct OpenParams {
    /// Slots of the receive ring: a power of two.
    pub rx_ring: u32,
    /// Slots of the transmit ring: a power of two.
    pub tx_ring: u32,
    /// Whether packets may have several buffers.
    pub multi_buffer: bool,
    /// Only for `vhost_user:` and `vhost_net:`; others ignore it. Whether the other side computes the
    /// checksums of sent packets, and cuts them into segments, as their [`TxMetadata`](crate::TxMetadata)
    /// requests; and whether received packets may be unfinished likewise, as
    /// [`OpenedDevice::metadata`](crate::OpenedDevice::metadata) reads it.
    ///
    /// A back end that offers less is an error. Packets have up to 65,550 bytes in up to 18 buffers, whatever
    /// `multi_buffer` says. In pages of 2048 bytes there is less room: the other packets are dropped and
    /// counted. All are sent by the slower path of frames. If you send a received packet on, request what its
    /// metadata says (`TxMetadata::from`): else it leaves unfinished, or longer than the other side takes.
    pub offloads: bool,
    /// The pool of each device. The device sets its name, adds its domain, and raises the headroom to its
    /// minimum.
    pub pool: PoolParams,
    /// Only for AF_XDP sockets.
    pub af_xdp: AfXdpParams,
    /// Open TAPs, for the devices of their names; others are opened. For `vhost_net:` all queues of a TAP, from
    /// [`Tap::open_with_header`].
    pub taps: Vec<Arc<Tap>>,
}

impl Default for OpenParams {
    fn default() -> Self {
        Self {
            rx_ring: 1024,
            tx_ring: 1024,
            multi_buffer: false,
            offloads: false,
            pool: PoolParams { wakeup: true, ..PoolParams::default() },
            af_xdp: AfXdpParams::default(),
            taps: Vec::new(),
        }
    }
}

/// Parameters for opening AF_XDP sockets.
#[derive(Clone, Debug)]
pub struct AfXdpParams {
    /// The UMEM that all sockets opened together share. [`OpenParams::multi_buffer`] replaces its
    /// `multi_buffer`.
    pub umem: UmemParams,
    /// The XDP program that redirects packets to the sockets.
    pub program: XdpProgram,
    /// The packets that go to the sockets, with [`XdpProgram::Attach`]; the rest goes to the stack. `None`:
    /// all packets. For your own redirects, see [`Redirect::steer`].
    pub steer: Option<Match>,
    /// How packets are sent in copy mode.
    pub tx_mode: TxMode,
    /// Busy polling of the driver.
    pub busy_poll: Option<BusyPoll>,
    /// How long to retry while a queue is busy.
    pub busy_limit: Duration,
    /// Stop retrying once this is true: after Ctrl-C, for example.
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
    /// Attach one to each interface, after all sockets are open and have buffers.
    Attach(Attach),
    /// Use these, one for each interface, in order: maps of attached programs, or results of
    /// [`Redirect::load`]. The caller calls [`receive`](crate::Device::receive) once for each device, which
    /// gives it its buffers, then [`Redirect::start_all`]. Only then do sockets enter the map of another
    /// program, or of one in a [chain](Redirect::load_beside). If a redirect of `load` has started already,
    /// its devices get their buffers here, and then packets at once.
    Redirects(Vec<Arc<Redirect>>),
    /// None: the sockets only send. With zero copy, an interface without an XDP program gets one that passes
    /// all packets to the stack: most drivers send nothing without.
    None,
}

impl Default for XdpProgram {
    fn default() -> Self {
        Self::Attach(Attach::Auto)
    }
}
