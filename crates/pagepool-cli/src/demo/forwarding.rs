//! The thread in the middle: owns both pools, drives both NICs, runs the program.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use pagepool::{Pool, XdpBuff};
use pagepool_net::{Action, Device, Forwarder, Ingress, PortId, Stack, Wake, swap_macs};
use rtrb::{Producer, PushError};

use super::course::{Course, Phase, Sample};
use super::plan::DemoAction;
use crate::engine::port_sample::PortSample;
use crate::engine::prefill::prefill;

/// How often it shows what it sees.
const SHOWN_EVERY: Duration = Duration::from_millis(50);
/// Fruitless rounds before it sleeps, and for how long at most.
const PATIENCE: u32 = 64;
const NAP: Duration = Duration::from_millis(2);
/// How long packets may take to come to the end of their way when no more are sent. What has not by then is missed.
const DRAIN: Duration = Duration::from_secs(10);

/// What it is given.
pub struct Middle {
    pub pools: [Pool; 2],
    /// Pages to be taken from the arena beforehand.
    pub pages: [usize; 2],
    pub nics: [Box<dyn Device>; 2],
    /// Packets that are taken from a NIC at once.
    pub burst: usize,
    pub program: DemoAction,
    /// To the thread that packets are passed to, if they are.
    pub consumer: Option<Producer<XdpBuff>>,
    /// Packets that came to the end of their way, if that is to be seen here.
    pub arrived: fn(&Sample) -> Option<u64>,
}

/// Works until everything has drained. `warm` gets what was counted when the warm-up was over.
pub fn run(middle: Middle, course: &Course, warm: impl FnOnce(Sample)) {
    let Middle { pools, pages, nics, burst, program, mut consumer, arrived } = middle;
    let stack = move |packet: XdpBuff, _: Ingress| match &mut consumer {
        Some(queue) => queue.push(packet).map_err(|PushError::Full(packet)| packet),
        None => Err(packet),
    };
    let mut forwarder = Forwarder::with_stack(decide(program), stack);
    let mut ports = [PortId(0); 2];
    for (at, (pool, nic)) in pools.into_iter().zip(nics).enumerate() {
        let pool = pool.bind();
        prefill(&pool, pages[at]);
        ports[at] = forwarder.add_port(nic, pool);
    }
    let _ = forwarder.set_budget(burst); // fails for no number like these
    forwarder.poll(); // fills the receive rings
    warm(look(&forwarder, ports));
    work(&mut forwarder, ports, arrived, course);
}

/// What the program does with each packet.
fn decide(program: DemoAction) -> impl FnMut(&mut XdpBuff, Ingress) -> Action {
    move |packet, at| match program {
        DemoAction::Drop => Action::Drop,
        DemoAction::Echo => {
            swap_macs(packet.data_mut());
            Action::Tx
        }
        DemoAction::Forward => Action::Redirect(PortId(1 - at.port.0)),
        DemoAction::Pass => Action::Pass,
    }
}

fn work<P: pagepool_net::PacketHandler, S: Stack>(
    forwarder: &mut Forwarder<P, S>,
    ports: [PortId; 2],
    arrived: fn(&Sample) -> Option<u64>,
    course: &Course,
) {
    let (mut idle, mut shown, mut draining) = (0, Instant::now(), None);
    loop {
        let last = course.reached(Phase::Draining); // asked before looking: then what is there is all there is
        let moved = forwarder.poll();
        idle = if moved > 0 { 0 } else { idle + 1 };
        let now = Instant::now();
        if now - shown >= SHOWN_EVERY {
            shown = now;
            show(forwarder, ports, arrived, course);
        }
        if last {
            let since = *draining.get_or_insert(now);
            if (moved == 0 && is_dry(forwarder, ports)) || now - since > DRAIN {
                break;
            }
        }
        if idle > PATIENCE && forwarder.wait(NAP) == Wake::Gone {
            break; // both NICs are: whoever was their hardware, or had their links, will not say that it stopped
        }
    }
    show(forwarder, ports, arrived, course);
}

/// Whether nothing is on its way out. What waits for a transmit ring does so behind one that is full.
fn is_dry<P: pagepool_net::PacketHandler, S: Stack>(forwarder: &Forwarder<P, S>, ports: [PortId; 2]) -> bool {
    ports.iter().filter_map(|&port| forwarder.device(port)).all(|nic| nic.stats().in_tx == 0)
}

fn show<P: pagepool_net::PacketHandler, S: Stack>(
    forwarder: &Forwarder<P, S>,
    ports: [PortId; 2],
    arrived: fn(&Sample) -> Option<u64>,
    course: &Course,
) {
    let sample = look(forwarder, ports);
    if let Some(packets) = arrived(&sample) {
        course.arrived.store(packets, Ordering::Relaxed);
    }
    course.show(sample);
}

fn look<P: pagepool_net::PacketHandler, S: Stack>(forwarder: &Forwarder<P, S>, ports: [PortId; 2]) -> Sample {
    ports.map(|port| PortSample::of(forwarder, port))
}
