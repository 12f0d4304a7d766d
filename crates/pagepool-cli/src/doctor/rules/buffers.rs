//! Buffers that do not come back: of programs that run, of pools that ended, of processes that died.

#[cfg(test)]
use std::time::Duration;

#[cfg(test)]
use crate::doctor::evidence::HolderEvidence;
use crate::doctor::evidence::{Evidence, PoolEvidence, ProcessEvidence};
#[cfg(test)]
use crate::doctor::rule::RuleCase;
use crate::doctor::rule::{Cost, DoctorRule, Finding};
use crate::observing::look::{bytes, spoken};
use crate::report::number::grouped;

/// Pages more that are out at the end, at least.
const LEAST_RISE: u64 = 64;
/// A pool that ended gets its buffers back in that time, in seconds.
const LATE: u64 = 5;

pub const OUT_RISING: DoctorRule = DoctorRule {
    name: "out_rising",
    cost: Cost::BuffersLost,
    when: "in a pool older than 5 s the buffers with the program (out, and not waiting for packets at a \
           device) rose from each look to the next, by 64 pages in all",
    why: "A leak, or a queue that grows: both end when the arena is empty.",
    mend: "Drop handles that are kept (`mem::forget`, a queue without a limit). `PoolParams::holders` \
           records who has which page, and where it was allocated.",
    verify: "`pagepool list --watch`: out of {of} falls again.",
    find: out_rising,
    #[cfg(test)]
    case: RuleCase {
        ill: |of| of.pool().held = vec![100, 120, 140, 160, 180],
        says: "100 pages at first, 180 at the end",
        well: |of| of.pool().held = vec![100, 200, 300, 299, 400],
    },
};

/// Whether more and more of a pool is out.
pub fn rises(pool: &PoolEvidence) -> bool {
    let (Some(first), Some(last)) = (pool.held.first(), pool.held.last()) else { return false };
    pool.held.windows(2).all(|pair| pair[0] < pair[1]) && last - first >= LEAST_RISE
}

fn out_rising(evidence: &Evidence) -> Vec<Finding> {
    let of = |(process, pool): (&ProcessEvidence, &PoolEvidence)| {
        let (first, last) = (*pool.held.first()?, *pool.held.last()?);
        let rate = evidence.per_second(last - first);
        let left = free_pages(process, pool).filter(|_| rate > 0.0);
        let left = left.map_or(String::new(), |free| {
            let time = std::time::Duration::from_secs_f64(free as f64 / rate);
            format!("; at that rate the arena is empty in {}", spoken(time))
        });
        let seen = format!(
            "Buffers with the program: {} pages at first, {} at the end, {} a second{left}.{}",
            grouped(first),
            grouped(last),
            bytes((rate * pool.page_bytes as f64) as u64),
            pool.holders_in_words()
        );
        Some(Finding::new(format!("{}, pool {}", process.title(), pool.name), &*pool.name, seen, rate))
    };
    evidence.warm_pools().filter(|(_, pool)| rises(pool)).filter_map(of).collect()
}

/// Pages of a pool's size that its arena could still give.
pub fn free_pages(process: &ProcessEvidence, pool: &PoolEvidence) -> Option<u64> {
    let most: u64 = process.arena(pool)?.number("max_bytes")?;
    let of_area = process.pools.iter().filter(|other| other.area_id == pool.area_id);
    let used = of_area.map(|other| other.pages.total.max(0) as u64 * other.page_bytes).sum();
    Some(most.saturating_sub(used) / pool.page_bytes.max(1))
}

pub const HELD_LONG: DoctorRule = DoctorRule {
    name: "held_long",
    cost: Cost::BuffersLost,
    when: "a pool that records holders and allocates has 64 pages or more that were out for a minute, \
           beyond those that devices have",
    why: "Buffers that nobody needs for a minute are forgotten, or a queue stands still.",
    mend: "Drop them, or let the queue go on; `pagepool show {of}` names the oldest.",
    verify: "`pagepool show {of}`: ages of holders.",
    find: held_long,
    #[cfg(test)]
    case: RuleCase {
        ill: |of| {
            let most =
                vec!["90 pages held by no tag, allocated at src/main.rs:7:5; the oldest for 70.0 s".into()];
            of.pool().holders = Some(HolderEvidence { for_a_minute: 1090, most });
        },
        says: "90 pages have been out for a minute or longer, of 1,300. 90 pages held by no tag, allocated \
               at src/main.rs:7:5",
        well: |of| of.pool().holders = Some(HolderEvidence { for_a_minute: 1050, most: Vec::new() }),
    },
};

