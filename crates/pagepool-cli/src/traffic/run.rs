//! Runs a command on interfaces.

mod flow_rules;
mod flow_spread;
mod handover;
mod predecessor;
mod rights;
mod warnings;

use std::process::ExitCode;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use pagepool_lab::Tally;
use pagepool_net::link::{LinkInfo, Promiscuous};
use pagepool_net::{NoStack, Redirect};

use self::flow_rules::FlowRules;
use self::flow_spread::FlowSpread;
use self::handover::Handover;
use self::predecessor::Predecessor;
use self::warnings::Warnings;
use super::capture::{Capture, CaptureFile, Tapped};
use super::command::{PortSide, ThreadContext, TrafficCommand, TrafficPlan};
use super::interface::{Interface, Kernel, pairs_of};
use super::live_figures::LiveFigures;
use super::offloads::OffloadsOff;
use super::options::{Mode, TrafficOptions};
use super::queue_progress::QueueProgress;
use super::service_status::ServiceStatus;
use super::setup::{OpenedInterface, SetupParams, TrafficSetup};
use super::summary::TrafficResult;
use crate::engine::interrupt::{RunSignals, listen};
use crate::engine::link_watch::{LinkWatch, SeenChanges};
use crate::engine::memory_node;
use crate::engine::poll_loop::{Drain, PollLoop, PortHandler, wait_for_warm_up};
use crate::engine::privileges::Needs;
use crate::engine::run_state::{Phase, RunEnd, RunState, Sample};
use crate::engine::sent_by_links::SentByLinks;
use crate::engine::socket_sizes::{SocketNeeds, SocketSizes};
use crate::engine::watch::Watch;
use crate::queues::queue_name::QueueName;
use crate::report::error::error_chain;
use crate::report::output;
use crate::run_command::RunCommand;
use crate::sys::{self, CapabilitySet};

/// The time between two looks how many queues are closed: short, for the end waits for the last look.
const CLOSING_LOOK: Duration = Duration::from_millis(2);
/// Seconds between two prints of figures.
const STATS_EVERY: u64 = 1;
/// The longest sleep of a thread. Whatever comes ends it, and so does every change of the run.
const NAP: Duration = Duration::from_secs(1);

/// Every command on interfaces runs, and prints the verdict, in the same way.
impl<C: TrafficCommand> RunCommand for C {
    fn run(&self) -> Result<ExitCode, String> {
        let plan = self.plan();
        let mut site = Site::look_up(self, &plan)?;
        let sizes = sizes(self, &plan, &site)?;
        rights::check(&plan, &site.interfaces, &sizes)?;
        let mut file = plan.options.pcap.as_deref().map(CaptureFile::open).transpose()?;
        let receiving = if plan.attach.is_some() { &*site.interfaces } else { &[] };
        let mut offloads = OffloadsOff::new(plan.fix_offloads, &mut site.kernel, receiving)?;
        let _published = plan.options.publish.publish(plan.name);
        let opened = open(&plan, &site, sizes).or_else(|error| site.go_on().and(Err(error)))?;
        let Opened { setup, handover, _held } = opened;
        site.wait_for_links()?;
        let (mut interfaces, pools) = (setup.interfaces.clone(), setup.pools.clone());
        let names = names(&setup, &site.interfaces);
        let kept = kept(&plan, &interfaces);
        let counts = SentByLinks::look(links_of(&site.interfaces).into_iter());
        let threads = start(self, &site, setup, (kept, file.as_mut()))?;
        threads.attach(&mut interfaces)?;
        site.wait_for_links()?;
        // Nobody polls for packets until they are redirected. So nothing waits for the end of the other run
        // here but what this one sets, because that one puts back what it had set.
        if plan.sets() {
            site.predecessor.iter().for_each(|run| run.wait(&site.signals.end));
            site.warnings(&plan, &mut offloads, &interfaces).give()?;
            site.go_on()?;
        }
        let spread = FlowSpread::over(if plan.rss { &site.interfaces } else { &[] })?;
        let mut rules = FlowRules::add(&plan, &site.interfaces)?;
        site.wait_for_links()?; // some cards restart for rules
        give_up_all_but(kept);
        let capture = file.map(CaptureFile::start).transpose()?;
        let begin = Begin::now(&threads.state);
        threads.redirect()?;
        let service = ServiceStatus::ready(&plan, &begin.warm);
        let handed = handover.map(Handover::end);
        let mut warnings = site.warnings(&plan, &mut offloads, &interfaces);
        warnings.due = !plan.sets();
        warnings.look(Duration::ZERO);
        let mut figures = LiveFigures::begin(&plan, &interfaces, begin.warm.clone(), names.clone());
        let watched = watch(&plan, (warnings, service, &mut rules), &threads, &mut figures, begin)?;
        let Watched { warm, seconds, end, links } = watched;
        let (now, tally) = threads.finish(plan.expected_frames)?;
        let warned = [offloads.warned(&mut site.kernel), std::mem::take(&mut rules.warned)].concat();
        drop((rules, spread, offloads));
        let (command, capture) = (plan.name, capture.map(Capture::finish).transpose()?);
        let result = TrafficResult {
            command,
            interfaces,
            names,
            warned,
            seconds,
            end,
            links,
            handed,
            warm,
            now,
            tally,
            capture,
            limit: plan.options.limit,
            counts,
        };
        let (seconds, verdict) = (Duration::from_secs_f64(seconds), result.verdict(&pools));
        Ok(figures.end(seconds, result.now, &verdict))
    }
}

