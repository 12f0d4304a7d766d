//! One figure over several repetitions.

use serde::Serialize;

/// Minimum, median and maximum.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// The smallest.
    pub min: f64,
    /// The middle one, or the mean of the two in the middle.
    pub med: f64,
    /// The largest.
    pub max: f64,
}

impl Summary {
    /// Of the values given, `None` of no values.
    pub fn of(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let half = sorted.len() / 2;
        let med = if sorted.len() % 2 == 1 { sorted[half] } else { (sorted[half - 1] + sorted[half]) / 2.0 };
        Some(Self { min, med, max })
    }

    /// The same in another unit.
    pub fn scaled(self, factor: f64) -> Self {
        Self { min: self.min * factor, med: self.med * factor, max: self.max * factor }
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
    fn scales_all_three() {
        let summary = Summary { min: 1.0, med: 2.0, max: 4.0 }.scaled(0.5);
        assert_eq!(summary, Summary { min: 0.5, med: 1.0, max: 2.0 });
    }
}
