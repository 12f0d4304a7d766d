//! Measures a workload. The first repetition warms up and is dropped. Between two time stamps there is no
//! allocation and no system call.

pub mod clock;
pub mod counted;
pub mod machine;
pub mod perf;
pub mod summary;
pub mod touch;
pub mod workload;

use std::iter;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::measure::counted::Counted;
use crate::measure::workload::{Body, Plan, Ready, RunSide, SendSide};
use crate::sys;

/// Figures per buffer have a value for every repetition.
#[derive(Debug, Default)]
pub struct Measured {
    /// Clock ticks per buffer; on two cores, of the second core.
    pub ticks: Vec<f64>,
    /// Core cycles per buffer of the owner's thread, with its waiting; empty without hardware counters.
    pub core_cycles: Vec<f64>,
    /// Instructions per buffer of the owner's thread, with its waiting; empty without hardware counters.
    pub instructions: Vec<f64>,
    /// Minor page faults of all threads, over the measured repetitions.
    pub faults: u64,
    /// Over the measured repetitions.
    pub counted: Counted,
    /// In the measured repetitions.
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

/// Measures `ready`. With `beside`, repetitions of the two alternate. `second` is the second core's CPU.
pub fn measure(
    plan: Plan,
    ready: Ready,
    beside: Option<Ready>,
    second: Option<usize>,
) -> Result<WorkloadFigures, String> {
    let colours = ready.colours;
    let (mut sides, mut consumes) = (Vec::new(), Vec::new());
    for Ready { body, counters, .. } in iter::once(ready).chain(beside) {
        let run = match body {
            Body::OneCore(run) => run,
            Body::TwoCores(produce, consume) => {
                consumes.push(consume);
                produce
            }
        };
        sides.push(Side { run, counters });
    }
    let (figures, cores) = match consumes.len() {
        0 => (take_turns(plan, &mut sides, |run| run(plan.buffers)), 1),
        both if both == sides.len() => {
            let second = second.ok_or("requires a second CPU, but this process may use only one")?;
            (two_cores(plan, &mut sides, consumes, second), 2)
        }
        _ => return Err("is compared with a workload on another number of cores".into()),
    };
    let mut figures = figures.into_iter();
    let own = figures.next().ok_or("no figures")?;
    Ok(WorkloadFigures { own, beside: figures.next(), cores, colours })
}

#[derive(Debug)]
pub struct WorkloadFigures {
    pub own: Measured,
    /// Of the workload that ran alternately with it.
    pub beside: Option<Measured>,
    pub cores: usize,
    pub colours: Option<usize>,
}

struct Side {
    run: RunSide,
    counters: Box<dyn Fn() -> Counted>,
}

/// Runs the owner's side of all turns. The first turn of each is its warm-up.
fn take_turns(plan: Plan, sides: &mut [Side], mut take_turn: impl FnMut(&mut RunSide)) -> Vec<Measured> {
    let mut figures: Vec<Measured> = sides.iter().map(|_| Measured::with_room(plan)).collect();
    let mut perf = perf::Counters::open();
    for repeat in 0..=plan.repeats {
        for (side, figures) in sides.iter_mut().zip(&mut figures) {
            let faults = sys::minor_faults();
            let before = perf.read();
            let begin = clock::begin();
            take_turn(&mut side.run);
            let end = clock::end();
            let after = perf.read();
            if repeat == 0 {
                figures.counted = (side.counters)();
                continue;
            }
            figures.add_perf(before, after, plan.buffers);
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

#[derive(Clone, Copy)]
struct Turn {
    ticks: u64,
    faults: u64,
}

/// Which turn may begin, and which has ended. A turn ends when the consumer has dropped the last buffer: then
/// nothing moves, and the counters are exact.
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

/// Runs all turns with a consumer on a second core, whose time counts.
fn two_cores(plan: Plan, sides: &mut [Side], mut consumes: Vec<SendSide>, second: usize) -> Vec<Measured> {
    let kinds = sides.len();
    let turns = kinds * (plan.repeats + 1);
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
        let mut turn = 0;
        let mut figures = take_turns(plan, sides, |produce| {
            turn += 1;
            gate.begun.store(turn, Ordering::Release);
            produce(plan.buffers);
            Gate::wait_for(&gate.ended, turn);
        });
        figures.iter_mut().for_each(|figures| figures.ticks.clear());
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
    fn a_workload_on_another_number_of_cores_is_an_error() {
        let beside = Some(Ready::one_core(|_| ()));
        let why = measure(PLAN, Ready::two_cores(|_| (), |_| ()), beside, Some(0)).expect_err("1 and 2");
        assert!(why.contains("number of cores"), "{why}");
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
