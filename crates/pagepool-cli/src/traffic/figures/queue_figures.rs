//! The figures of some queues between two looks, for JSON lines.

use pagepool::Inflight;
use pagepool_watch::commands::places;
use serde_json::{Map, Value};

use crate::report::object;
use crate::traffic::figures::losses;
use crate::traffic::{PortSample, figures, sum};

pub type NamedCounts = Vec<(&'static str, u64)>;

/// Packets of some queues in total, since the previous look and per second; and where their buffers are.
/// `warm`: the counts at the end of the warm-up. `before`: those at the previous look, so many seconds ago.
pub fn fields([warm, before, now]: [&[PortSample]; 3], seconds: f64) -> Map<String, Value> {
    let mut fields = total_period_rate(&packets(before), &packets(now), seconds);
    let mut by_reason =
        total_period_rate(&losses::counts(before).collect(), &losses::counts(now).collect(), seconds);
    for since in ["total", "period"] {
        fields[since]["lost"] = by_reason[since].take();
    }
    fields.insert("pages".into(), object(pages(now)).into());
    fields.insert("buffer_locations".into(), object(figures::buffer_locations(now)).into());
    fields.insert("recycled_percent".into(), figures::recycled_percent(warm, now).into());
    fields.insert("slow_after_warmup".into(), figures::slow(warm, now).into());
    fields
}

/// Counts as `total`, their growth since the previous look as `period`, and the growth per second as `rate`.
/// A count may shrink: the kernel can report late, for example, that it dropped a packet that was sent.
pub fn total_period_rate(before: &NamedCounts, now: &NamedCounts, seconds: f64) -> Map<String, Value> {
    let both = now.iter().zip(before);
    let grown = both.map(|((key, now), (_, before))| (*key, now.cast_signed() - before.cast_signed()));
    let rate = grown.clone().map(|(key, grown)| (key, grown as f64 / seconds));
    object([("total", object(now.iter().copied())), ("period", object(grown)), ("rate", object(rate))])
}

/// Packets received, sent and lost, by the names of the verdict.
fn packets(ports: &[PortSample]) -> NamedCounts {
    vec![
        ("received", sum(ports, |at| at.nic.rx_packets)),
        ("sent", sum(ports, PortSample::sent)),
        ("dropped", sum(ports, |at| at.port.drop)),
        ("received_bytes", sum(ports, |at| at.nic.rx_bytes)),
        ("sent_bytes", sum(ports, PortSample::sent_bytes)),
        ("lost_total", losses::total(ports)),
    ]
}

/// Where the pages of the pools are, and how many pages of any pool the NICs have.
fn pages(ports: &[PortSample]) -> NamedCounts {
    let mut all = NamedCounts::from(places(&Inflight::default()));
    for at in ports {
        all.iter_mut().zip(places(&at.pool.1)).for_each(|((_, sum), (_, pages))| *sum += pages);
    }
    all.extend([("rx", sum(ports, |at| at.nic.in_rx)), ("tx", sum(ports, |at| at.nic.in_tx))]);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_drops_are_subtracted_from_the_period_that_sees_them() {
        let mut before = PortSample::default();
        (before.nic.tx_packets, before.nic.tx_completed, before.nic.tx_bytes) = (10, 10, 640);
        let mut now = before;
        now.nic.tx_dropped = 4;
        let [before, now] = [[before], [now]];
        let warm = [PortSample::default()];
        let fields = fields([&warm, &before, &now], 0.5);
        assert_eq!((&fields["total"]["sent"], &fields["period"]["sent"]), (&6.into(), &(-4).into()));
        assert_eq!(
            (&fields["rate"]["sent"], &fields["period"]["sent_bytes"]),
            (&(-8.0).into(), &(-256).into())
        );
        let (total, period) = (&fields["total"]["lost"], &fields["period"]["lost"]);
        assert_eq!(
            (&total["tx_dropped"], &period["tx_dropped"], &period["too_short"]),
            (&4.into(), &4.into(), &0.into())
        );
        assert_eq!(fields["period"]["lost_total"], 4);
        assert!(fields["rate"].get("lost").is_none() && fields["recycled_percent"].is_null());
    }

    #[test]
    fn of_no_time_there_is_no_rate() {
        let fields = total_period_rate(&vec![("x", 1)], &vec![("x", 1)], 0.0);
        assert!(fields["rate"]["x"].is_null() && fields["period"]["x"] == 0, "{fields:?}");
    }
}
