//! Phase 3: the threads wait for packets. The XDP programs are attached, and pass all packets to the kernel.

use std::time::Instant;

use pagepool::{PoolRef, Publication};
use pagepool_net::link::Promiscuous;

use super::flow_spread::FlowSpread;
use super::queue_threads::QueueThreads;
use super::running::Running;
use super::site::Site;
use crate::engine::sent_by_links::SentByLinks;
use crate::queues::queue_name::QueueName;
use crate::traffic::capture::Capture;
use crate::traffic::command::{TrafficCommand, TrafficPlan};
use crate::traffic::offloads::OffloadsOff;
use crate::traffic::setup::OpenedInterface;

/// The fields are in the order in which they are undone.
pub struct Attached<'a, C: TrafficCommand> {
    pub threads: QueueThreads<C::Handler>,
    pub changes: Changes,
    pub capture: Option<Capture>,
    pub record: Record,
    pub plan: TrafficPlan<'a>,
    pub site: Site,
}

/// The run's changes to its interfaces. Dropping it restores them. Offloads come last: on some links the
/// kernel allows segmentation offloads only when no XDP program is attached.
pub struct Changes {
    #[expect(dead_code, reason = "held")]
    pub spread: FlowSpread,
    #[expect(dead_code, reason = "held")]
    pub promiscuous: Vec<Promiscuous>,
    pub offloads: OffloadsOff,
}

pub struct Record {
    pub interfaces: Vec<OpenedInterface>,
    /// The names of the ports, in the order of their samples.
    pub names: Vec<QueueName>,
    pub pools: Vec<PoolRef>,
    /// What the interfaces had counted before the run.
    pub counts: SentByLinks,
    pub published: Option<Publication>,
}

impl<'a, C: TrafficCommand> Attached<'a, C> {
    /// Redirects the packets of all interfaces at once.
    pub fn start(self) -> Result<Running<'a, C>, String> {
        let (warm, start) = (self.threads.sample(), Instant::now());
        self.threads.redirect()?;
        Ok(Running { attached: self, warm, start })
    }
}
