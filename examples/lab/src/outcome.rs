//! What came of a run, and of several.

use std::fmt;

/// The example cannot run here: why.
#[derive(Debug)]
pub struct Missing(pub String);

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Missing {}

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What moved: packets, bytes.
    pub what: &'static str,
    /// How many arrived, each once and as it was sent.
    pub moved: u64,
    /// How many did not arrive.
    pub missing: u64,
    /// How many arrived that were changed, or that had arrived before.
    pub wrong: u64,
    /// Buffers there are.
    pub buffers: u64,
    /// Buffers that are free again at the end.
    pub home: u64,
    /// What it cost: of what, and how many ticks each.
    pub cost: Vec<(&'static str, f64)>,
    /// What else happened, and how often.
    pub events: Vec<(&'static str, u64)>,
}

impl Outcome {
    /// Whether all arrived, and all buffers are home.
    pub fn is_whole(&self) -> bool {
        (self.missing, self.wrong, self.home) == (0, 0, self.buffers)
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, moved, missing, wrong, buffers, home, cost, events } = self;
        write!(
            f,
            "{moved} {what} moved, {missing} missing, {wrong} wrong, {home} of {buffers} buffers home"
        )?;
        events.iter().try_for_each(|(name, count)| write!(f, ", {name} {count}"))?;
        cost.iter().try_for_each(|(of, ticks)| write!(f, "; {of} {ticks:.1}"))
    }
}

/// The medians of each cost, with the least and the most.
pub(crate) fn medians(outcomes: &[Outcome]) -> String {
    let names = outcomes.first().map_or(&[][..], |outcome| &outcome.cost);
    let of = |at: usize| {
        let mut all: Vec<f64> = outcomes.iter().map(|outcome| outcome.cost[at].1).collect();
        all.sort_by(f64::total_cmp);
        let (least, median, most) = (all[0], all[all.len() / 2], all[all.len() - 1]);
        format!("{} {median:.1} [{least:.1} to {most:.1}]", names[at].0)
    };
    (0..names.len()).map(of).collect::<Vec<_>>().join("; ")
}
