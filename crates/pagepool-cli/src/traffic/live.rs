//! What is printed while a command runs: every so many seconds some lines.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::course::{Course, End, Sample};
use super::losses::{self, LOSSES};
use super::options::Options;
use crate::figures::{self, grouped};
use crate::sample::PortSample;

/// How often it is looked whether it shall end.
const LOOK: Duration = Duration::from_millis(20);

/// Lets the threads work until it is time, they have come to an end, or the user wants one. Prints figures if it is to.
pub fn watch(course: &Course, warm: &Sample, options: &Options, interrupted: &AtomicBool) -> End {
    let start = Instant::now();
    let limit = options.seconds.map(Duration::from_secs);
    let every = options.stats_every().map(Duration::from_secs);
    let (mut before, mut shown) = (Moment { at: Duration::ZERO, sample: warm.clone() }, 1);
    loop {
        let at = start.elapsed();
        if let Some(every) = every.filter(|every| at >= *every * shown) {
            let now = Moment { at, sample: course.sample() };
            options.say(&figures_of(&before, &now, warm));
            before = now;
            shown = (at.as_secs_f64() / every.as_secs_f64()) as u32 + 1;
        }
        if interrupted.load(Ordering::Relaxed) {
            return End::Interrupted;
        }
        if limit.is_some_and(|limit| at >= limit) {
            return End::Time;
        }
        if let Some(end) = course.end() {
            return end;
        }
        std::thread::sleep(LOOK);
    }
}

/// What is known at one time.
struct Moment {
    at: Duration,
    sample: Sample,
}

/// Packets and their bytes.
#[derive(Clone, Copy)]
struct Amount(u64, u64);

fn received(ports: &[PortSample]) -> Amount {
    Amount(ports.iter().map(|at| at.nic.rx_packets).sum(), ports.iter().map(|at| at.nic.rx_bytes).sum())
}

fn sent(ports: &[PortSample]) -> Amount {
    Amount(ports.iter().map(|at| at.nic.tx_completed).sum(), ports.iter().map(|at| at.nic.tx_bytes).sum())
}

/// What moved since the last time, and where everything is now.
fn figures_of(before: &Moment, now: &Moment, warm: &Sample) -> String {
    let took = (now.at - before.at).as_secs_f64();
    let rate = |of: fn(&[PortSample]) -> Amount| {
        let (Amount(packets, bytes), Amount(old, old_bytes)) =
            (of(&now.sample.ports), of(&before.sample.ports));
        let packets = packets.saturating_sub(old) as f64 / took;
        let mbit_s = bytes.saturating_sub(old_bytes) as f64 * 8e-6 / took;
        format!("{:>11}/s {mbit_s:>8.1} Mbit/s", grouped(packets as u64))
    };
    let ports = &now.sample.ports;
    let mut text = format!("{:>4}s  in {}   out {}", now.at.as_secs(), rate(received), rate(sent));
    text += &format!("\n       {}", pages(ports, &warm.ports));
    text += &format!("\n       {}", Places::of(ports).said());
    if let Some(checked) = now.sample.checked {
        text += &format!(
            "\n       numbered: good {}, damaged {}",
            grouped(checked.good),
            grouped(checked.corrupt)
        );
    }
    for line in lost(&before.sample.ports, ports, took) {
        text += &format!("\n       {line}");
    }
    text
}

fn pages(ports: &[PortSample], warm: &[PortSample]) -> String {
    let places = figures::places(ports);
    let recycled =
        figures::recycled_percent(warm, ports).map_or("nothing".into(), |percent| format!("{percent:.2} %"));
    format!(
        "pool: recycled {recycled}, slow {}; idle {}",
        grouped(figures::slow(warm, ports)),
        grouped(places.cache + places.lanes + places.ring)
    )
}

/// Buffers that are not in their pools, by where they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Places {
    /// On fill rings.
    pub fill: u64,
    /// On receive rings.
    pub receive: u64,
    /// On transmit rings.
    pub transmit: u64,
    /// On completion rings.
    pub completion: u64,
    /// In the kernel: taken off a ring, and on none.
    pub kernel: u64,
    /// Refused by the kernel, and kept by it until the end.
    pub rejected: u64,
    /// With us: those that wait for a transmit ring.
    pub held: u64,
}

impl Places {
    /// Where they are.
    pub fn of(ports: &[PortSample]) -> Self {
        let mut all = Self { held: ports.iter().map(|at| at.waiting).sum(), ..Self::default() };
        for xsk in ports.iter().filter_map(|at| at.xsk) {
            all.fill += xsk.fill;
            all.receive += xsk.received;
            all.transmit += xsk.transmit;
            all.completion += xsk.completed;
            all.kernel += xsk.rx_in_kernel + xsk.tx_in_kernel;
            all.rejected += xsk.rejected;
        }
        all
    }

    /// All of them.
    pub fn total(&self) -> u64 {
        self.fill + self.receive + self.transmit + self.completion + self.kernel + self.rejected + self.held
    }

    fn said(&self) -> String {
        format!(
            "out {}: fill {}, receive {}, transmit {}, completion {}, kernel {}, rejected {}, held {}",
            grouped(self.total()),
            grouped(self.fill),
            grouped(self.receive),
            grouped(self.transmit),
            grouped(self.completion),
            grouped(self.kernel),
            grouped(self.rejected),
            grouped(self.held)
        )
    }
}

/// What was lost since the last time, by reason, and what else the kernel counts.
fn lost(before: &[PortSample], now: &[PortSample], took: f64) -> Vec<String> {
    let mut lines = Vec::new();
    for loss in &LOSSES {
        let new = loss.count(now) - loss.count(before).min(loss.count(now));
        if new > 0 {
            lines.push(format!("lost {}/s: {}", grouped((new as f64 / took) as u64), loss.what));
        }
    }
    let empty = |ports: &[PortSample]| {
        ports.iter().filter_map(|at| at.xsk).map(|xsk| xsk.rx_fill_ring_empty).sum::<u64>()
    };
    if empty(now) > empty(before) && losses::total(now) == losses::total(before) {
        lines.push(format!(
            "the kernel found the fill ring empty {} times",
            grouped(empty(now) - empty(before))
        ));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagepool_net::XskStats;

    #[test]
    fn places_add_up() {
        let xsk = XskStats {
            fill: 1,
            received: 2,
            rx_in_kernel: 3,
            transmit: 4,
            completed: 5,
            tx_in_kernel: 6,
            rejected: 7,
            ..XskStats::default()
        };
        let port = PortSample { xsk: Some(xsk), waiting: 8, ..PortSample::default() };
        let places = Places::of(&[port, PortSample::default()]);
        assert_eq!((places.total(), places.kernel, places.held), (36, 9, 8));
    }
}
