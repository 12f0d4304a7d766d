//! The history of each pool, for the detail view.

use std::collections::{BTreeMap, VecDeque};

use super::row_key::RowKey;
use super::rows::{RowRates, TopRow};

/// Looks kept per pool.
const KEPT: usize = 300;

/// A pool missing from more looks is forgotten. A few may miss it: its file may be damaged for a moment.
const MOST_MISSED: u32 = 16;

/// The rates at a look, and the pages out, or of a kernel pool all its pages.
pub type PastLook = (RowRates, u64);

#[derive(Debug, Default)]
struct PoolHistory {
    looks: VecDeque<PastLook>,
    /// Looks since the pool was last seen.
    missed: u32,
}

#[derive(Debug, Default)]
pub struct History(BTreeMap<RowKey, PoolHistory>);

impl History {
    /// Adds a look, and forgets pools that are gone.
    pub fn add(&mut self, rows: &[TopRow]) {
        self.0.values_mut().for_each(|pool| pool.missed += 1);
        self.0.retain(|_, pool| pool.missed <= MOST_MISSED);
        for row in rows {
            let PoolHistory { looks, missed } = self.0.entry(row.key.clone()).or_default();
            *missed = 0;
            if let Some(rates) = row.rates {
                looks.push_back((rates, row.out.unwrap_or(row.pages)));
            }
            while looks.len() > KEPT {
                looks.pop_front();
            }
        }
    }

    /// The last looks at a pool, at most `count`, the oldest first.
    pub fn last(&self, key: &RowKey, count: usize) -> Vec<PastLook> {
        let Some(PoolHistory { looks, .. }) = self.0.get(key) else { return Vec::new() };
        looks.iter().skip(looks.len().saturating_sub(count)).copied().collect()
    }
}

/// A line of bars, scaled to the largest figure.
pub fn sparkline(figures: &[f64]) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let most = figures.iter().copied().fold(0.0, f64::max);
    let bar = |figure: &f64| match *figure > 0.0 {
        true => BARS[((figure / most * 8.0).ceil() as usize).clamp(1, 8) - 1],
        false => ' ',
    };
    figures.iter().map(bar).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sparkline_is_highest_at_the_maximum_and_blank_at_0() {
        assert_eq!(sparkline(&[0.0, 1.0, 4.0, 8.0]), " ▁▄█");
        assert_eq!(sparkline(&[0.0; 3]), "   ");
        assert_eq!(sparkline(&[]), "");
    }
}
