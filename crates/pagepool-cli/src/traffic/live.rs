//! What is printed while a command runs: every so many seconds some lines.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::losses::LOSSES;
use super::options::Options;
use super::run_state::{Course, End, Sample};
use crate::engine::buffer_locations::Places;
use crate::engine::figures;
use crate::engine::kernel_counts::KernelCounts;
use crate::engine::port_sample::PortSample;
use crate::report::number::grouped;

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
    if let Some(counts) = KernelCounts::of(ports).said() {
        text += &format!("\n       {counts}");
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

/// What was lost since the last time, by reason.
fn lost(before: &[PortSample], now: &[PortSample], took: f64) -> Vec<String> {
    let mut lines = Vec::new();
    for loss in &LOSSES {
        let new = loss.count(now) - loss.count(before).min(loss.count(now));
        if new > 0 {
            lines.push(format!("lost {}/s: {}", grouped((new as f64 / took) as u64), loss.what));
        }
    }
    lines
}
