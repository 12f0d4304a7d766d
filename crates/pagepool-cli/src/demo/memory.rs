//! The demonstration in memory: two NICs made of software, a source and a sink.
//!
//! Four threads: the wire (the hardware halves of both NICs, with the source and the sink), the forwarding
//! loop, the consumer, and the thread that shows figures.
//!
//! The warm-up ends when the pools have taken the pages that all rings and queues together can hold, and the
//! receive rings are full. After that no page may be taken from the arena.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Instant;

use pagepool::{Arena, Error};
use pagepool_net::{BUDGET, NicPort, OpenedDevice, PortThread, open_device};
use rtrb::RingBuffer;

use super::content::Content;
use super::forward_task::{DemoHandler, ForwardTask};
use super::live::{DemoFigures, DemoTitle, DemoView};
use super::outcome::DemoResult;
use super::plan::{self, DemoAction, Sizes};
use super::{consumer, wire};
use crate::report::{in_words, no_thread};
use crate::traffic::sockets::memory_node;
use crate::traffic::{Phase, Sample, SharedState};

const MODE: &str = "in_memory";

#[derive(Clone, Copy, Debug)]
pub struct MemoryDemo {
    pub action: DemoAction,
    pub size: usize,
}

pub fn demonstrate(demo: MemoryDemo, view: &DemoView<'_>) -> Result<ExitCode, String> {
    let MemoryDemo { action, size } = demo;
    let sizes = Sizes::new(size, view.holders);
    let (queues, ports) = open(&sizes).map_err(in_words)?;
    let pools = queues.each_ref().map(|queue| queue.pool.handle());
    let threads = MemoryThreads::start(queues, ports, demo, &sizes)?;
    let (state, warm) = (threads.state.clone(), threads.state.sample());
    let mut figures = DemoFigures::begin(view, warm.clone(), title(demo, view.seconds));
    let start = Instant::now();
    state.move_to(Phase::Traffic);
    figures.watch(&state, None, |state, sample| arrived(action, state, sample));
    state.move_to(Phase::Stopping);
    let seconds = start.elapsed().as_secs_f64();
    threads.join()?;
    let end = state.sample();
    let result = DemoResult {
        mode: MODE.to_owned(),
        action,
        size,
        seconds,
        sent: state.sent.load(Ordering::Relaxed),
        arrived: arrived(action, &state, &end),
        corrupt: state.corrupt.load(Ordering::Relaxed),
        gbit_s: None,
        warm: warm.ports,
        end: end.ports,
    };
    Ok(figures.end(&result, 0, &result.verdict(&pools, view.limit)))
}

fn title(MemoryDemo { action, size }: MemoryDemo, seconds: u64) -> DemoTitle {
    let action = action.name();
    DemoTitle {
        line: format!("Two in-memory NICs, action {action}, packets of {size} bytes, {seconds} s."),
        fields: vec![("mode", MODE.into()), ("action", action.into()), ("size", size.into())],
        interfaces: ["nic0", "nic1"],
        has_transfer: false,
    }
}

/// Packets that reached the end of their path: counted by the sink, or by the port that drops them.
fn arrived(action: DemoAction, state: &SharedState, sample: &Sample) -> u64 {
    match action {
        DemoAction::Drop => sample.ports.first().map_or(0, |port| port.port.drop),
        _ => state.arrived.load(Ordering::Relaxed),
    }
}

/// Two NICs, each with its own address space, and the ends of their wires. Both pools share one arena, so
/// each NIC can access the packets of both.
fn open(sizes: &Sizes) -> Result<([OpenedDevice; 2], [NicPort; 2]), Error> {
    let arena = Arena::new(sizes.arena())?;
    let open = |name, pages| {
        let mut opened = open_device(name, &sizes.open_params(pages), &arena)?;
        let Some(port) = opened.wire.take() else { unreachable!("{name} has such a wire") };
        Ok::<_, Error>((opened, port))
    };
    let (nic0, port0) = open("memory:nic0", sizes.pages[0])?;
    let (nic1, port1) = open("memory:nic1", sizes.pages[1])?;
    Ok(([nic0, nic1], [port0, port1]))
}

struct MemoryThreads {
    state: Arc<SharedState>,
    forwarding: JoinHandle<DemoHandler>,
    consumer: Option<JoinHandle<()>>,
    wire: PortThread,
}

impl MemoryThreads {
    /// Starts all threads, and waits for the end of the warm-up.
    fn start(
        queues: [OpenedDevice; 2],
        ports: [NicPort; 2],
        demo: MemoryDemo,
        sizes: &Sizes,
    ) -> Result<Self, String> {
        let failed = |error| no_thread(&error);
        let (passed, queue) = match demo.action {
            DemoAction::Pass => Some(RingBuffer::new(plan::QUEUE)).unzip(),
            _ => (None, None),
        };
        let (state, content) = (Arc::new(SharedState::new(1)), Content::new(demo.size));
        let mut on_wire = wire::PacketWire::new(ports, demo.action, &content, state.clone());
        let wire = PortThread::new("wire", move || on_wire.step()).map_err(failed)?;
        let consumer = queue.map(|queue| consumer::start(queue, &content, state.clone()));
        let consumer = consumer.transpose().map_err(failed)?;
        let task = ForwardTask {
            queues,
            pages: sizes.pages,
            burst: BUDGET,
            action: demo.action,
            consumer: passed,
            cpus: sizes.node.map(memory_node::cpus_of).unwrap_or_default(),
        };
        let forwarding = task.start(state.clone())?;
        Ok(Self { state, forwarding, consumer, wire })
    }

    /// Waits for all threads: the forwarding thread first, until everything has drained, then the others.
    fn join(self) -> Result<(), String> {
        let died = |thread| move |_| format!("the {thread} thread panicked");
        self.forwarding.join().map(drop).map_err(died("forwarding"))?;
        self.consumer.map_or(Ok(()), JoinHandle::join).map_err(died("consumer"))?;
        drop(self.wire);
        Ok(())
    }
}
