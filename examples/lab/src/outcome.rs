//! The outcome of a run, and medians over several.

use std::fmt;

/// Why the example cannot run here.
#[derive(Debug)]
pub struct Skip(pub String);

impl fmt::Display for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Skip {}

/// The outcome of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The unit: packets or bytes.
    pub what: &'static str,
    /// How many arrived once and unchanged.
    pub moved: u64,
    /// How many did not arrive.
    pub missing: u64,
    /// How many arrived changed, or again.
    pub wrong: u64,
    /// Number of buffers.
    pub buffers: u64,
    /// Buffers that are free at the end.
    pub returned: u64,
    /// Costs: a label, and ticks per unit.
    pub cost: Vec<(&'static str, f64)>,
    /// Other events, and how often they happened.
    pub events: Vec<(&'static str, u64)>,
}

impl Outcome {
    /// Whether all data arrived and all buffers returned.
    pub fn is_complete(&self) -> bool {
        (self.missing, self.wrong, self.returned) == (0, 0, self.buffers)
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, moved, missing, wrong, buffers, returned, cost, events } = self;
        write!(
            f,
            "{moved} {what} moved, {missing} missing, {wrong} wrong, {returned} of {buffers} buffers returned"
        )?;
        events.iter().try_for_each(|(name, count)| write!(f, ", {name} {count}"))?;
        cost.iter().try_for_each(|(label, ticks)| write!(f, "; {label} {ticks:.1}"))
    }
}

/// The median, the least and the most of each cost.
pub(crate) fn medians(outcomes: &[Outcome]) -> String {
    let names = outcomes.first().map_or(&[][..], |outcome| &outcome.cost);
    let summary = |at: usize| {
        let mut all: Vec<f64> = outcomes.iter().map(|outcome| outcome.cost[at].1).collect();
        all.sort_by(f64::total_cmp);
        let (least, median, most) = (all[0], all[all.len() / 2], all[all.len() - 1]);
        format!("{} {median:.1} [{least:.1} to {most:.1}]", names[at].0)
    };
    (0..names.len()).map(summary).collect::<Vec<_>>().join("; ")
}
