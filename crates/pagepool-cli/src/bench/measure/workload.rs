//! What a workload is: a row that names it, and what it needs to run, made ready.

use crate::bench::measure::counted::{Counted, Rule};

/// How often, and over how many buffers.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Measured repetitions, after one that is dropped.
    pub repeats: usize,
    /// Buffers in a repetition; a multiple of 1024.
    pub buffers: usize,
}

impl Plan {
    /// The peers' harness: 11 repetitions of 2^18 buffers.
    pub const FULL: Self = Self { repeats: 11, buffers: 1 << 18 };
    /// For a look, or a test: 9 of 2^14.
    pub const QUICK: Self = Self { repeats: 9, buffers: 1 << 14 };

    /// The same with fewer buffers, for what takes long.
    pub fn lighter(self, by: usize) -> Self {
        Self { buffers: (self.buffers / by).max(1024), ..self }
    }
}

/// A row of a table of workloads. Adding one: a function that makes it ready, and a row.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    /// Our name.
    pub name: &'static str,
    /// Linux's name for the same, or "-".
    pub linux: &'static str,
    /// Buffers in a call.
    pub batch: usize,
    /// One iteration, in words.
    pub about: &'static str,
    /// How many times fewer buffers it runs over than the plan says.
    pub weight: usize,
    /// The counters that must move; all others must stand still.
    pub rules: &'static [Rule],
    /// Buffers for each page fault that is forgiven; 0 forgives none.
    pub buffers_a_fault: u64,
    /// What this one is held against: a workload on as many cores, measured in turns with it, repetition by
    /// repetition.
    pub beside: Option<MakeReady>,
    /// Makes it ready to run.
    pub ready: MakeReady,
}

/// Makes a workload ready to run.
pub type MakeReady = fn() -> Result<Ready, String>;

/// A row names what differs from the usual: Linux has no such workload, a call is for one buffer, no counter
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

/// One side of a workload: runs over so many buffers.
pub type RunSide = Box<dyn FnMut(usize)>;
/// The side that runs on the second core.
pub type SendSide = Box<dyn FnMut(usize) + Send>;

/// A workload made ready: memory reserved, pools filled, handles held.
pub struct Ready {
    /// What runs.
    pub body: Body,
    /// Reads the counters that the rules are about.
    pub counters: Box<dyn Fn() -> Counted>,
    /// Distinct offsets at which packet data begins among the handles held, where that matters.
    pub colours: Option<usize>,
}

/// Where it runs.
pub enum Body {
    /// On the owner's core.
    OneCore(RunSide),
    /// On the owner's core and on a second one.
    TwoCores(RunSide, SendSide),
}

impl Ready {
    /// One core, no counters.
    pub fn one_core(run: impl FnMut(usize) + 'static) -> Self {
        Self { body: Body::OneCore(Box::new(run)), counters: Box::new(Counted::default), colours: None }
    }

    /// Two cores, no counters.
    pub fn two_cores(
        produce: impl FnMut(usize) + 'static,
        consume: impl FnMut(usize) + Send + 'static,
    ) -> Self {
        let body = Body::TwoCores(Box::new(produce), Box::new(consume));
        Self { body, counters: Box::new(Counted::default), colours: None }
    }

    /// With the counters that its rules are about.
    pub fn counting(self, counters: impl Fn() -> Counted + 'static) -> Self {
        Self { counters: Box::new(counters), ..self }
    }

    /// With the number of distinct packet offsets.
    pub fn coloured(self, colours: usize) -> Self {
        Self { colours: Some(colours), ..self }
    }
}