/// Where a command runs, which is known before anything is opened.
struct Site {
    kernel: Kernel,
    interfaces: Vec<Interface>,
    /// The CPUs for the threads, if any were named.
    cpus: Vec<usize>,
    /// The run that this one takes over from.
    predecessor: Option<Predecessor>,
    signals: RunSignals,
}

impl Site {
    fn look_up<C: TrafficCommand>(command: &C, plan: &TrafficPlan<'_>) -> Result<Self, String> {
        let mut kernel = Kernel::open()?;
        let interfaces = look_up(command, plan, &mut kernel)?;
        let cpus = cpus(plan.options)?;
        let predecessor = plan.predecessor.map(Predecessor::find).transpose()?;
        Ok(Self { kernel, interfaces, cpus, predecessor, signals: listen()? })
    }

    /// Waits until all interfaces have a link again.
    fn wait_for_links(&mut self) -> Result<(), String> {
        self.kernel.wait_for_links(&self.interfaces, &self.signals.end);
        self.go_on()
    }

    /// What is warned of when XDP programs are attached.
    fn warnings<'a>(
        &'a mut self,
        plan: &'a TrafficPlan<'a>,
        offloads: &'a mut OffloadsOff,
        opened: &'a [OpenedInterface],
    ) -> Warnings<'a> {
        let Self { kernel, interfaces, predecessor, signals, .. } = self;
        let predecessor = predecessor.as_ref();
        Warnings { plan, kernel, interfaces, opened, offloads, predecessor, signals, due: true }
    }

    /// An error if the user wants an end while everything is opened, which may take seconds.
    fn go_on(&self) -> Result<(), String> {
        match self.signals.interrupted() {
            false => Ok(()),
            true => Err("interrupted before any packet was taken or sent".into()),
        }
    }
}

/// When packets begin to be redirected. What follows may wait for the end of another run, and they flow
/// meanwhile.
struct Begin {
    warm: Sample,
    at: Instant,
}

impl Begin {
    fn now(state: &RunState) -> Self {
        Self { warm: state.sample(), at: Instant::now() }
    }
}

/// What was seen of a run, from its first packet to its end.
struct Watched {
    /// What there was before the first packet.
    warm: Sample,
    seconds: f64,
    end: RunEnd,
    links: SeenChanges,
}

