//! Phase 3: the threads wait for packets. The XDP programs are attached, and pass all packets to the kernel.

use pagepool::{PoolRef, Publication};
use pagepool_link::Promiscuous;

use super::environment::Environment;
use super::flow_spread::FlowSpread;
use super::opened::Opened;
use super::planned::Planned;
use super::queue_threads::QueueThreads;
use super::warnings;
use crate::report::output;
use crate::sys::{self, CapabilitySet};
use crate::traffic::capture::{Capture, CaptureFile};
use crate::traffic::command::{TrafficCommand, TrafficPlan};
use crate::traffic::figures::QueueName;
use crate::traffic::run::kept_capabilities::RunNeeds;
use crate::traffic::run::offloads::OffloadsOff;
use crate::traffic::run::sent_by_links::SentByLinks;
use crate::traffic::sockets::{Interface, OpenedInterface, PortSide, TrafficSetup, with_sockets};

/// The fields are in the order in which they are undone.
pub struct Attached<'a, C: TrafficCommand> {
    pub threads: QueueThreads<C::Handler>,
    pub changes: Changes,
    pub capture: Option<Capture>,
    pub record: Record,
    pub plan: TrafficPlan<'a>,
    pub environment: Environment,
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

#[derive(Default)]
pub struct Record {
    pub interfaces: Vec<OpenedInterface>,
    /// The names of the ports, in the order of their samples.
    pub names: Vec<QueueName>,
    pub pools: Vec<PoolRef>,
    /// What the interfaces had counted before the run.
    pub counts: SentByLinks,
    /// Other processes see the pools until the verdict is printed.
    #[expect(dead_code, reason = "held")]
    pub published: Option<Publication>,
}

impl<'a, C: TrafficCommand> Attached<'a, C> {
    /// Starts the threads, which fill their rings. Attaches XDP programs, for which many cards restart.
    /// Prints warnings, and gives up capabilities, before the first packet is taken.
    pub fn attach(opened: Opened<'a, C>) -> Result<Self, String> {
        let Opened { setup, promiscuous, published, mut offloads, planned } = opened;
        let Planned { command, plan, mut environment, mut capture, sizes } = planned;
        let (mut interfaces, pools) = (setup.interfaces.clone(), setup.pools.clone());
        let names = names(&setup, &environment.interfaces);
        let kept = kept(&plan, &interfaces);
        let counts = SentByLinks::look(environment.links());
        let threads = QueueThreads::start(command, &environment, (setup, sizes), (kept, capture.as_mut()))?;
        threads.attach(&mut interfaces)?;
        environment.wait_for_links()?;
        match warnings::warn(&plan, &mut environment, &mut offloads, &interfaces) {
            Err(error) if plan.changes_settings() => return Err(error),
            // A warning that cannot be computed is no reason to end the run.
            warned => warned.unwrap_or_else(output::warn),
        }
        let spreading = if plan.rss() { with_sockets(&environment.interfaces) } else { Vec::new() };
        let spread = FlowSpread::over(&spreading)?;
        environment.wait_for_links()?; // some cards restart for that
        give_up_all_but(kept);
        let capture = capture.map(CaptureFile::start).transpose()?;
        let record = Record { interfaces, names, pools, counts, published };
        let changes = Changes { spread, promiscuous, offloads };
        Ok(Self { threads, changes, capture, record, plan, environment })
    }
}

/// The queues of the ports of all threads, in the order of their samples.
fn names(setup: &TrafficSetup, interfaces: &[Interface]) -> Vec<QueueName> {
    let name = |side: &PortSide| {
        let interface = interfaces.get(side.interface).map_or("", |interface| &interface.name);
        QueueName { interface: interface.to_owned(), queue: side.queue }
    };
    setup.threads.iter().flat_map(|(sides, _)| sides).map(name).collect()
}

/// The capabilities that the run keeps.
fn kept(plan: &TrafficPlan<'_>, opened: &[OpenedInterface]) -> CapabilitySet {
    let by_batch = opened.iter().any(OpenedInterface::sends_by_batch);
    RunNeeds::here(by_batch, plan.changes_settings(), plan.is_beside()).kept(sys::permitted_capabilities())
}

/// Makes this thread give up all other capabilities: everything is open and attached.
fn give_up_all_but(kept: CapabilitySet) {
    if let Err(error) = sys::keep_capabilities(kept) {
        output::warn(format_args!("the command cannot drop its capabilities, and keeps them: {error}"));
    }
}
