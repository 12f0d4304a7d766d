//! Buffers that do not return: of running programs, ended pools, and dead processes.

use std::time::Duration;

#[cfg(test)]
use crate::doctor::evidence::HolderEvidence;
use crate::doctor::evidence::{Evidence, LEAST_LOOKS, OfProcess, PoolEvidence, ProcessEvidence};
#[cfg(test)]
use crate::doctor::rule::RuleCase;
use crate::doctor::rule::{Cost, DoctorRule, Finding};
use crate::words::{bytes, grouped, spoken};

/// Pages.
const LEAST_RISE: u64 = 64;
/// Seconds in which an ended pool should get its buffers back.
const LATE: u64 = 5;

pub const OUT_RISING: DoctorRule = DoctorRule {
    name: "out_rising",
    cost: Cost::BuffersLost,
    when: "in a pool older than 5 s, the number of pages that the program holds (out, and not waiting for \
           packets at a device) rises steadily. In the last third of the looks, its minimum is above the \
           first third's maximum, and at least 64 above the first third's minimum. The middle third's \
           minimum is about halfway between the other two",
    why: "A leak or a growing queue eventually empties the arena.",
    fix: "Return all buffers: look for `mem::forget`, a missing `pagepool_buf_put`, or a queue without a \
          limit. If the program runs with `PoolParams::holders` (C: `holders`), the doctor names the place \
          in the code.",
    verify: "`pagepool list --watch`: `out` of pool {of} no longer rises.",
    find: out_rising,
    #[cfg(test)]
    case: RuleCase {
        ill: |of| of.pool().held = (0..30).map(|look| 100 + 10 * look + look % 2 * 30).collect(),
        says: "at least 100 pages in the first third of the time, and at least 300 in the last third: 60.0 \
               more per second",
        well: |of| of.pool().held = (0..30).map(|look| if look < 15 { 100 } else { 400 }).collect(),
    },
};

pub fn rises(pool: &PoolEvidence) -> bool {
    rise(pool).is_some()
}

/// The minima of the first and last third of the looks, if buffers out rise steadily. In a random variation,
/// looks of the last third are below some of the first; after a single rise the middle third is like one of
/// the others.
fn rise(pool: &PoolEvidence) -> Option<(u64, u64)> {
    let third = pool.held.len() / 3;
    if pool.held.len() < LEAST_LOOKS {
        return None;
    }
    let (first, rest) = pool.held.split_at(third);
    let (middle, last) = rest.split_at(rest.len() - third);
    let most_first = *first.iter().max()?;
    let (first, middle, last) = (*first.iter().min()?, *middle.iter().min()?, *last.iter().min()?);
    let quarter = last.saturating_sub(first) / 4;
    let is_steady = (first + quarter..=last - quarter.min(last)).contains(&middle);
    (last > most_first && last - first >= LEAST_RISE && is_steady).then_some((first, last))
}

/// The fix if holders are recorded.
const RETURN_THEM: &str = "Return the buffers allocated at that place, or limit the queue that grows. To \
                           find the queue, tag buffers at each step (`set_tag`, in C \
                           `pagepool_buf_set_tag`). To turn an address into a line, compile the program \
                           with `-g` and run `addr2line -ife PROGRAM ADDRESS`.";

fn out_rising(evidence: &Evidence) -> Vec<Finding> {
    let of = |(process, pool): OfProcess<'_, PoolEvidence>| {
        let (first, last) = rise(pool)?;
        let rate = evidence.per_second(last - first) * 1.5; // it rose in two thirds of the time
        let grown = pool.grown_in_words();
        let left = free_pages(process, pool).filter(|_| rate > 0.0);
        let left = left.map_or(String::new(), |free| {
            let time = Duration::try_from_secs_f64(free as f64 / rate).unwrap_or(Duration::MAX);
            format!(", so the arena is empty in {}", spoken(time))
        });
        let seen = format!(
            "The program held at least {} pages in the first third of the time, and at least {} in the last \
             third: {rate:.1} more per second ({}/s){left}.{grown}",
            grouped(first),
            grouped(last),
            bytes((rate * pool.page_bytes as f64) as u64)
        );
        let fix = (!grown.is_empty()).then_some(RETURN_THEM);
        Some(Finding::of_pool((process, pool), seen, rate).fixed_if(fix))
    };
    evidence.warm_pools().filter_map(of).collect()
}

/// Pages of the pool's size that its arena has left.
pub fn free_pages(process: &ProcessEvidence, pool: &PoolEvidence) -> Option<u64> {
    let most: u64 = process.arena(pool)?.number("max_bytes")?;
    let of_area = process.pools.iter().filter(|other| other.area_id == pool.area_id);
    let bytes = |other: &PoolEvidence| (other.pages.total.max(0) as u64).saturating_mul(other.page_bytes);
    let used = of_area.map(bytes).fold(0, u64::saturating_add);
    Some(most.saturating_sub(used) / pool.page_bytes.max(1))
}

