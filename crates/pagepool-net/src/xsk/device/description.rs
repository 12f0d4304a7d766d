//! The description of a socket for observers.

use crate::device::DeviceDescription;
use crate::interface::lookup;
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

/// Parameters of a socket for observers.
#[derive(Debug)]
pub(super) struct SocketFacts {
    interface: String,
    mtu: u32,
    chunk: u32,
    rings: [u32; 2],
    is_busy_polled: bool,
    /// Where another owner's XDP program runs, if the socket is in its map.
    theirs: Option<Attach>,
}

impl SocketFacts {
    pub(super) fn new(params: &XskParams, mtu: u32, chunk: u32) -> Self {
        Self {
            interface: params.interface.clone(),
            mtu,
            chunk,
            rings: [params.rx_ring, params.tx_ring],
            is_busy_polled: params.busy_poll.is_some(),
            theirs: None,
        }
    }

    /// Notes that the socket is in the map of another owner's program on this interface.
    pub(super) fn is_in_map_of_program_on(&mut self, index: u32) {
        self.theirs = lookup::xdp_mode_on(index).map(Attach::of);
    }

    pub(super) fn describe(
        &self,
        queue: Queue,
        zero_copy: bool,
        tx_mode: TxMode,
        attach: Option<(Attach, Option<String>)>,
    ) -> DeviceDescription {
        let (attach, why) = attach.unzip();
        let attach = attach.or(self.theirs);
        let [rx_ring, tx_ring] = self.rings;
        let tx_mode = if tx_mode == TxMode::BpfBatch { "bpf-batch" } else { "ring" };
        let mut params = vec![
            ("mode", Attach::mode_name(attach, zero_copy)),
            ("rx_ring", rx_ring.to_string()),
            ("tx_ring", tx_ring.to_string()),
            ("chunk", self.chunk.to_string()),
            ("mtu", self.mtu.to_string()),
            ("zero_copy", zero_copy.to_string()),
            ("tx_mode", tx_mode.to_owned()),
        ];
        params.extend(self.is_busy_polled.then(|| ("busy_poll", "true".to_owned())));
        params.extend(attach.map(|attach| ("attach", attach.name().to_owned())));
        params.extend(why.flatten().map(|why| ("attach_reason", why)));
        let ifindex = Some(queue.index).filter(|&index| index != 0); // 0: rings without a kernel
        let kind = if ifindex.is_some() { "socket" } else { "nic" };
        DeviceDescription { kind, interface: self.interface.clone(), queue: queue.number, ifindex, params }
    }
}
