//! The description of a socket for observers.

use crate::device::DeviceDescription;
use crate::xsk::bpf::redirect::Attach;
use crate::xsk::params::{TxMode, XskParams};
use crate::xsk::queue::Queue;

impl Attach {
    /// Where an attached program runs: `native` or `generic`.
    pub fn name(self) -> &'static str {
        if self == Self::Generic { "generic" } else { "native" }
    }

    /// Where the XDP program of a socket runs, if any, and whether packets are copied, such as
    /// `af_xdp_native_copy`.
    pub fn mode_name(attach: Option<Self>, zero_copy: bool) -> String {
        let place = attach.map_or(String::new(), |attach| format!("{}_", attach.name()));
        format!("af_xdp_{place}{}", if zero_copy { "zerocopy" } else { "copy" })
    }
}

/// What does not change about a socket.
pub(super) fn fixed(
    params: &XskParams,
    queue: Queue,
    mtu: u32,
    chunk: u32,
    zero_copy: bool,
) -> DeviceDescription {
    let mut about = vec![
        ("rx_ring", params.rx_ring.to_string()),
        ("tx_ring", params.tx_ring.to_string()),
        ("chunk", chunk.to_string()),
        ("mtu", mtu.to_string()),
        ("zero_copy", zero_copy.to_string()),
    ];
    about.extend(params.busy_poll.map(|_| ("busy_poll", "true".to_owned())));
    let ifindex = Some(queue.index).filter(|&index| index != 0); // 0: rings without a kernel
    let kind = if ifindex.is_some() { "socket" } else { "nic" };
    let interface = params.interface.clone();
    DeviceDescription { kind, interface, queue: queue.number, ifindex, params: about }
}

/// Adds where the XDP program runs, and why not in the driver, and how the socket sends.
pub(super) fn now(
    mut of: DeviceDescription,
    zero_copy: bool,
    tx_mode: TxMode,
    (attach, why): (Option<Attach>, Option<String>),
) -> DeviceDescription {
    let tx_mode = if tx_mode == TxMode::BpfBatch { "bpf-batch" } else { "ring" };
    of.params.insert(0, ("mode", Attach::mode_name(attach, zero_copy)));
    of.params.push(("tx_mode", tx_mode.to_owned()));
    of.params.extend(attach.map(|attach| ("attach", attach.name().to_owned())));
    of.params.extend(why.map(|why| ("attach_reason", why)));
    of
}