/// Shows what threads do, until something ends the run.
fn watch<H: PortHandler>(
    plan: &TrafficPlan<'_>,
    (mut warnings, mut service, rules): (Warnings<'_>, ServiceStatus, &mut FlowRules),
    threads: &QueueThreads<H>,
    figures: &mut LiveFigures,
    Begin { warm, at: start }: Begin,
) -> Result<Watched, String> {
    let options = plan.options;
    let watch = Watch {
        start,
        limit: options.seconds.map(Duration::from_secs),
        every: options.figures.every(STATS_EVERY),
        signals: warnings.signals,
    };
    let show = |at, why| figures.show(why, at, threads.state.sample());
    let interfaces = links_of(warnings.interfaces);
    let mut links = LinkWatch::new(interfaces, &threads.redirects, plan.tx_mode.is_some())?;
    let look = |at| {
        service.look(at, &threads.state);
        links.look(at, &threads.state);
        rules.look(at);
        warnings.look(at);
    };
    let end = watch.run(&threads.state, || false, show, look);
    let links = links.changes(&threads.state);
    service.stopping();
    let ended = start.elapsed();
    warnings.end(ended);
    Ok(Watched { warm, seconds: ended.as_secs_f64(), end, links })
}

/// The capabilities that running takes.
fn kept(plan: &TrafficPlan<'_>, opened: &[OpenedInterface]) -> CapabilitySet {
    let by_batch = opened.iter().any(OpenedInterface::sends_by_batch);
    Needs::here(by_batch, plan.sets(), plan.beside.is_some()).kept(sys::permitted_capabilities())
}

/// Has this thread give up all other capabilities: everything is open and attached.
fn give_up_all_but(kept: CapabilitySet) {
    if let Err(error) = sys::keep_capabilities(kept) {
        output::warn(format_args!("the command keeps its capabilities while it runs: {error}"));
    }
}

fn links_of(interfaces: &[Interface]) -> Vec<&LinkInfo> {
    interfaces.iter().map(|interface| &interface.link).collect()
}

/// Which queue each port of all threads is, in the order of their samples.
fn names(setup: &TrafficSetup, interfaces: &[Interface]) -> Vec<QueueName> {
    let name = |side: &PortSide| {
        let interface = interfaces.get(side.interface).map_or("", |interface| &interface.link.name);
        QueueName { interface: interface.to_owned(), queue: side.queue }
    };
    setup.sides().map(name).collect()
}

/// The interfaces, or an error if somebody depends on one.
fn look_up<C: TrafficCommand>(
    command: &C,
    plan: &TrafficPlan<'_>,
    kernel: &mut Kernel,
) -> Result<Vec<Interface>, String> {
    let options = plan.options;
    let names = plan.interfaces.iter();
    let interfaces: Vec<_> =
        names.map(|name| kernel.interface(name, options.queues.as_ref())).collect::<Result<_, _>>()?;
    let maps = plan.maps.len();
    if maps != 0 && maps != interfaces.len() {
        return Err(format!(
            "--map is given {maps} times, but must be once for each interface, in their order"
        ));
    }
    command.check(&interfaces)?;
    FlowSpread::check(if plan.rss { &interfaces } else { &[] }, plan.predecessor)?;
    FlowRules::check(plan, &interfaces)?;
    interfaces.iter().try_for_each(|interface| kernel.spare(interface, &plan.effect(), options.yes))?;
    Ok(interfaces)
}

/// Has the interfaces take packets for every MAC address, if they shall, as long as the values live.
fn promiscuous(plan: &TrafficPlan<'_>, interfaces: &[Interface]) -> Result<Vec<Promiscuous>, String> {
    let all = if plan.promiscuous { interfaces } else { &[] };
    let held = all.iter().map(|interface| Promiscuous::hold(&interface.link)).collect::<Result<_, _>>();
    held.map_err(|error| error_chain(&error))
}

/// The CPUs for the threads, if any were named, all of which may be used.
fn cpus(options: &TrafficOptions) -> Result<Vec<usize>, String> {
    let Some(cpus) = &options.cpus else { return Ok(Vec::new()) };
    let allowed = sys::allowed_cpus();
    let cpus: Vec<usize> = cpus.0.iter().map(|&cpu| cpu as usize).collect();
    match cpus.iter().find(|cpu| !allowed.contains(cpu)) {
        None => Ok(cpus),
        Some(cpu) => {
            let there: Vec<_> = allowed.iter().map(usize::to_string).collect();
            Err(format!("CPU {cpu} is not available to this process; these are: {}", there.join(", ")))
        }
    }
}

/// How large everything is.
fn sizes<C: TrafficCommand>(command: &C, plan: &TrafficPlan<'_>, site: &Site) -> Result<SocketSizes, String> {
    let (options, interfaces) = (plan.options, &*site.interfaces);
    SocketSizes::new(SocketNeeds {
        mtu: command.mtu(interfaces),
        chunk: options.chunk()?,
        unaligned: options.unaligned,
        ring: options.ring,
        bursts: 2,
        queues: interfaces.iter().map(|interface| interface.queues.len()).max().unwrap_or(0),
        hardware_ring: match options.mode {
            Mode::Copy => 0,
            _ => interfaces.iter().map(|interface| interface.hardware_ring).max().unwrap_or(0),
        },
        mode: options.mode(),
        hugepages: options.hugepages,
        node: memory_node::home(interfaces.iter().map(|interface| &*interface.link.name), &site.cpus),
        holders: options.publish.holders(),
    })
}

/// What there is when all queues are this run's.
struct Opened {
    setup: TrafficSetup,
    handover: Option<Handover>,
    _held: Vec<Promiscuous>,
}

fn open(plan: &TrafficPlan<'_>, site: &Site, sizes: SocketSizes) -> Result<Opened, String> {
    let (options, interfaces) = (plan.options, &*site.interfaces);
    let TrafficPlan { attach, maps, pin, beside, tx_mode, .. } = *plan;
    let threads = options.threads.map(usize::from);
    let pairs = pairs_of(interfaces);
    if let Some(threads) = threads.filter(|&threads| threads > pairs) {
        return Err(format!(
            "--threads is {threads}, but must be at most {pairs}: a thread has a queue, or a pair"
        ));
    }
    let (steer, busy_poll, interrupted) = (plan.steer, options.busy_poll(), Some(&site.signals.end));
    let params =
        SetupParams { sizes, attach, maps, pin, beside, steer, tx_mode, busy_poll, interrupted, threads };
    let (mut handover, mut held) = (None, Vec::new());
    let setup = TrafficSetup::open(plan.name, interfaces, params, |redirects| {
        held = promiscuous(plan, interfaces)?; // before the other run gives it up
        let begin = |run| Handover::begin(run, plan, interfaces, redirects, &site.signals.end);
        handover = site.predecessor.as_ref().map(begin).transpose()?;
        Ok(())
    })?;
    Ok(Opened { setup, handover, _held: held })
}

/// Threads at work. Whatever ends a run early drops them, which stops them as at its end.
struct QueueThreads<H: PortHandler> {
    state: Arc<RunState>,
    /// Each with the number of its queues, or pairs of them.
    threads: Vec<(usize, JoinHandle<Tapped<H>>)>,
    closing: QueueProgress,
    /// What redirects packets to them.
    redirects: Vec<Arc<Redirect>>,
    /// XDP programs that stay attached until all threads have ended: to detach one resets other queues, too.
    #[expect(dead_code, reason = "held")]
    attached: Vec<Arc<Redirect>>,
}

/// Starts all threads, and waits until their pools and rings are filled.
fn start<C: TrafficCommand>(
    command: &C,
    Site { interfaces, cpus, .. }: &Site,
    setup: TrafficSetup,
    (kept, mut file): (CapabilitySet, Option<&mut CaptureFile>),
) -> Result<QueueThreads<C::Handler>, String> {
    let TrafficSetup { threads, sizes, redirects, attached, .. } = setup;
    let plan = command.plan();
    let (options, count) = (plan.options, threads.len());
    let node = sizes.node().filter(|_| !options.no_pin);
    let of_node = node.map(memory_node::cpus_of).unwrap_or_default();
    let (state, mut started) = (Arc::new(RunState::new(count)), Vec::new());
    let (warm, warmed) = mpsc::channel();
    for (thread, (sides, ports)) in threads.into_iter().enumerate() {
        let tap = file.as_mut().map(|file| file.tap());
        let pairs = sides.chunk_by(|one, next| one.pair == next.pair).count();
        let mut context = ThreadContext { interfaces, sizes: &sizes, threads: count, sides, tap };
        let (handler, source) = command.work(&mut context);
        let polling = PollLoop {
            thread,
            ports,
            handler: Tapped { handler, tap: context.tap },
            stack: NoStack,
            source,
            burst: sizes.burst,
            cpus: match &**cpus {
                [] => of_node.clone(),
                cpus => vec![cpus[thread % cpus.len()]],
            },
            spin: options.busy_poll.is_some(),
            nap: NAP,
            coalesce: plan.coalesce.min(sizes.patience()),
            measure: true,
            drain: Drain::Transmit,
            kept: Some(kept),
        };
        let name = format!("queue{thread}");
        started.push((pairs, polling.start(name, state.clone(), warm.clone())?));
    }
    drop(warm);
    wait_for_warm_up(&warmed, count)?;
    let closing = QueueProgress::new("closing", interfaces.len(), pairs_of(interfaces));
    Ok(QueueThreads { state, threads: started, closing, redirects, attached })
}

impl<H: PortHandler> QueueThreads<H> {
    /// Attaches XDP programs, which pass all packets still: the step that a driver may refuse. Notes in the
    /// interfaces how they are attached.
    fn attach(&self, opened: &mut [OpenedInterface]) -> Result<(), String> {
        for (redirect, opened) in self.redirects.iter().zip(opened) {
            redirect.pass().map_err(|error| error_chain(&error))?;
            opened.set_attached(redirect);
        }
        Ok(())
    }

    /// Has packets redirected to them, of all interfaces at once.
    fn redirect(&self) -> Result<(), String> {
        Redirect::start_all(&self.redirects).map_err(|error| error_chain(&error))
    }

    /// Ends all threads.
    fn stop(&mut self) -> Vec<thread::Result<Tapped<H>>> {
        let (state, closing, threads) = (&self.state, &self.closing, std::mem::take(&mut self.threads));
        output::leave(); // the live block stays above
        // Before anything is closed: from here on packets go to the stack, or where a run has them go that
        // takes over, and none is lost in between.
        let ended = Redirect::stop_all_then(&self.redirects, || {
            state.move_to(Phase::Draining);
            show_closing(closing, &threads);
            threads.into_iter().map(|(_, thread)| thread.join()).collect()
        });
        output::progress_end();
        ended
    }

    /// Ends all threads. Gives what they saw last, and what they know together of the frames that were
    /// expected.
    fn finish(mut self, expected: Option<u64>) -> Result<(Sample, Option<Tally>), String> {
        let mut all = expected.map(Tally::new);
        for ended in self.stop() {
            let ended = ended.map_err(|_| "a thread panicked".to_owned())?;
            if let (Some(all), Some(tally)) = (&mut all, ended.tally()) {
                all.absorb(tally);
            }
        }
        Ok((self.state.sample(), all))
    }
}

/// Shows how many queues are closed until all are: threads close them at the same time.
fn show_closing<T>(closing: &QueueProgress, threads: &[(usize, JoinHandle<T>)]) {
    loop {
        let ended = threads.iter().filter(|(_, thread)| thread.is_finished());
        let (count, queues) = ended.fold((0, 0), |(count, sum), (queues, _)| (count + 1, sum + queues));
        closing.show(queues);
        if count == threads.len() {
            return;
        }
        thread::sleep(CLOSING_LOOK);
    }
}

impl<H: PortHandler> Drop for QueueThreads<H> {
    fn drop(&mut self) {
        if !self.threads.is_empty() {
            self.stop(); // why the run ended is told already
        }
        for redirect in &self.redirects {
            if let Err(error) = redirect.leave() {
                output::warn(error_chain(&error));
            }
        }
    }
}
