//! What a pool counted over a measured part, and what it must have counted.
//!
//! A workload's time means nothing if it took another path than its name says. Therefore each names the
//! counters that must move, and by how much per buffer; every other counter must stand still.

use std::collections::BTreeMap;

use serde::Serialize;

/// By name. Empty without a pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Counted(pub BTreeMap<&'static str, u64>);

impl Counted {
    pub fn from_fields(fields: impl IntoIterator<Item = (&'static str, u64)>) -> Self {
        Self(fields.into_iter().collect())
    }

    /// What was counted since `earlier`; counters may wrap.
    pub fn since(&self, earlier: &Self) -> Self {
        let before = |name| earlier.0.get(name).copied().unwrap_or(0);
        Self(self.0.iter().map(|(&name, &now)| (name, now.wrapping_sub(before(name)))).collect())
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Moves {
    /// Exactly once per buffer.
    Each,
    /// `.0` times in `.1` buffers, give or take 1 % and 32.
    Share(u64, u64),
    Any,
    /// By at most `.0` in `.1` buffers.
    AtMost(u64, u64),
}

/// Counters whose sum must move this far.
#[derive(Clone, Copy, Debug)]
pub struct Rule(pub &'static [&'static str], pub Moves);

/// Checks the rules over `buffers` buffers, and that no other counter moved.
pub fn check(counted: &Counted, rules: &[Rule], buffers: u64) -> Result<(), String> {
    for Rule(names, moves) in rules {
        let mut sum = 0;
        for name in *names {
            sum += counted.0.get(name).ok_or_else(|| format!("there is no counter {name}"))?;
        }
        if let Some(must) = wrong(sum, *moves, buffers) {
            return Err(format!("{} is {sum} over {buffers} buffers, but must be {must}", names.join(" + ")));
        }
    }
    let named = |name: &str| rules.iter().any(|rule| rule.0.contains(&name));
    match counted.0.iter().find(|&(name, &value)| value != 0 && !named(name)) {
        Some((name, value)) => Err(format!("{name} is {value} over {buffers} buffers, but must be 0")),
        None => Ok(()),
    }
}

/// What the sum must be; `None` if it is right.
fn wrong(sum: u64, moves: Moves, buffers: u64) -> Option<String> {
    match moves {
        Moves::Any => None,
        Moves::Each => (sum != buffers).then(|| buffers.to_string()),
        Moves::Share(part, whole) => {
            let ideal = buffers * part / whole;
            (sum.abs_diff(ideal) > ideal / 100 + 32).then(|| format!("about {ideal}"))
        }
        Moves::AtMost(part, whole) => {
            let most = buffers * part / whole;
            (sum > most).then(|| format!("at most {most}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIRECT: &[Rule] = &[Rule(&["alloc_fast"], Moves::Each), Rule(&["recycle_cached"], Moves::Each)];

    fn counted(fields: &[(&'static str, u64)]) -> Counted {
        Counted::from_fields(fields.iter().copied())
    }

    #[test]
    fn accepts_what_fits() {
        let fits = counted(&[("alloc_fast", 100), ("recycle_cached", 100), ("alloc_slow", 0)]);
        assert_eq!(check(&fits, DIRECT, 100), Ok(()));
    }

    #[test]
    fn refuses_a_counter_that_moved_too_little() {
        let short = counted(&[("alloc_fast", 99), ("recycle_cached", 100)]);
        let why = check(&short, DIRECT, 100).expect_err("one page came from elsewhere");
        assert!(why.contains("alloc_fast is 99"), "{why}");
    }

    #[test]
    fn refuses_a_counter_that_no_rule_names() {
        let slow = counted(&[("alloc_fast", 100), ("recycle_cached", 100), ("alloc_slow", 1)]);
        let why = check(&slow, DIRECT, 100).expect_err("the slow path was taken");
        assert!(why.contains("alloc_slow is 1"), "{why}");
    }

    #[test]
    fn refuses_a_rule_about_a_counter_that_is_not_there() {
        let why = check(&counted(&[]), DIRECT, 100).expect_err("no counters at all");
        assert!(why.contains("no counter alloc_fast"), "{why}");
    }

    #[test]
    fn sums_and_shares_and_bounds() {
        let rules = [
            Rule(&["fast", "refill"], Moves::Each),
            Rule(&["refill"], Moves::Share(1, 64)),
            Rule(&["empty"], Moves::AtMost(1, 100)),
            Rule(&["hold"], Moves::Any),
        ];
        let good = counted(&[("fast", 63_000), ("refill", 1_000), ("empty", 640), ("hold", 7)]);
        assert_eq!(check(&good, &rules, 64_000), Ok(()));
        let bad = counted(&[("fast", 62_000), ("refill", 2_000), ("empty", 0), ("hold", 7)]);
        assert!(check(&bad, &rules, 64_000).is_err());
        let bad = counted(&[("fast", 63_000), ("refill", 1_000), ("empty", 641), ("hold", 7)]);
        assert!(check(&bad, &rules, 64_000).is_err());
    }

    #[test]
    fn takes_differences_across_wrap() {
        let (before, after) = (counted(&[("hold", u64::MAX)]), counted(&[("hold", 1)]));
        assert_eq!(after.since(&before), counted(&[("hold", 2)]));
    }
}