pub const HELD_LONG: DoctorRule = DoctorRule {
    name: "held_long",
    cost: Cost::BuffersLost,
    when: "at least 64 pages of a pool, not counting those at devices, have been out for a minute or longer. \
           The pool must record holders, still allocate, and have no unpublished device",
    why: "Buffers that are out for so long were forgotten, or wait in a stalled queue.",
    fix: "Drop the buffers, or fix the queue. `pagepool show {of}` names the oldest.",
    verify: "`pagepool show {of}`: the ages under `holders` are below a minute.",
    find: held_long,
    #[cfg(test)]
    case: RuleCase {
        ill: |of| {
            let most =
                vec!["90 pages held by no tag, allocated at src/main.rs:7:5; the oldest for 70.0 s".into()];
            of.pool().holders = Some(HolderEvidence { for_a_minute: 1090, most, ..Default::default() });
        },
        says: "at least 90 of the 1,300 pages out for a minute or longer. 90 pages held by no tag, allocated \
               at src/main.rs:7:5",
        well: |of| of.pool().holders = Some(HolderEvidence { for_a_minute: 1050, ..Default::default() }),
    },
};

fn held_long(evidence: &Evidence) -> Vec<Finding> {
    let of = |(process, pool): OfProcess<'_, PoolEvidence>| {
        let old = pool.holders.as_ref()?.for_a_minute;
        let sum = |name| process.entries.iter().map(|entry| entry.now(name)).fold(0, u64::saturating_add);
        // Which of them lie at devices is unknown: perhaps all that are there.
        let old = old.saturating_sub(waiting(process, pool)).saturating_sub(sum("in_tx"));
        let seen = format!(
            "The program has held at least {} of the {} pages out for a minute or longer.{}",
            grouped(old),
            grouped(pool.pages.out),
            pool.holders_in_words()
        );
        let is_it = old >= LEAST_RISE && pool.allocated() > 0 && !has_hidden_device(process, pool);
        is_it.then(|| Finding::of_pool((process, pool), seen, 0.0))
    };
    evidence.pools().filter_map(of).collect()
}

/// Whether the pool has an unpublished device, whose buffers are unknown.
fn has_hidden_device(process: &ProcessEvidence, pool: &PoolEvidence) -> bool {
    pool.has_device() && process.entries.iter().all(|entry| entry.pool != Some(pool.id))
}

/// Buffers that wait for packets at the pool's devices.
fn waiting(process: &ProcessEvidence, pool: &PoolEvidence) -> u64 {
    let below = process.entries.iter().filter(|entry| entry.pool == Some(pool.id));
    below.map(|entry| entry.now("in_rx")).fold(0, u64::saturating_add)
}

pub const DETACHED: DoctorRule = DoctorRule {
    name: "detached",
    cost: Cost::BuffersLost,
    when: "a pool ended at least 5 s ago, and some of its buffers are still out",
    why: "The pool's memory is freed only when its last buffer returns.",
    fix: "Drop the buffers before the pool. With `PoolParams::tagging` or `holders`, `Shutdown::report` \
          names the holders.",
    verify: "`pagepool list`: pool {of} is gone.",
    find: detached,
    #[cfg(test)]
    case: RuleCase {
        ill: |of| of.pool().detached = Some(Duration::from_secs(90)),
        says: "1 min 30 s ago. Pages still out: 1,300",
        well: |of| of.pool().detached = Some(Duration::from_secs(4)),
    },
};

fn detached(evidence: &Evidence) -> Vec<Finding> {
    let mut all = Vec::new();
    for process in evidence.alive() {
        for pool in &process.pools {
            let Some(time) = pool.detached.filter(|time| time.as_secs() >= LATE) else { continue };
            let (ago, out) = (spoken(time), grouped(pool.pages.out));
            let seen = format!("It ended {ago} ago. Pages still out: {out}.{}", pool.holders_in_words());
            all.push(Finding::of_pool((process, pool), seen, 0.0));
        }
    }
    all
}