fn held_long(evidence: &Evidence) -> Vec<Finding> {
    let of = |(process, pool): (&ProcessEvidence, &PoolEvidence)| {
        let old = pool.holders.as_ref()?.for_a_minute;
        let sum = |name| process.entries.iter().map(|entry| entry.now(name)).fold(0, u64::saturating_add);
        // Which of them the devices have is not known: it may be all that lie there.
        let old = old.saturating_sub(waiting(process, pool)).saturating_sub(sum("in_tx"));
        let seen = format!(
            "{} pages have been out for a minute or longer, of {}.{}",
            grouped(old),
            grouped(pool.pages.out),
            pool.holders_in_words()
        );
        let place = format!("{}, pool {}", process.title(), pool.name);
        let is_it = old >= LEAST_RISE && pool.allocated() > 0;
        is_it.then(|| Finding::new(place, &*pool.name, seen, 0.0))
    };
    evidence.pools().filter_map(of).collect()
}

/// Buffers of a pool that wait for packets at its devices.
fn waiting(process: &ProcessEvidence, pool: &PoolEvidence) -> u64 {
    let below = process.entries.iter().filter(|entry| entry.pool == Some(pool.id));
    below.map(|entry| entry.now("in_rx")).fold(0, u64::saturating_add)
}

pub const DETACHED: DoctorRule = DoctorRule {
    name: "detached",
    cost: Cost::BuffersLost,
    when: "a pool ended more than 5 s ago, and buffers of it are still out",
    why: "Its memory stays until the last one returns: somebody holds it.",
    mend: "Drop the buffers before the pool; with `PoolParams::holders`, `Shutdown::report` says who has \
           them.",
    verify: "`pagepool list`: {of} is no longer there.",
    find: detached,
    #[cfg(test)]
    case: RuleCase {
        ill: |of| of.pool().detached = Some(Duration::from_secs(90)),
        says: "1 min 30 s ago; pages out: 1,300",
        well: |of| of.pool().detached = Some(Duration::from_secs(4)),
    },
};

fn detached(evidence: &Evidence) -> Vec<Finding> {
    let mut all = Vec::new();
    for process in evidence.alive() {
        for pool in &process.pools {
            let Some(time) = pool.detached.filter(|time| time.as_secs() >= LATE) else { continue };
            let (ago, out) = (spoken(time), grouped(pool.pages.out));
            let seen = format!("It ended {ago} ago; pages out: {out}.{}", pool.holders_in_words());
            let place = format!("{}, pool {}", process.title(), pool.name);
            all.push(Finding::new(place, &*pool.name, seen, 0.0));
        }
    }
    all
}

pub const DEAD_HELD: DoctorRule = DoctorRule {
    name: "dead_held",
    cost: Cost::BuffersLost,
    when: "a process was killed or crashed, and buffers of its pools were out",
    why: "The packets in them went with it. Its memory is free; the file stays for who wants to know.",
    mend: "Find out why it died (`journalctl`, `coredumpctl`); then `pagepool clean` removes its file.",
    verify: "`pagepool list`: it is no longer there.",
    find: dead_held,
    #[cfg(test)]
    case: RuleCase {
        ill: |of| of.processes[0].dead_for = Some(Duration::from_secs(61)),
        says: "1 min 1 s ago; near0 had 1,300 pages out, 1,000 of them waiting for packets",
        well: |of| {
            of.processes[0].dead_for = Some(Duration::from_secs(61));
            of.pool().pages.out = 0;
        },
    },
};

fn dead_held(evidence: &Evidence) -> Vec<Finding> {
    let dead = evidence.processes.iter().filter_map(|process| Some((process, process.dead_for?)));
    let of = |(process, time): (&ProcessEvidence, _)| {
        let held = process.pools.iter().filter(|pool| pool.pages.out > 0);
        let said: Vec<_> = held.map(|pool| had(process, pool)).collect();
        let seen = format!("It gave its last sign {} ago; {}.", spoken(time), said.join("; "));
        (!said.is_empty()).then(|| Finding::new(process.title(), &*process.name, seen, 0.0))
    };
    dead.filter_map(of).collect()
}

/// What a pool had out when its process died.
fn had(process: &ProcessEvidence, pool: &PoolEvidence) -> String {
    let waiting = match waiting(process, pool) {
        0 => String::new(),
        waiting => format!(", {} of them waiting for packets", grouped(waiting)),
    };
    let holders = pool.holders_in_words();
    let holders = holders.trim_start().trim_end_matches('.');
    let holders = if holders.is_empty() { String::new() } else { format!(" ({holders})") };
    format!("{} had {} pages out{waiting}{holders}", pool.name, grouped(pool.pages.out))
}
