//! Runs a workload that was made ready and takes its figures.
//!
//! The first repetition warms up and is dropped. Nothing is allocated or asked of the system between two time
//! stamps.

pub mod clock;
pub mod counted;
pub mod machine;
pub mod perf;
pub mod summary;
pub mod touch;
pub mod workload;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::bench::measure::counted::Counted;
use crate::bench::measure::workload::{Body, Plan, Ready, RunSide, SendSide};
use crate::sys;

/// Figures of one workload. Those per buffer have a value for every repetition.
#[derive(Debug, Default)]
pub struct Measured {
    /// Clock ticks per buffer; on two cores, those of the second core.
    pub ticks: Vec<f64>,
    /// Core cycles of the owner's thread per buffer, its waiting included; empty without hardware counters.
    pub core_cycles: Vec<f64>,
    /// Instructions, likewise.
    pub instructions: Vec<f64>,
    /// Minor page faults of all its threads over the measured repetitions.
    pub faults: u64,
    /// What its pool counted over the measured repetitions.
    pub counted: Counted,
    /// Buffers in the measured repetitions.
    pub buffers: u64,
}

impl Measured {
    fn with_room(plan: Plan) -> Self {
        let room = || Vec::with_capacity(plan.repeats);
        Self { ticks: room(), core_cycles: room(), instructions: room(), ..Self::default() }
    }

    fn add_perf(&mut self, before: Option<perf::Reading>, after: Option<perf::Reading>, buffers: usize) {
        if let (Some(before), Some(after)) = (before, after) {
            self.core_cycles.push((after.core_cycles - before.core_cycles) as f64 / buffers as f64);
            self.instructions.push((after.instructions - before.instructions) as f64 / buffers as f64);
        }
    }
}

/// Measures `ready`, in turns with `beside` if that is given: one repetition each. The second core is CPU
/// `second`.
pub fn measure(
    plan: Plan,
    ready: Ready,
    beside: Option<Ready>,
    second: Option<usize>,
) -> Result<WorkloadFigures, String> {
    match (ready.body, beside) {
        (Body::OneCore(run), beside) => {
            let mut sides = vec![Side { run, counters: ready.counters }];
            if let Some(Ready { body: Body::OneCore(run), counters, .. }) = beside {
                sides.push(Side { run, counters });
            }
            let mut figures = one_core(plan, sides).into_iter();
            let own = figures.next().ok_or("no figures")?;
            Ok(WorkloadFigures { own, beside: figures.next(), cores: 1, colours: ready.colours })
        }
        (Body::TwoCores(produce, consume), beside) => {
            let second = second.ok_or("requires a second CPU, but this process may use only one")?;
            let mut sides = vec![Relay { produce, consume: Some(consume), counters: ready.counters }];
            if let Some(Ready { body: Body::TwoCores(produce, consume), counters, .. }) = beside {
                sides.push(Relay { produce, consume: Some(consume), counters });
            }
            let mut figures = two_cores(plan, sides, second).into_iter();
            let own = figures.next().ok_or("no figures")?;
            Ok(WorkloadFigures { own, beside: figures.next(), cores: 2, colours: ready.colours })
        }
    }
}

/// What [`measure`] found.
#[derive(Debug)]
pub struct WorkloadFigures {
    /// Of the workload.
    pub own: Measured,
    /// Of the workload measured in turns with it.
    pub beside: Option<Measured>,
    /// Cores that it ran on.
    pub cores: usize,
    /// Its colours.
    pub colours: Option<usize>,
}

/// A one-core workload and its counters.
struct Side {
    run: RunSide,
    counters: Box<dyn Fn() -> Counted>,
}

fn one_core(plan: Plan, mut sides: Vec<Side>) -> Vec<Measured> {
    let mut figures: Vec<Measured> = sides.iter().map(|_| Measured::with_room(plan)).collect();
    let mut perf = perf::Counters::open();
    for (side, figures) in sides.iter_mut().zip(&mut figures) {
        (side.run)(plan.buffers);
        figures.counted = (side.counters)();
    }
    for _ in 0..plan.repeats {
        for (side, figures) in sides.iter_mut().zip(&mut figures) {
            let faults = sys::minor_faults();
            let before = perf.read();
            let begin = clock::begin();
            (side.run)(plan.buffers);
            let end = clock::end();
            figures.add_perf(before, perf.read(), plan.buffers);
            figures.faults += sys::minor_faults() - faults;
            figures.ticks.push((end - begin) as f64 / plan.buffers as f64);
        }
    }
    for (side, figures) in sides.iter().zip(&mut figures) {
        figures.counted = (side.counters)().since(&figures.counted);
        figures.buffers = (plan.repeats * plan.buffers) as u64;
    }
    figures
}

/// A two-core workload and its counters.
struct Relay {
    produce: RunSide,
    consume: Option<SendSide>,
    counters: Box<dyn Fn() -> Counted>,
}

/// A consumer's figures of one repetition.
#[derive(Clone, Copy)]
struct Turn {
    ticks: u64,
    faults: u64,
}