pub const DEAD_HELD: DoctorRule = DoctorRule {
    name: "dead_held",
    cost: Cost::BuffersLost,
    when: "a process was killed or crashed while more pages were out than waited at its devices",
    why: "Packets that the program held are lost. The memory is free, but the published file remains for \
          inspection.",
    fix: "Find out why the process died (`journalctl`, `coredumpctl`). Then remove its file with `pagepool \
          clean`.",
    verify: "`pagepool list`: the process is gone.",
    find: dead_held,
    #[cfg(test)]
    case: RuleCase {
        ill: |of| of.processes[0].dead_for = Some(Duration::from_secs(61)),
        says: "1 min 1 s ago. Pool near0 had 1,300 pages out, 1,000 of them waiting for packets",
        well: |of| {
            of.processes[0].dead_for = Some(Duration::from_secs(61));
            of.pool().pages.out = 1000;
        },
    },
};

fn dead_held(evidence: &Evidence) -> Vec<Finding> {
    let dead = evidence.processes.iter().filter_map(|process| Some((process, process.dead_for?)));
    let of = |(process, time): (&ProcessEvidence, _)| {
        let sent = process.entries.iter().map(|entry| entry.now("in_tx")).fold(0, u64::saturating_add);
        let at_devices = |pool| waiting(process, pool).saturating_add(sent);
        let held = process.pools.iter().filter(|pool| pool.pages.out > at_devices(pool));
        let said: Vec<_> = held.map(|pool| had(process, pool)).collect();
        let seen = format!("It was last seen alive {} ago. {}.", spoken(time), said.join(". "));
        (!said.is_empty()).then(|| Finding::new(process.title(), &process.name, seen, 0.0))
    };
    dead.filter_map(of).collect()
}

fn had(process: &ProcessEvidence, pool: &PoolEvidence) -> String {
    let waiting = match waiting(process, pool) {
        0 => String::new(),
        waiting => format!(", {} of them waiting for packets", grouped(waiting)),
    };
    let holders = pool.holders_in_words();
    let holders = holders.trim_start().trim_end_matches('.');
    let holders = if holders.is_empty() { String::new() } else { format!(" ({holders})") };
    format!("Pool {} had {} pages out{waiting}{holders}", pool.name, grouped(pool.pages.out))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::evidence::healthy;
    use crate::doctor::rule::diagnose;
    use crate::doctor::rules::RULES;

    fn any(state: &mut u64, below: u64) -> u64 {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*state >> 33) % below
    }

    #[test]
    fn what_varies_by_chance_does_not_rise() {
        let (mut pool, mut state) = (PoolEvidence::default(), 1);
        for looks in [5, 30] {
            for _ in 0..20_000 {
                pool.held = (0..looks).map(|_| any(&mut state, 1000)).collect();
                assert!(!rises(&pool), "{:?}", pool.held);
            }
        }
        let noise = (0..30).map(|look| 20 * look + any(&mut state, 150));
        pool.held = noise.collect();
        assert!(rises(&pool), "{:?}", pool.held);
    }

    #[test]
    fn what_lies_at_a_device_that_is_not_published_is_not_held() {
        let mut evidence = healthy::evidence();
        evidence.processes[0].entries.retain(|entry| entry.kind != "socket");
        evidence.pool().holders = Some(HolderEvidence { for_a_minute: 1090, ..Default::default() });
        assert_eq!(held_long(&evidence), []);
        evidence.pool().set("domains", "0");
        assert_eq!(held_long(&evidence).len(), 1);
    }

    #[test]
    fn no_published_number_stops_the_doctor() {
        for number in [0, 1, u64::MAX] {
            let mut evidence = healthy::evidence();
            evidence.seconds = 100.0;
            evidence.arena().set("max_bytes", &u64::MAX.to_string());
            let pool = evidence.pool();
            pool.held = (0..30).map(|look| 100 + 7 * look).collect();
            (pool.page_bytes, pool.pages.total) = (number, if number == u64::MAX { i64::MAX } else { 1 });
            (pool.moved.alloc_fast, pool.moved.alloc_slow) = (number, number);
            (pool.moved.recycle_ring_full, pool.moved.alloc_waive) = (number, number);
            (pool.moved.alloc_slow_high_order, pool.moved.recycle_released_refcnt) = (number, number);
            (pool.pages.cache, pool.pages.lanes, pool.pages.out) = (number, number, number);
            evidence.links[0].interrupts.iter_mut().for_each(|of| {
                (of.moved, of.cpus) = (number, vec![2]);
            });
            for counter in ["rx_dropped", "rx_no_buffer", "rx_packets", "tx_packets", "rx_fill_ring_empty"] {
                evidence.socket().count(counter, number);
            }
            evidence.socket().set("zero_copy", "false");
            let mut nic = evidence.socket().clone();
            nic.kind = "nic".into();
            evidence.processes[0].entries.extend([nic.clone(), nic]);
            let found = diagnose(RULES, &evidence);
            assert!(found.iter().any(|of| of.rule.name == "out_rising"), "{number}: {found:?}");
        }
    }
}
