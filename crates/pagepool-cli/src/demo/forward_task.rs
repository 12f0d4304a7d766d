//! The forwarding thread: owns both pools, drives both NICs, and does the demonstration's action with each
//! packet.

use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use pagepool::{PoolRef, Tag, XdpBuff};
use pagepool_net::{Action, Ingress, OpenedDevice, PacketHandler, PortId, Stack, swap_macs};
use rtrb::{Producer, PushError};

use super::plan::DemoAction;
use crate::traffic::SharedState;
use crate::traffic::poll_loop::{Drain, NoSource, PollLoop, PollPort, PortHandler, wait_for_warm_up};

/// The longest sleep: short compared with the round trip of a TCP packet that waits for room on a transmit
/// ring.
const NAP: Duration = Duration::from_millis(2);

pub struct ForwardTask {
    pub queues: [OpenedDevice; 2],
    /// Pages that each pool takes from the arena before the first packet.
    pub pages: [usize; 2],
    /// The most packets taken from a NIC at once.
    pub burst: usize,
    pub action: DemoAction,
    /// The queue to the thread that packets are passed to, if they are.
    pub consumer: Option<Producer<XdpBuff>>,
    /// The CPUs that it may run on; empty: any.
    pub cpus: Vec<usize>,
}

impl ForwardTask {
    /// The pools, for the verdict at the end.
    pub fn pools(&self) -> [PoolRef; 2] {
        self.queues.each_ref().map(|queue| queue.pool.handle())
    }

    /// Starts the thread, in the network namespace of the caller, and waits for the end of its warm-up.
    pub fn start(self, state: Arc<SharedState>) -> Result<JoinHandle<DemoHandler>, String> {
        let Self { queues, pages, burst, action, consumer, cpus } = self;
        let records_holders = queues.iter().any(|queue| queue.pool.handle().records_holders());
        let port = |(OpenedDevice { device, pool, .. }, pages)| PollPort { pool, pages, device };
        let polling = PollLoop {
            thread: 0,
            ports: queues.into_iter().zip(pages).map(port).collect(),
            handler: DemoHandler(action),
            stack: pass_to(consumer, records_holders),
            source: NoSource,
            burst,
            cpus,
            spin: false,
            nap: NAP,
            rx_nap: Duration::ZERO,
            measure: false,
            drain: Drain::Everything,
            kept: None, // its namespaces are removed at the end
        };
        let (warm, warmed) = mpsc::channel();
        let thread = polling.start("forward".into(), state, warm)?;
        wait_for_warm_up(&warmed, 1)?;
        Ok(thread)
    }
}

/// Passes packets to the consumer, if there is one.
fn pass_to(mut consumer: Option<Producer<XdpBuff>>, records_holders: bool) -> impl Stack + Send + 'static {
    let tag = records_holders.then(|| Tag::new("passed to the consumer"));
    move |mut packet: XdpBuff, _: Ingress| match &mut consumer {
        Some(queue) => {
            tag.into_iter().for_each(|tag| packet.set_tag(tag));
            queue.push(packet).map_err(|PushError::Full(packet)| packet)
        }
        None => Err(packet),
    }
}

pub struct DemoHandler(DemoAction);

impl PacketHandler for DemoHandler {
    #[inline]
    fn handle(&mut self, packet: &mut XdpBuff, at: Ingress) -> Action {
        match self.0 {
            DemoAction::Drop => Action::Drop,
            DemoAction::Echo => {
                swap_macs(packet.data_mut());
                Action::Tx
            }
            DemoAction::Forward => Action::Redirect(PortId(1 - at.port.0)),
            DemoAction::Pass => Action::Pass,
        }
    }
}

impl PortHandler for DemoHandler {}
