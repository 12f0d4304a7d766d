//! The threads of a run. Each polls its queues, from when their rings are filled until they are drained.

use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use pagepool_net::{NoStack, Redirect, Tally};

use super::environment::Environment;
use crate::report::{error_chain, in_words, output};
use crate::sys::CapabilitySet;
use crate::traffic::capture::{CaptureFile, Tapped};
use crate::traffic::command::{ThreadContext, TrafficCommand, TrafficPlan};
use crate::traffic::options::Cpus;
use crate::traffic::poll_loop::{Drain, PollLoop, PollPort, PortHandler, wait_for_warm_up};
use crate::traffic::sockets::{
    OpenedInterface, QueueProgress, SocketSizes, TrafficSetup, memory_node, pairs_of,
};
use crate::traffic::{Phase, Sample, SharedState};

/// The time between two checks of how many queues are closed: short, because the end waits for the last one.
const CLOSING_LOOK: Duration = Duration::from_millis(2);
/// The longest sleep of a thread. Packets and wake-ups by the run end it early.
const NAP: Duration = Duration::from_secs(1);

/// The polling threads. Dropping it stops them, as the end of a run does.
pub struct QueueThreads<H: PortHandler> {
    pub state: Arc<SharedState>,
    /// Each thread, with the number of its queues or pairs of queues.
    threads: Vec<(usize, JoinHandle<Tapped<H>>)>,
    closing: QueueProgress,
    /// What redirects packets to the threads.
    pub redirects: Vec<Arc<Redirect>>,
    /// XDP programs that stay attached until all threads have ended: detaching one resets other queues, too.
    #[expect(dead_code, reason = "held")]
    attached: Vec<Arc<Redirect>>,
}

/// What all threads have in common.
struct ThreadSetup<'a> {
    plan: &'a TrafficPlan<'a>,
    environment: &'a Environment,
    sizes: &'a SocketSizes,
    /// The CPUs of the memory's node, if threads stay there.
    of_node: Vec<usize>,
    kept: CapabilitySet,
}

impl<H: PortHandler> QueueThreads<H> {
    /// Starts all threads, and waits until their pools and rings are filled.
    pub fn start<C: TrafficCommand<Handler = H>>(
        command: &C,
        environment: &Environment,
        (setup, sizes): (TrafficSetup, SocketSizes),
        (kept, mut capture): (CapabilitySet, Option<&mut CaptureFile>),
    ) -> Result<Self, String> {
        let TrafficSetup { threads, redirects, attached, .. } = setup;
        let (plan, count) = (command.plan(), threads.len());
        let node = sizes.needs.node.filter(|_| plan.options.cpus != Some(Cpus::Any));
        let of_node = node.map(memory_node::cpus_of).unwrap_or_default();
        let crew = ThreadSetup { plan: &plan, environment, sizes: &sizes, of_node, kept };
        let closing =
            QueueProgress::new("closing", environment.interfaces.len(), pairs_of(&environment.interfaces));
        let state = Arc::new(SharedState::new(count));
        let mut this = Self { state, threads: Vec::new(), closing, redirects, attached };
        let (warm, warmed) = mpsc::channel();
        for (number, (sides, ports)) in threads.into_iter().enumerate() {
            let tap = capture.as_mut().map(|file| file.tap());
            let pairs = sides.chunk_by(|one, next| one.pair == next.pair).count();
            let interfaces = &environment.interfaces;
            let context = ThreadContext { interfaces, sizes: &sizes, threads: count, sides, tap };
            let polling = crew.poll_loop(command, number, context, ports);
            let thread = polling.start(format!("queue{number}"), this.state.clone(), warm.clone())?;
            this.threads.push((pairs, thread));
        }
        drop(warm);
        wait_for_warm_up(&warmed, count)?;
        Ok(this)
    }

    /// Attaches XDP programs that pass all packets. A driver may refuse one. Records in the interfaces how
    /// they are attached.
    pub fn attach(&self, opened: &mut [OpenedInterface]) -> Result<(), String> {
        let with_sockets = opened.iter_mut().filter(|opened| opened.has_sockets());
        for (redirect, opened) in self.redirects.iter().zip(with_sockets) {
            redirect.pass().map_err(in_words)?;
            opened.set_attached(redirect);
        }
        Ok(())
    }

    /// Redirects the packets of all interfaces to the threads at once.
    pub fn redirect(&self) -> Result<(), String> {
        Redirect::start_all(&self.redirects).map_err(in_words)
    }

    /// Ends all threads. Returns their last samples, and what they found together of the expected frames.
    pub fn finish(mut self, expected: Option<u64>) -> Result<(Sample, Option<Tally>), String> {
        let mut all = expected.map(Tally::new);
        for ended in self.stop() {
            let ended = ended.map_err(|_| "a thread panicked".to_owned())?;
            if let (Some(all), Some(tally)) = (&mut all, ended.tally()) {
                all.absorb(tally);
            }
        }
        Ok((self.state.sample(), all))
    }

    /// Ends all threads. Packets go to the stack again first, so none is lost when the sockets are closed.
    fn stop(&mut self) -> Vec<thread::Result<Tapped<H>>> {
        let (state, closing, threads) = (&self.state, &self.closing, std::mem::take(&mut self.threads));
        output::finish_drawing(); // the live block stays above
        let ended = Redirect::stop_all_then(&self.redirects, || {
            state.move_to(Phase::Draining);
            show_closing(closing, &threads);
            threads.into_iter().map(|(_, thread)| thread.join()).collect()
        });
        output::progress_end();
        ended
    }
}

impl ThreadSetup<'_> {
    fn poll_loop<C: TrafficCommand>(
        &self,
        command: &C,
        thread: usize,
        mut context: ThreadContext<'_>,
        ports: Vec<PollPort>,
    ) -> PollLoop<Tapped<C::Handler>, NoStack, C::Source> {
        let (handler, source) = command.work(&mut context);
        let Self { plan, environment, sizes, of_node, kept } = self;
        let rx_nap = Duration::from_micros(plan.receive.map_or(0, |receive| receive.rx_usecs));
        PollLoop {
            thread,
            ports,
            handler: Tapped { handler, tap: context.tap },
            stack: NoStack,
            source,
            burst: sizes.burst,
            cpus: match &*environment.cpus {
                [] => of_node.clone(),
                cpus => vec![cpus[thread % cpus.len()]],
            },
            spin: plan.options.busy_poll.is_some(),
            nap: NAP,
            rx_nap: rx_nap.min(sizes.patience()),
            measure: true,
            drain: Drain::Transmit,
            kept: Some(*kept),
        }
    }
}

/// Shows how many queues are closed until all are. The threads close them at the same time.
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
            self.stop(); // the caller prints the error that ends the run
        }
        for redirect in &self.redirects {
            if let Err(error) = redirect.leave() {
                output::warn(error_chain(&error));
            }
        }
    }
}
