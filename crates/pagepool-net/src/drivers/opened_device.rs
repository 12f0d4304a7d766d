//! The result of opening a device by name.

use std::sync::Arc;

use pagepool::Pool;

use crate::device::Device;
use crate::mem_nic::NicPort;
use crate::xsk::{Attach, Redirect, RxMetadataReader, TxMode, XskDevice};

/// A device, the pool that it receives into, and the extras of its kind.
#[derive(Debug)]
pub struct OpenedDevice {
    /// One queue. Drop it before the pool.
    pub device: Box<dyn Device>,
    /// The pool that it receives into, mapped in the device's domain and named after the device. An AF_XDP
    /// socket already has buffers of it, unless it was opened with
    /// [`XdpProgram::Redirects`](crate::XdpProgram::Redirects).
    pub pool: Pool,
    /// The other end of an in-memory NIC's wire.
    pub wire: Option<NicPort>,
    /// How the kernel opened an AF_XDP socket.
    pub socket: Option<SocketInfo>,
    /// Redirects packets to an AF_XDP socket, or only keeps an XDP program attached; the device holds it,
    /// too. The last owner detaches the program, which makes many drivers reset all queues of the interface.
    /// If you call [`open_devices`](crate::open_devices) several times for an interface without redirects,
    /// only the devices of the first call have it: keep it until the last device is dropped.
    pub redirect: Option<Arc<Redirect>>,
    /// Reads what is known of a received packet: with
    /// [`OpenParams::offloads`](crate::OpenParams::offloads), and with a redirect that was
    /// [loaded with metadata](Redirect::load_with_metadata).
    pub metadata: Option<RxMetadataReader>,
}

/// How the kernel opened an AF_XDP socket: the choices that were left to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketInfo {
    /// Where the XDP program attached here runs: in the driver, or before the stack.
    pub attach: Option<Attach>,
    /// Why [`Attach::Auto`] chose generic.
    pub attach_reason: Option<String>,
    /// The id of the XDP program attached here, as `bpftool prog` shows it: the one that redirects, or with
    /// [`XdpProgram::None`](crate::XdpProgram::None) the one that passes all packets.
    pub program_id: Option<u32>,
    /// Whether the driver uses the UMEM directly.
    pub zero_copy: bool,
    /// How packets are sent.
    pub tx_mode: TxMode,
    /// Why [`TxMode::Auto`] chose the ring.
    pub tx_mode_reason: Option<String>,
    /// The NAPI id of the driver's queue for busy polling, if the kernel knows it yet.
    pub napi_id: Option<u32>,
}

impl From<&XskDevice> for SocketInfo {
    fn from(device: &XskDevice) -> Self {
        let redirect = device.redirect();
        let (attach, attach_reason) = redirect.and_then(|redirect| redirect.mode()).unzip();
        let (tx_mode, tx_mode_reason) = device.tx_mode();
        Self {
            attach,
            attach_reason: attach_reason.flatten(),
            program_id: redirect.and_then(|redirect| redirect.program_id()),
            zero_copy: device.is_zero_copy(),
            tx_mode,
            tx_mode_reason,
            napi_id: device.napi_id(),
        }
    }
}
