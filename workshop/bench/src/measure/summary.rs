//! Summarises one figure over several repetitions.

use serde::Serialize;

use super::clock;

/// Per buffer. All `None` for a workload that did not run.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Times {
    pub ns_min: Option<f64>,
    pub ns_med: Option<f64>,
    pub ns_max: Option<f64>,
    pub tsc_med: Option<f64>,
}

impl Times {
    /// From the ticks of each repetition.
    pub fn of(ticks: &[f64]) -> Self {
        let Some(Summary { min, med, max }) = Summary::of(ticks) else { return Self::default() };
        let [ns_min, ns_med, ns_max] = [min, med, max].map(|ticks| Some(ticks / clock::ticks_per_ns()));
        Self { ns_min, ns_med, ns_max, tsc_med: Some(med) }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    pub min: f64,
    /// The middle value, or the mean of the two in the middle.
    pub med: f64,
    pub max: f64,
}

impl Summary {
    /// `None` without a value.
    pub fn of(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let half = sorted.len() / 2;
        let med = if sorted.len() % 2 == 1 { sorted[half] } else { (sorted[half - 1] + sorted[half]) / 2.0 };
        Some(Self { min, med, max })
    }

    /// `None` without a value.
    pub fn median(values: &[f64]) -> Option<f64> {
        Some(Self::of(values)?.med)
    }
}

/// "-" for `None`; no decimals from 1000 on.
pub fn cell(value: Option<f64>, decimals: usize) -> String {
    match value {
        None => "-".into(),
        Some(value) if value >= 1000.0 => format!("{value:.0}"),
        Some(value) => format!("{value:.decimals$}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_nothing_is_nothing() {
        assert_eq!(Summary::of(&[]), None);
    }

    #[test]
    fn takes_the_middle_of_an_odd_number() {
        let summary = Summary::of(&[9.0, 1.0, 4.0]);
        assert_eq!(summary, Some(Summary { min: 1.0, med: 4.0, max: 9.0 }));
    }

    #[test]
    fn takes_the_mean_of_the_two_in_the_middle_of_an_even_number() {
        let summary = Summary::of(&[8.0, 2.0, 1.0, 4.0]);
        assert_eq!(summary, Some(Summary { min: 1.0, med: 3.0, max: 8.0 }));
    }

    #[test]
    fn times_are_ticks_in_nanoseconds() {
        let (times, per_ns) = (Times::of(&[2.0, 1.0, 4.0]), clock::ticks_per_ns());
        assert_eq!([times.ns_min, times.ns_med, times.ns_max], [1.0, 2.0, 4.0].map(|n| Some(n / per_ns)));
        assert_eq!(times.tsc_med, Some(2.0));
        assert_eq!(Times::of(&[]).ns_med, None);
    }
}
