//! Runs a command on interfaces.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::thread::JoinHandle;
use std::time::Instant;

use pagepool_lab::Tally;

use super::capture::Capture;
use super::command::{Thread, TrafficCommand};
use super::interface::{Interface, Kernel};
use super::live;
use super::options::{Mode, Options};
use super::run_state::{Course, Sample};
use super::setup::{How, Stage};
use super::verdict::{Counted, Verdict};
use super::worker::{Feed, Work, Worker};
use crate::engine::interrupt::listen;
use crate::engine::socket_sizes::{SocketSizes, Wanted};
use crate::report::json::print_json;
use crate::sys;

/// Runs a command and prints the verdict; the status says whether all is well.
pub fn run<C: TrafficCommand>(command: &C) -> Result<ExitCode, String> {
    let options = command.options();
    let mut kernel = Kernel::open()?;
    let interfaces = look_up(command, &mut kernel)?;
    let cpus = cpus(options)?;
    let interrupted = listen()?;
    let stage = open(command, &interfaces)?;
    warn(command, &mut kernel, &interfaces, &stage)?;
    let opened = stage.interfaces.clone();
    let homes = stage.homes.clone();
    let (running, capture) = Running::start(command, &interfaces, stage, &cpus)?;
    opened.iter().for_each(|interface| options.say(interface));
    let (warm, start) = (running.course.sample(), Instant::now());
    let end = live::watch(&running.course, &warm, options, &interrupted);
    let seconds = start.elapsed().as_secs_f64();
    let (now, tally) = running.finish(command.expects())?;
    let captured = capture.map(Capture::finish).transpose()?;
    let counted = Counted { command: C::NAME, interfaces: opened, seconds, end, warm, now, tally, captured };
    let verdict = Verdict::of(counted, &homes);
    if options.json {
        print_json(&verdict);
    } else {
        println!("{verdict}");
    }
    Ok(if verdict.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The interfaces, unless they had better be left alone.
fn look_up<C: TrafficCommand>(command: &C, kernel: &mut Kernel) -> Result<Vec<Interface>, String> {
    let options = command.options();
    let names = command.interfaces().into_iter();
    let interfaces: Vec<_> =
        names.map(|name| kernel.interface(name, options.queues.as_ref())).collect::<Result<_, _>>()?;
    command.check(&interfaces)?;
    interfaces.iter().try_for_each(|interface| kernel.spare(interface, C::DOES, options.yes))?;
    Ok(interfaces)
}

/// The CPUs for the threads, if any were named, all of which may be used.
fn cpus(options: &Options) -> Result<Vec<u32>, String> {
    let Some(cpus) = &options.cpus else { return Ok(Vec::new()) };
    let allowed = sys::allowed_cpus();
    match cpus.0.iter().find(|&&cpu| !allowed.contains(&(cpu as usize))) {
        None => Ok(cpus.0.clone()),
        Some(cpu) => {
            let there: Vec<_> = allowed.iter().map(usize::to_string).collect();
            Err(format!("CPU {cpu} may not be used, or is not there; these may: {}", there.join(", ")))
        }
    }
}

fn open<C: TrafficCommand>(command: &C, interfaces: &[Interface]) -> Result<Stage, String> {
    let options = command.options();
    let sizes = SocketSizes::new(Wanted {
        mtu: command.mtu(interfaces),
        chunk: options.chunk()?,
        unaligned: options.unaligned,
        ring: options.ring,
        hardware_ring: match options.mode {
            Mode::Copy => 0,
            _ => interfaces.iter().map(|interface| interface.hardware_ring).max().unwrap_or(0),
        },
        mode: options.mode(),
        hugepages: options.hugepages,
    })?;
    let (attach, sending) = (command.attach(), command.sending());
    let how = How { sizes, attach, sending, busy_poll: options.busy_poll() };
    Stage::open(C::NAME, interfaces, how)
}

fn warn<C: TrafficCommand>(
    command: &C,
    kernel: &mut Kernel,
    interfaces: &[Interface],
    stage: &Stage,
) -> Result<(), String> {
    if C::WARNS_OF_OFFLOADS {
        for (interface, opened) in interfaces.iter().zip(&stage.interfaces) {
            let warnings = kernel.offload_warnings(interface, opened.is_generic())?;
            warnings.iter().for_each(|warning| eprintln!("warning: {warning}"));
        }
    }
    let (threads, cpus) =
        (stage.threads.len(), command.options().cpus.as_ref().map_or(0, |cpus| cpus.0.len()));
    if cpus > threads {
        eprintln!(
            "note: a thread for each queue or pair of them makes {threads}, so {} of the {cpus} CPUs not used",
            if cpus - threads == 1 { "one is".into() } else { format!("{} are", cpus - threads) }
        );
    }
    Ok(())
}

/// Threads at work.
struct Running {
    course: Arc<Course>,
    threads: Vec<JoinHandle<Option<Tally>>>,
}

/// Ends the run if its thread panics, for nobody else would notice before the end.
struct EndsAll(Arc<Course>);

impl Drop for EndsAll {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.is_broken();
        }
    }
}

