//! A workload: a row that describes it, and its runnable form.

use crate::measure::counted::{Counted, Rule};

#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Measured repetitions, after a warm-up.
    pub repeats: usize,
    /// Per repetition; a multiple of 1024.
    pub buffers: usize,
}

impl Plan {
    /// As in the peers' harness.
    pub const FULL: Self = Self { repeats: 11, buffers: 1 << 18 };
    /// For tests.
    pub const QUICK: Self = Self { repeats: 9, buffers: 1 << 14 };

    /// Fewer buffers, for slow workloads.
    pub fn lighter(self, by: usize) -> Self {
        Self { buffers: (self.buffers / by).max(1024), ..self }
    }
}

/// A row of a table. To add one, write a function that makes it ready, and add a row.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    pub name: &'static str,
    /// Linux's equivalent, or "-".
    pub linux: &'static str,
    /// Buffers per call.
    pub batch: usize,
    /// One iteration, in words.
    pub about: &'static str,
    /// Divides the plan's buffers.
    pub weight: usize,
    /// Counters that must move; all others must stand still.
    pub rules: &'static [Rule],
    /// Buffers per tolerated page fault; 0 tolerates none.
    pub buffers_a_fault: u64,
    /// The workload to compare with: it runs on as many cores, and repetitions of the two alternate.
    pub beside: Option<MakeReady>,
    pub ready: MakeReady,
}

pub type MakeReady = fn() -> Result<Ready, String>;

/// Sets only what differs from the defaults: no equivalent in Linux, one buffer per call, no counter moves.
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

/// Runs over this many buffers.
pub type RunSide = Box<dyn FnMut(usize)>;
/// Runs on the second core.
pub type SendSide = Box<dyn FnMut(usize) + Send>;

/// Memory is reserved, pools are filled, handles are held.
pub struct Ready {
    pub body: Body,
    /// The counters that the rules check.
    pub counters: Box<dyn Fn() -> Counted>,
    /// The number of offsets at which packets of the held handles begin, if that matters.
    pub colours: Option<usize>,
}

pub enum Body {
    /// On the owner's core.
    OneCore(RunSide),
    /// On the owner's core, and on a second one.
    TwoCores(RunSide, SendSide),
}

impl Ready {
    /// Without counters.
    pub fn one_core(run: impl FnMut(usize) + 'static) -> Self {
        Self { body: Body::OneCore(Box::new(run)), counters: Box::new(Counted::default), colours: None }
    }

    /// Without counters.
    pub fn two_cores(
        produce: impl FnMut(usize) + 'static,
        consume: impl FnMut(usize) + Send + 'static,
    ) -> Self {
        let body = Body::TwoCores(Box::new(produce), Box::new(consume));
        Self { body, counters: Box::new(Counted::default), colours: None }
    }

    pub fn counting(self, counters: impl Fn() -> Counted + 'static) -> Self {
        Self { counters: Box::new(counters), ..self }
    }

    pub fn coloured(self, colours: usize) -> Self {
        Self { colours: Some(colours), ..self }
    }
}
