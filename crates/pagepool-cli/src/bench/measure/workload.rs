//! A workload: a row that describes it, and its runnable form.

use crate::bench::measure::counted::{Counted, Rule};

/// The repetitions of a run, and the buffers in each.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Measured repetitions, after one that is dropped.
    pub repeats: usize,
    /// Buffers in a repetition; a multiple of 1024.
    pub buffers: usize,
}

impl Plan {
    /// The plan of the peers' harness: 11 repetitions of 2^18 buffers.
    pub const FULL: Self = Self { repeats: 11, buffers: 1 << 18 };
    /// A short plan, for tests: 9 repetitions of 2^14 buffers.
    pub const QUICK: Self = Self { repeats: 9, buffers: 1 << 14 };

    /// This plan with fewer buffers, for slow workloads.
    pub fn lighter(self, by: usize) -> Self {
        Self { buffers: (self.buffers / by).max(1024), ..self }
    }
}

/// A row of a table of workloads. To add one, write a function that makes it ready, and add a row.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    /// The name.
    pub name: &'static str,
    /// The name of Linux's equivalent, or "-".
    pub linux: &'static str,
    /// Buffers per call.
    pub batch: usize,
    /// One iteration, in words.
    pub about: &'static str,
    /// The factor by which it runs over fewer buffers than the plan.
    pub weight: usize,
    /// The counters that must move; all others must stand still.
    pub rules: &'static [Rule],
    /// Buffers per tolerated page fault; 0 tolerates none.
    pub buffers_a_fault: u64,
    /// The workload that this one is compared with: it runs on as many cores, and repetitions of the two
    /// alternate.
    pub beside: Option<MakeReady>,
    /// Makes it ready to run.
    pub ready: MakeReady,
}

/// Makes a workload ready to run.
pub type MakeReady = fn() -> Result<Ready, String>;

/// A row sets only what differs from the defaults: no equivalent in Linux, one buffer per call, no counter
/// moves.
impl Workload {
    pub const fn new(name: &'static str, ready: MakeReady) -> Self {
        let (linux, batch, about, weight, rules) = ("-", 1, "", 1, &[]);
        Self { name, linux, batch, about, weight, rules, buffers_a_fault: 0, beside: None, ready }
    }

    pub const fn linux(self, linux: &'static str) -> Self {
        Self { linux, ..self }
    }

    pub const fn batch(self, batch: usize) -> Self {
        Self { batch, ..self }
    }

    pub const fn about(self, about: &'static str) -> Self {
        Self { about, ..self }
    }

    pub const fn weight(self, weight: usize) -> Self {
        Self { weight, ..self }
    }

    pub const fn rules(self, rules: &'static [Rule]) -> Self {
        Self { rules, ..self }
    }

    pub const fn buffers_a_fault(self, buffers_a_fault: u64) -> Self {
        Self { buffers_a_fault, ..self }
    }

    pub const fn beside(self, beside: MakeReady) -> Self {
        Self { beside: Some(beside), ..self }
    }
}

/// One side of a workload; the argument is the number of buffers.
pub type RunSide = Box<dyn FnMut(usize)>;
/// The side that runs on the second core.
pub type SendSide = Box<dyn FnMut(usize) + Send>;

/// A workload ready to run: memory is reserved, pools are filled, handles are held.
pub struct Ready {
    /// The code to run.
    pub body: Body,
    /// Reads the counters that the rules check.
    pub counters: Box<dyn Fn() -> Counted>,
    /// The number of distinct offsets at which the packets of the held handles begin, if that matters.
    pub colours: Option<usize>,
}

/// The sides of a workload.
pub enum Body {
    /// Runs on the owner's core.
    OneCore(RunSide),
    /// Run on the owner's core and on a second one.
    TwoCores(RunSide, SendSide),
}

impl Ready {
    /// A workload on one core, without counters.
    pub fn one_core(run: impl FnMut(usize) + 'static) -> Self {
        Self { body: Body::OneCore(Box::new(run)), counters: Box::new(Counted::default), colours: None }
    }

    /// A workload on two cores, without counters.
    pub fn two_cores(
        produce: impl FnMut(usize) + 'static,
        consume: impl FnMut(usize) + Send + 'static,
    ) -> Self {
        let body = Body::TwoCores(Box::new(produce), Box::new(consume));
        Self { body, counters: Box::new(Counted::default), colours: None }
    }

    /// Adds the counters that its rules check.
    pub fn counting(self, counters: impl Fn() -> Counted + 'static) -> Self {
        Self { counters: Box::new(counters), ..self }
    }

    /// Adds the number of distinct packet offsets.
    pub fn coloured(self, colours: usize) -> Self {
        Self { colours: Some(colours), ..self }
    }
}
