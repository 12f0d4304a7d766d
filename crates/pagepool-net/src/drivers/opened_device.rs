//! What opening a device by name gives.

use std::sync::Arc;

use pagepool::Pool;

use crate::device::{Device, FarEnd};
use crate::xsk::{Attach, Redirect, TxMode, XskDevice};

/// A device, the pool that it receives into, and what only its kind has.
#[derive(Debug)]
pub struct OpenedDevice {
    /// One queue. Drop it before the pool.
    pub device: Box<dyn Device>,
    /// The pool that it receives into, mapped in the device's domain and named after the device. An AF_XDP
    /// socket has buffers of it already, unless it was opened with
    /// [`XdpProgram::Redirects`](crate::XdpProgram::Redirects).
    pub pool: Pool,
    /// The other end of its wire, of a device with the wire in this process: the
    /// [`NicPort`](crate::NicPort) of a NIC in memory.
    pub wire: Option<Box<dyn FarEnd + Send>>,
    /// How the kernel opened an AF_XDP socket.
    pub socket: Option<SocketInfo>,
    /// What redirects packets to an AF_XDP socket, or only has an XDP program attached; the device has it,
    /// too. The program is detached with the last owner, at which many drivers reset all queues of the
    /// interface. With several calls of [`open_devices`](crate::open_devices) for an interface without
    /// redirects, only the devices of the first have it: keep it until the last device is dropped.
    pub redirect: Option<Arc<Redirect>>,
}

/// How the kernel opened an AF_XDP socket, as far as that was left to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketInfo {
    /// Where the XDP program that was attached here runs: in the driver, or before the stack.
    pub attach: Option<Attach>,
    /// Why [`Attach::Auto`] chose generic.
    pub attach_reason: Option<String>,
    /// The XDP program that was attached here, as `bpftool prog` shows it: the one that redirects, or with
    /// [`XdpProgram::None`](crate::XdpProgram::None) the one that passes all packets.
    pub program_id: Option<u32>,
    /// Whether the driver works on the UMEM itself.
    pub zero_copy: bool,
    /// How packets are sent.
    pub tx_mode: TxMode,
    /// Why [`TxMode::Auto`] chose the ring.
    pub tx_mode_reason: Option<String>,
    /// The driver's queue that busy polling polls, if the kernel knows it yet.
    pub napi_id: Option<u32>,
}

impl From<&XskDevice> for SocketInfo {
    fn from(device: &XskDevice) -> Self {
        let redirect = device.redirect();
        let (attach, attach_reason) = redirect.and_then(|redirect| redirect.mode()).unzip();
        let (tx_mode, tx_mode_reason) = device.tx_mode();
        Self {
            attach,
            attach_reason: attach_reason.flatten().map(str::to_owned),
            program_id: redirect.and_then(|redirect| redirect.program_id()),
            zero_copy: device.is_zero_copy(),
            tx_mode,
            tx_mode_reason,
            napi_id: device.napi_id(),
        }
    }
}
