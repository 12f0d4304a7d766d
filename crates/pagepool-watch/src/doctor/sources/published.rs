//! What processes publish, over several looks.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use pagepool::{AGE_EDGES, HolderGroup, HoldersView, Stats};

use crate::doctor::evidence::{EntryEvidence, HolderEvidence, PoolEvidence, ProcessEvidence};
use crate::observation::Observation;
use crate::published::model::{EntryView, Life, PoolView, ProcessView};
use crate::words::grouped;

const MOST_HOLDERS: usize = 3;

/// The processes of the last look, with their changes since the first.
pub fn processes(looks: &[Observation]) -> Vec<ProcessEvidence> {
    let Some(last) = looks.last() else { return Vec::new() };
    last.processes.iter().map(|process| process_of(looks, last, process)).collect()
}

fn process_of(looks: &[Observation], last: &Observation, process: &ProcessView) -> ProcessEvidence {
    let dead_for = match process.life {
        Life::Dead { last_sign } => Some(last.at.duration_since(last_sign).unwrap_or_default()),
        _ => None,
    };
    let before = looks.first().and_then(|first| first.process(process));
    ProcessEvidence {
        name: process.name.clone(),
        pid: process.pid,
        pid_here: process.pid_here,
        file: last.namesake(process),
        dead_for,
        is_here: None,
        pools: process.pools.iter().map(|pool| pool_of(looks, last, process, pool)).collect(),
        entries: process.entries.iter().map(|entry| entry_of(before, entry)).collect(),
        threads: Vec::new(),
    }
}

fn pool_of(
    looks: &[Observation],
    last: &Observation,
    process: &ProcessView,
    pool: &PoolView,
) -> PoolEvidence {
    let held = |(process, pool): (&ProcessView, &PoolView)| {
        pool.inflight.out.saturating_sub(process.waiting_for_packets(pool).unwrap_or(0))
    };
    let first = looks.first().and_then(|first| first.both(process, pool));
    let age = |look: &Observation| look.at.duration_since(pool.created).unwrap_or_default();
    PoolEvidence {
        id: pool.id,
        name: pool.name.clone(),
        area_id: pool.area_id,
        tid: pool.thread.as_ref().map(|thread| thread.tid),
        page_bytes: pool.page_bytes,
        age: looks.first().filter(|_| first.is_some()).map_or(Duration::ZERO, age),
        detached: pool.detached.map(|at| last.at.duration_since(at).unwrap_or_default()),
        params: pool.params.clone(),
        moved: pool.stats.since(&first.map_or(Stats::default(), |(_, pool)| pool.stats)),
        pages: pool.inflight,
        held: looks.iter().filter_map(|look| look.both(process, pool)).map(held).collect(),
        holders: pool
            .holders
            .as_ref()
            .map(|now| holders_of(first.and_then(|(_, pool)| pool.holders.as_ref()), now)),
    }
}

fn holders_of(before: Option<&HoldersView>, now: &HoldersView) -> HolderEvidence {
    let minute =
        AGE_EDGES.iter().position(|edge| *edge >= Duration::from_secs(60)).unwrap_or(AGE_EDGES.len());
    let most = now.groups.iter().take(MOST_HOLDERS).map(ToString::to_string).collect();
    let for_a_minute = now.ages[minute + 1..].iter().sum();
    HolderEvidence { for_a_minute, most, grown: grown(before, now) }
}

/// Holders that hold more than before, with their rise.
fn grown(before: Option<&HoldersView>, now: &HoldersView) -> Vec<String> {
    let Some(before) = before else { return Vec::new() };
    let rise = |group: &HolderGroup| {
        let key = |of: &HolderGroup| (of.tag.clone(), of.thread.clone(), of.site.clone());
        let same = before.groups.iter().find(|other| key(other) == key(group));
        group.pages.saturating_sub(same.map_or(0, |same| same.pages))
    };
    let mut all: Vec<_> = now.groups.iter().map(|group| (rise(group), group)).collect();
    all.retain(|(rise, _)| *rise > 0);
    all.sort_by_key(|(rise, _)| Reverse(*rise));
    let said = |(rise, group): &(u64, &HolderGroup)| format!("{} more of {group}", grouped(*rise));
    all.iter().take(MOST_HOLDERS).map(said).collect()
}

fn entry_of(before: Option<&ProcessView>, entry: &EntryView) -> EntryEvidence {
    let is_it =
        |other: &&EntryView| (&other.kind, other.id, &other.name) == (&entry.kind, entry.id, &entry.name);
    let earlier = before.and_then(|process| process.entries.iter().find(is_it));
    let then: BTreeMap<_, _> = earlier.iter().flat_map(|of| &of.counters).cloned().collect();
    let rise = |(name, now): &(String, u64)| Some((name.clone(), now.saturating_sub(*then.get(name)?)));
    EntryEvidence {
        kind: entry.kind.clone(),
        id: entry.id,
        pool: entry.pool_id().and_then(|id| u32::try_from(id).ok()),
        name: entry.name.clone(),
        params: entry.params.clone(),
        now: entry.counters.iter().cloned().collect(),
        moved: entry.counters.iter().filter_map(rise).collect(),
    }
}
