//! The share of packets that a run lost, where it lost them, and how many it may lose.

use clap::Args;
use serde::Serialize;
use serde_json::{Map, Value};

use super::number::grouped;
use super::option_groups::OUTPUT;

#[derive(Args, Clone, Copy, Debug, Default)]
pub struct LossLimit {
    /// Fail if more packets are lost [default: no limit]
    ///
    /// PERCENT of the packets, such as 5 or 0.1. The last line of the verdict always says which share was
    /// lost, and where.
    #[arg(long, value_name = "PERCENT", value_parser = percent, help_heading = OUTPUT)]
    pub max_loss: Option<f64>,
}

fn percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).trim_end().parse();
    let percent = number.ok().filter(|percent| (0.0..=100.0).contains(percent));
    percent.ok_or_else(|| format!("'{text}' is not a percentage, 0 to 100"))
}

#[derive(Clone, Debug, Serialize)]
pub struct LossShare {
    packets: u64,
    lost: u64,
    percent: f64,
    /// The share that the limit applies to.
    #[serde(skip)]
    judged: f64,
    /// Places without losses are left out.
    places: Map<String, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_percent: Option<f64>,
}

impl LossShare {
    /// Makes the share from the number of packets and the losses by place. A place may appear several times.
    pub fn new(
        packets: u64,
        places: impl IntoIterator<Item = (&'static str, u64)>,
        limit: LossLimit,
    ) -> Self {
        let (mut lost, mut named) = (0_u64, Map::new());
        for (place, count) in places.into_iter().filter(|(_, count)| *count > 0) {
            let before = named.get(place).and_then(Value::as_u64).unwrap_or(0);
            named.insert(place.to_owned(), (before + count).into());
            lost += count;
        }
        let packets = packets.max(lost);
        let percent = if packets == 0 { 0.0 } else { lost as f64 * 100.0 / packets as f64 };
        Self { packets, lost, percent, judged: percent, places: named, max_percent: limit.max_loss }
    }

    /// Applies the limit to the share of `other`, which leaves out losses that an outside fault caused.
    pub fn judged_by(self, other: &Self) -> Self {
        Self { judged: other.percent, ..self }
    }

    /// Why the run failed, if it lost more than the limit.
    pub fn failure(&self) -> Option<String> {
        let most = self.max_percent.filter(|most| self.judged > *most)?;
        Some(format!("more packets were lost than --max-loss {most} allows"))
    }

    /// The text for the last line; `None` without packets.
    pub fn summary(&self) -> Option<String> {
        let Self { packets, lost, .. } = *self;
        let all = grouped(packets);
        match (packets, lost) {
            (0, _) => None,
            (_, 0) => Some(format!("no packet of {all} was lost")),
            _ => {
                let place = |(place, count): (&String, &Value)| {
                    format!("{place} {}", share(count.as_u64()?, packets)).into()
                };
                let places: Vec<String> = self.places.iter().filter_map(place).collect();
                Some(format!("{} of {all} packets were lost ({})", share(lost, packets), places.join(", ")))
            }
        }
    }
}

/// A share in percent; 0 or 100 only for none or all.
fn share(part: u64, all: u64) -> String {
    match part as f64 * 100.0 / all as f64 {
        percent if part > 0 && percent < 0.05 => "under 0.1 %".into(),
        percent if part < all && percent >= 99.95 => "over 99.9 %".into(),
        percent => format!("{percent:.1} %"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO_LIMIT: LossLimit = LossLimit { max_loss: None };

    #[test]
    fn a_share_is_of_all_packets_and_has_its_places() {
        let summary = |packets, places: &[(&'static str, u64)]| {
            LossShare::new(packets, places.to_vec(), NO_LIMIT).summary()
        };
        assert_eq!(summary(0, &[("transmit", 0)]), None);
        assert_eq!(summary(2000, &[("transmit", 0)]).unwrap(), "no packet of 2,000 was lost");
        let echo = summary(203_841, &[("no buffer", 60_000), ("transmit", 40_000), ("no buffer", 5_985)]);
        assert_eq!(echo.unwrap(), "52.0 % of 203,841 packets were lost (no buffer 32.4 %, transmit 19.6 %)");
        let few = summary(1_000_000, &[("transmit", 1)]).unwrap();
        assert_eq!(few, "under 0.1 % of 1,000,000 packets were lost (transmit under 0.1 %)");
        assert!(summary(1_000_000, &[("x", 999_999)]).unwrap().starts_with("over 99.9 % of"));
        assert!(summary(3, &[("x", 5)]).unwrap().starts_with("100.0 % of 5"), "counts of several moments");
    }

    #[test]
    fn a_limit_is_a_percentage_and_may_be_reached() {
        for (text, is) in [("5", 5.0), ("0.1", 0.1), ("0", 0.0), ("100%", 100.0), ("2.5 %", 2.5)] {
            assert_eq!(percent(text), Ok(is), "{text}");
        }
        for bad in ["", "%", "x", "-1", "101", "NaN", "inf", "1,5"] {
            assert_eq!(percent(bad), Err(format!("'{bad}' is not a percentage, 0 to 100")));
        }
        let failure =
            |lost, most| LossShare::new(1000, [("x", lost)], LossLimit { max_loss: Some(most) }).failure();
        assert_eq!((failure(50, 5.0), failure(0, 0.0)), (None, None));
        assert_eq!(failure(51, 5.0).unwrap(), "more packets were lost than --max-loss 5 allows");
        assert!(failure(1, 0.0).is_some());
        assert!(LossShare::new(1, [("x", 1)], NO_LIMIT).failure().is_none());
        let none = LossLimit { max_loss: Some(0.0) };
        let [all, before] = [2, 0].map(|lost| LossShare::new(10, [("x", lost)], none));
        assert!(before.clone().judged_by(&all).failure().is_some());
        let all = all.judged_by(&before);
        assert_eq!((all.failure(), all.summary().unwrap().split(' ').next()), (None, Some("20.0")));
    }
}