/// Which turn may begin, and which has ended. A turn ends when the consumer has dropped the last buffer, so
/// between turns everything is at rest and the counters are exact.
#[derive(Default)]
struct Gate {
    begun: AtomicUsize,
    ended: AtomicUsize,
}

impl Gate {
    fn wait_for(word: &AtomicUsize, turn: usize) {
        while word.load(Ordering::Acquire) < turn {
            std::hint::spin_loop();
        }
    }
}

fn two_cores(plan: Plan, mut relays: Vec<Relay>, second: usize) -> Vec<Measured> {
    let kinds = relays.len();
    let turns = kinds * (plan.repeats + 1);
    let mut consumes: Vec<SendSide> = relays.iter_mut().filter_map(|relay| relay.consume.take()).collect();
    let gate = Gate::default();
    thread::scope(|scope| {
        let consumer = scope.spawn(|| {
            sys::pin_to(second);
            let mut done = Vec::with_capacity(turns);
            for turn in 0..turns {
                Gate::wait_for(&gate.begun, turn + 1);
                done.push(consume_once(&mut consumes[turn % kinds], plan.buffers));
                gate.ended.store(turn + 1, Ordering::Release);
            }
            done
        });
        let mut figures = produce_all(plan, &mut relays, &gate);
        let done = consumer.join().expect("a consumer that panics aborts the process");
        for (turn, figure) in done.into_iter().enumerate().skip(kinds) {
            let figures = &mut figures[turn % kinds];
            figures.ticks.push(figure.ticks as f64 / plan.buffers as f64);
            figures.faults += figure.faults;
        }
        figures
    })
}

fn consume_once(consume: &mut SendSide, buffers: usize) -> Turn {
    let faults = sys::minor_faults();
    let begin = clock::begin();
    consume(buffers);
    let ticks = clock::end() - begin;
    Turn { ticks, faults: sys::minor_faults() - faults }
}

/// The owner's side of all turns. The first turn of every relay is its warm-up.
fn produce_all(plan: Plan, relays: &mut [Relay], gate: &Gate) -> Vec<Measured> {
    let mut figures: Vec<Measured> = relays.iter().map(|_| Measured::with_room(plan)).collect();
    let mut perf = perf::Counters::open();
    let mut turn = 0;
    for repeat in 0..=plan.repeats {
        for (relay, figures) in relays.iter_mut().zip(&mut figures) {
            turn += 1;
            let faults = sys::minor_faults();
            let before = perf.read();
            gate.begun.store(turn, Ordering::Release);
            (relay.produce)(plan.buffers);
            Gate::wait_for(&gate.ended, turn);
            if repeat == 0 {
                figures.counted = (relay.counters)();
            } else {
                figures.add_perf(before, perf.read(), plan.buffers);
                figures.faults += sys::minor_faults() - faults;
            }
        }
    }
    for (relay, figures) in relays.iter().zip(&mut figures) {
        figures.counted = (relay.counters)().since(&figures.counted);
        figures.buffers = (plan.repeats * plan.buffers) as u64;
    }
    figures
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use super::*;

    const PLAN: Plan = Plan { repeats: 9, buffers: 1024 };

    #[test]
    fn drops_the_warm_up_from_figures_and_counters() {
        let total = Rc::new(Cell::new(0));
        let seen = total.clone();
        let ready = Ready::one_core(move |n| total.set(total.get() + n as u64))
            .counting(move || Counted::from_fields([("n", seen.get())]));
        let figures = measure(PLAN, ready, None, None).expect("one core needs nothing").own;
        assert_eq!(figures.ticks.len(), 9);
        assert_eq!(figures.buffers, 9 * 1024);
        assert_eq!(figures.counted.0["n"], 9 * 1024);
    }

    #[test]
    fn one_core_takes_turns_with_what_is_beside() {
        let order = Rc::new(std::cell::RefCell::new(String::new()));
        let side = |who: char| {
            let order = order.clone();
            Ready::one_core(move |_| order.borrow_mut().push(who))
        };
        let figures = measure(PLAN, side('a'), Some(side('b')), None).expect("one core needs nothing");
        assert_eq!(*order.borrow(), "ab".repeat(10));
        assert_eq!(figures.own.ticks.len(), 9);
        assert_eq!(figures.beside.map(|b| b.ticks.len()), Some(9));
    }

    #[test]
    fn two_cores_without_a_second_one_is_an_error() {
        let ready = Ready::two_cores(|_| (), |_| ());
        assert!(measure(PLAN, ready, None, None).expect_err("no second CPU").contains("second CPU"));
    }

    #[test]
    fn two_cores_take_turns_with_what_is_beside() {
        let order = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let side = |who: char| {
            let order = order.clone();
            Ready::two_cores(|_| (), move |_| order.lock().expect("not poisoned").push(who))
        };
        let figures = measure(PLAN, side('a'), Some(side('b')), Some(0)).expect("there is a CPU 0");
        let order: String = order.lock().expect("not poisoned").iter().collect();
        assert_eq!(order, "ab".repeat(10));
        assert_eq!(figures.own.ticks.len(), 9);
        assert_eq!(figures.beside.map(|b| b.ticks.len()), Some(9));
    }
}
