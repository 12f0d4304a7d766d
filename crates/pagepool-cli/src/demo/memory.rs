//! The demonstration in memory: two NICs made of software, a source and a sink.
//!
//! Four threads: the wire (the hardware halves of both NICs, with the source and the sink), the forwarding loop, the thread
//! that packets are passed to, and the one that shows what happens.
//!
//! The warm-up is over when the pools have taken the pages that all rings and queues together can hold, and the receive
//! rings are full of them: before the first packet. From then on the arena must not be asked again.

use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Instant;

use pagepool::{Arena, DmaDomain, Error, Pool, PoolParams, PoolRef, XdpBuff};
use pagepool_net::{BUDGET, MemNic, NicDomain, NicPort, PortThread, mem_nic};
use rtrb::{Consumer, RingBuffer};

use super::content::Content;
use super::course::{Course, Phase, Sample};
use super::forwarding::{self, Middle};
use super::live::{self, View};
use super::plan::{self, DemoAction, Sizes};
use super::verdict::{Counted, Verdict};
use super::{consumer, wire};
use crate::report::error::error_chain;

/// As `mode` of the JSON output.
const MODE: &str = "in_memory";

/// What to do with which packets.
#[derive(Clone, Copy, Debug)]
pub struct Task {
    pub program: DemoAction,
    /// Bytes of each packet.
    pub size: usize,
}

/// Runs it, and judges.
pub fn run(task: Task, view: &View<'_>) -> Result<Verdict, String> {
    if view.lines {
        let Task { program, size } = task;
        println!(
            "Two in-memory NICs, program {}, packets of {size} bytes, {} s.",
            program.name(),
            view.seconds
        );
    }
    let sizes = Sizes::of(task.size);
    let Stage { pools, nics, ports } = Stage::new(&sizes).map_err(|error| error_chain(&error))?;
    let homes = pools.each_ref().map(Pool::handle);
    let (passed, queue) = match task.program {
        DemoAction::Pass => Some(RingBuffer::new(plan::QUEUE)).unzip(),
        _ => (None, None),
    };
    let [nic0, nic1] = nics;
    let middle = Middle {
        pools,
        pages: sizes.pages,
        nics: [Box::new(nic0), Box::new(nic1)],
        burst: BUDGET,
        program: task.program,
        consumer: passed,
        arrived: if task.program == DemoAction::Drop { |end| Some(end[0].port.drop) } else { |_| None },
    };
    let (threads, warm) = Threads::start(middle, queue, ports, task)
        .map_err(|error| format!("a thread could not be started: {error}; raise RLIMIT_NPROC"))?;
    let warm = warm.recv().map_err(|_| "the forwarding thread ended before its warm-up".to_owned())?;
    let start = Instant::now();
    threads.course.move_to(Phase::Traffic);
    live::watch(&threads.course, &warm, view, None);
    threads.course.move_to(Phase::Stopping);
    let seconds = start.elapsed().as_secs_f64();
    let course = threads.join()?;
    Ok(judge(task, seconds, warm, &course, &homes))
}

fn judge(task: Task, seconds: f64, warm: Sample, course: &Course, homes: &[PoolRef]) -> Verdict {
    let counted = Counted {
        mode: MODE.to_owned(),
        program: task.program,
        size: task.size,
        seconds,
        sent: course.sent.load(Ordering::Relaxed),
        arrived: course.arrived.load(Ordering::Relaxed),
        corrupt: course.corrupt.load(Ordering::Relaxed),
        gbit_s: None,
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
        queue: Option<Consumer<XdpBuff>>,
        ports: [NicPort; 2],
        task: Task,
    ) -> std::io::Result<(Self, mpsc::Receiver<Sample>)> {
        let course = Arc::new(Course::new());
        let content = Content::new(task.size);
        let mut on_wire = wire::Wire::new(ports, task.program, &content, course.clone());
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