impl Running {
    /// Starts all threads, and waits until their pools and rings are filled.
    fn start<C: TrafficCommand>(
        command: &C,
        interfaces: &[Interface],
        stage: Stage,
        cpus: &[u32],
    ) -> Result<(Self, Option<Capture>), String> {
        let Stage { threads, sizes, .. } = stage;
        let (capture, mut taps) = match &command.options().pcap {
            None => (None, Vec::new()),
            Some(path) => Capture::start(path, threads.len()).map(|(capture, taps)| (Some(capture), taps))?,
        };
        let mut this = Self { course: Arc::new(Course::new(threads.len())), threads: Vec::new() };
        let (warm, warmed) = mpsc::channel();
        let count = threads.len();
        for (number, ports) in threads.into_iter().enumerate() {
            let sides = ports.iter().map(|port| port.interface).collect();
            let mut thread = Thread { interfaces, sizes: &sizes, threads: count, sides, tap: taps.pop() };
            let (work, feed) = command.work(&mut thread);
            let worker = Worker {
                number,
                ports,
                pages: sizes.pages,
                burst: sizes.burst,
                work,
                feed,
                tap: thread.tap,
                cpu: (!cpus.is_empty()).then(|| cpus[number % cpus.len()]),
                spin: command.options().busy_poll.is_some(),
            };
            this.spawn(worker, warm.clone())?;
        }
        drop(warm);
        this.wait(&warmed)?;
        Ok((this, capture))
    }

    fn spawn(&mut self, worker: Worker<impl Work, impl Feed>, warm: mpsc::Sender<()>) -> Result<(), String> {
        let (name, course) = (format!("queue{}", worker.number), self.course.clone());
        let work = move || {
            let course = EndsAll(course);
            worker.run(&course.0, move || {
                let _ = warm.send(()); // whoever started this thread waits for it
            })
        };
        let thread = std::thread::Builder::new().name(name).spawn(work);
        let failed = |error| format!("a thread could not be started: {error}; raise RLIMIT_NPROC");
        self.threads.push(thread.map_err(failed)?);
        Ok(())
    }

    /// Waits until all are warm.
    fn wait(&self, warmed: &Receiver<()>) -> Result<(), String> {
        self.threads.iter().try_for_each(|_| {
            warmed.recv().map_err(|_| "a thread ended before its warm-up was over".to_owned())
        })
    }

    /// Ends all threads. Gives what they saw last, and what they know together of the frames that were expected.
    fn finish(self, expected: Option<u64>) -> Result<(Sample, Option<Tally>), String> {
        self.course.stop();
        let mut all = expected.map(Tally::new);
        for thread in self.threads {
            let tally = thread.join().map_err(|_| "a thread panicked".to_owned())?;
            if let (Some(all), Some(tally)) = (&mut all, tally) {
                all.absorb(&tally);
            }
        }
        Ok((self.course.sample(), all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::run_state::End;

    #[test]
    fn a_thread_that_panics_ends_the_run_and_no_other_does() {
        let course = Arc::new(Course::new(2));
        let of_thread = || EndsAll(course.clone());
        drop(of_thread());
        assert_eq!(course.end(), None, "one that has done its work");
        let panics = of_thread();
        let joined = std::thread::spawn(move || {
            let _ends = panics;
            panic!("on purpose");
        });
        assert!(joined.join().is_err());
        assert_eq!(course.end(), Some(End::Broken));
    }
}
