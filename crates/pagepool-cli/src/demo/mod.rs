//! `pagepool demo`: a packet forwarder in one process, and the proof that its pages go round.
//!
//! Four threads: the wire (the hardware halves of both NICs, with a source and a sink), the forwarding loop, the thread
//! that packets are passed to, and this one, which shows what happens.
//!
//! The warm-up is over when the pools have taken the pages that all rings and queues together can hold, and the receive
//! rings are full of them: before the first packet. From then on the arena must not be asked again.

mod consumer;
mod content;
mod course;
mod figures;
mod forwarding;
mod live;
mod plan;
mod verdict;
mod wire;

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Instant;

use clap::Args;
use pagepool::{Arena, Buff, DmaDomain, Error, Pool, PoolParams, PoolRef};
use pagepool_net::{MemNic, NicDomain, NicPort, PortThread, mem_nic};
use rtrb::{Consumer, RingBuffer};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::bench::print_json;
use crate::pools::in_full;
use content::Content;
use course::{Course, Phase, Sample};
use forwarding::Middle;
use plan::{Program, Sizes};
use verdict::{Counted, Verdict};

/// What to show.
#[derive(Args, Clone, Debug)]
pub struct Choice {
    /// How long the source sends. Ctrl-C ends it earlier, with the verdict
    #[arg(long, value_name = "N", default_value = "5", value_parser = plan::seconds)]
    seconds: u64,
    /// Length of each packet: 64 to 9000. What does not fit one page travels in several
    #[arg(long, value_name = "BYTES", default_value = "64", value_parser = plan::size)]
    size: usize,
    /// What the forwarding loop does with each packet
    #[arg(long, value_name = "PROGRAM", value_enum, default_value_t = Program::Forward)]
    program: Program,
    /// One JSON object at the end, and nothing else
    #[arg(long)]
    json: bool,
}

/// Runs it and prints the verdict; the status says whether all is well.
pub fn run(choice: &Choice) -> Result<ExitCode, String> {
    let interrupted = listen().map_err(|error| format!("no handler for Ctrl-C: {error}"))?;
    if !choice.json {
        let Choice { seconds, size, program, .. } = choice;
        println!("Two in-memory NICs, program {}, packets of {size} bytes, {seconds} s.", program.name());
    }
    let verdict = demonstrate(choice, &interrupted)?;
    if choice.json {
        print_json(&verdict);
    } else {
        println!("{verdict}");
    }
    Ok(if verdict.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A flag that the first Ctrl-C raises; the second one ends the process.
fn listen() -> std::io::Result<Arc<AtomicBool>> {
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, interrupted.clone())?;
        signal_hook::flag::register(signal, interrupted.clone())?;
    }
    Ok(interrupted)
}

fn demonstrate(choice: &Choice, interrupted: &AtomicBool) -> Result<Verdict, String> {
    let sizes = Sizes::of(choice.size);
    let Stage { pools, nics, ports } = Stage::new(&sizes).map_err(|error| in_full(&error))?;
    let homes = pools.each_ref().map(Pool::handle);
    let (passed, queue) = match choice.program {
        Program::Pass => Some(RingBuffer::new(plan::QUEUE)).unzip(),
        _ => (None, None),
    };
    let middle = Middle { pools, pages: sizes.pages, nics, program: choice.program, consumer: passed };
    let (threads, warm) = Threads::start(middle, queue, ports, choice)
        .map_err(|error| format!("a thread could not be started: {error}; raise RLIMIT_NPROC"))?;
    let warm = warm.recv().map_err(|_| "the forwarding thread ended before its warm-up".to_owned())?;
    let start = Instant::now();
    threads.course.move_to(Phase::Traffic);
    live::watch(&threads.course, &warm, choice.seconds, interrupted, !choice.json);
    threads.course.move_to(Phase::Stopping);
    let seconds = start.elapsed().as_secs_f64();
    let course = threads.join()?;
    Ok(judge(choice, seconds, warm, &course, &homes))
}

fn judge(choice: &Choice, seconds: f64, warm: Sample, course: &Course, homes: &[PoolRef]) -> Verdict {
    let counted = Counted {
        program: choice.program,
        size: choice.size,
        seconds,
        sent: course.sent.load(Ordering::Relaxed),
        arrived: course.arrived.load(Ordering::Relaxed),
        corrupt: course.corrupt.load(Ordering::Relaxed),
        warm,
        end: course.sample(),
    };
    Verdict::of(&counted, homes)
}

/// What is made before any thread is.
struct Stage {
    pools: [Pool; 2],
    nics: [MemNic; 2],
    ports: [NicPort; 2],
}

impl Stage {
    /// Two NICs with an address space each, and two pools over one arena, so that each NIC reaches the packets of both.
    fn new(sizes: &Sizes) -> Result<Self, Error> {
        let arena = Arena::new(sizes.arena())?;
        let one = |name: &str, pages: usize| {
            let domain = NicDomain::new(name);
            let (nic, port) = mem_nic(sizes.nic(name), domain.clone())?;
            let domains: Vec<Arc<dyn DmaDomain>> = vec![domain];
            let params = PoolParams { domains, ..sizes.pool(name, pages) };
            Ok::<_, Error>((Pool::new(params, arena.clone())?, nic, port))
        };
        let (pool0, nic0, port0) = one("nic0", sizes.pages[0])?;
        let (pool1, nic1, port1) = one("nic1", sizes.pages[1])?;
        Ok(Self { pools: [pool0, pool1], nics: [nic0, nic1], ports: [port0, port1] })
    }
}

/// The threads, and what they share.
struct Threads {
    course: Arc<Course>,
    middle: JoinHandle<()>,
    consumer: Option<JoinHandle<()>>,
    wire: PortThread,
}

impl Threads {
    /// Starts all; what was counted at the end of the warm-up comes through the channel.
    fn start(
        middle: Middle,
        queue: Option<Consumer<Buff>>,
        ports: [NicPort; 2],
        choice: &Choice,
    ) -> std::io::Result<(Self, mpsc::Receiver<Sample>)> {
        let course = Arc::new(Course::new());
        let content = Content::new(choice.size);
        let mut on_wire = wire::Wire::new(ports, choice.program, &content, course.clone());
        let wire = PortThread::new("wire", move || on_wire.step())?;
        let consumer = queue.map(|queue| consumer::start(queue, &content, course.clone())).transpose()?;
        let (warm, warmed) = mpsc::channel();
        let shared = course.clone();
        let work = move || {
            forwarding::run(middle, &shared, |sample| {
                let _ = warm.send(sample); // whoever started this thread waits for it
            })
        };
        let middle = std::thread::Builder::new().name("forward".into()).spawn(work)?;
        Ok((Self { course, middle, consumer, wire }, warmed))
    }

    /// Waits for all: the forwarding loop until everything has drained, the others after it.
    fn join(self) -> Result<Arc<Course>, String> {
        let died = |thread| move |_| format!("the {thread} thread panicked");
        self.middle.join().map_err(died("forwarding"))?;
        self.consumer.map_or(Ok(()), JoinHandle::join).map_err(died("consumer"))?;
        drop(self.wire);
        Ok(self.course)
    }
}
