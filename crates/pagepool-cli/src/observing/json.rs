//! What was observed, as JSON.

use std::time::{SystemTime, UNIX_EPOCH};

use pagepool_watch::commands::{places, recycled_of};
use pagepool_watch::{EntryView, Life, Observation, PoolView, ProcessView};
use serde_json::{Map, Value, json};

use crate::report::{holders, object};

pub fn look(look: &Observation, processes: &[ProcessView]) -> Value {
    json!({
        "time": seconds(look.at),
        "folder": look.folder.display().to_string(),
        "processes": processes.iter().map(process).collect::<Vec<_>>(),
        "errors": look.errors,
    })
}

fn process(process: &ProcessView) -> Value {
    let last_sign = match process.life {
        Life::Dead { last_sign } => Some(seconds(last_sign)),
        _ => None,
    };
    json!({
        "name": process.name,
        "pid": process.pid,
        "alive": process.life == Life::Alive,
        "last_sign": last_sign,
        "started": seconds(process.started),
        "version": process.version,
        "file": process.file.display().to_string(),
        "not_shown": process.not_shown,
        "not_read": process.not_read,
        "pools": process.pools.iter().map(pool).collect::<Vec<_>>(),
        "entries": process.entries.iter().map(entry).collect::<Vec<_>>(),
    })
}

fn pool(pool: &PoolView) -> Value {
    json!({
        "id": pool.id,
        "name": pool.name,
        "mem_id": pool.mem_id,
        "area_id": pool.area_id,
        "ifindex": pool.ifindex,
        "thread": holders::thread(&pool.thread),
        "created": seconds(pool.created),
        "detach_time": pool.detached.map(seconds),
        "page_bytes": pool.page_bytes,
        "inflight": pool.inflight.total,
        "inflight_mem": pool.inflight_bytes(),
        "recycled_percent": recycled_of(&[pool.stats]),
        "pages": object(places(&pool.inflight)),
        "stats": object(pool.stats.fields()),
        "frag_waste": pool.frag_waste,
        "deferred": object(pool.deferred.fields()),
        "holders": pool.holders.as_ref().map(holders::json),
        "params": params(&pool.params),
    })
}

fn entry(entry: &EntryView) -> Value {
    let counters: Map<_, _> = entry.counters.iter().map(|(name, n)| (name.clone(), (*n).into())).collect();
    json!({
        "kind": entry.kind,
        "id": entry.id,
        "parent": entry.parent,
        "name": entry.name,
        "params": params(&entry.params),
        "counters": counters,
    })
}

fn params(params: &[(String, String)]) -> Map<String, Value> {
    params.iter().map(|(key, value)| (key.clone(), value.clone().into())).collect()
}

/// Seconds since 1970, in UTC.
fn seconds(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}
