//! The output of `list --kernel`: the kernel's page pools, one a row, and their counters.

use pagepool_link::{KernelPagePool, KernelPoolProvider, KernelPoolStats};
use pagepool_watch::{KernelLook, KernelWatch};
use serde_json::{Value, json};

use crate::observing::options::{Looks, Shown};
use crate::report::table::Table;
use crate::report::{LiveLine, grouped, in_words, object, without_zeros};

/// The table of a single look, or of repeated looks. A row has at most 80 characters, unless the name of an
/// interface is long.
fn table(is_repeated: bool) -> Table {
    let recycled = if is_repeated { "recyc%" } else { "ever%" };
    let heads = ["id", "interface", "napi", "inflight", "memory", "detached", recycled];
    Table::of_numbers(heads.into_iter().zip([6, 20, 8, 10, 12, 10, 8]))
}

/// All page pools that the kernel names.
impl Shown for KernelWatch {
    type Look = KernelLook;
    const INDENT: usize = 8;

    fn look(&mut self) -> Result<KernelLook, String> {
        Self::look(self).map_err(in_words)
    }

    fn lines(&self, Looks { now, before, .. }: Looks<'_, KernelLook>) -> Vec<LiveLine> {
        lines(now, before)
    }

    fn json(&self, look: &KernelLook) -> Value {
        let pools: Vec<_> = look.pools.iter().map(|pool| ListedPool { pool, look }.json()).collect();
        json!({ "has_stats": look.has_stats, "kernel_pools": pools })
    }
}

fn lines(look: &KernelLook, before: Option<&KernelLook>) -> Vec<LiveLine> {
    if look.pools.is_empty() {
        let none = "No page pools: no driver of an interface in this network namespace reports one.";
        return vec![LiveLine::plain(none.into())];
    }
    let table = table(before.is_some());
    let mut lines = vec![table.head()];
    for pool in &look.pools {
        let earlier = before.and_then(|before| before.pools.iter().find(|other| other.id == pool.id));
        let listed = ListedPool { pool, look };
        lines.push(table.row(listed.cells(earlier)));
        lines.extend(listed.details());
    }
    if !look.has_stats {
        let why = "This kernel has no counters: it was built without CONFIG_PAGE_POOL_STATS.";
        lines.extend([String::new(), why.into()]);
    }
    lines.into_iter().map(LiveLine::plain).collect()
}

struct ListedPool<'a> {
    pool: &'a KernelPagePool,
    look: &'a KernelLook,
}

impl ListedPool<'_> {
    fn interface(&self) -> Option<&str> {
        self.look.interface(self.pool)
    }

    /// The cells of the row. The recycled share is since an earlier look at the pool, if there was one;
    /// otherwise since it was made.
    fn cells(&self, earlier: Option<&KernelPagePool>) -> [String; 7] {
        let KernelPagePool { id, ifindex, napi, inflight, inflight_bytes, stats, .. } = self.pool;
        let interface = ifindex
            .map_or("removed".into(), |index| format!("{} ({index})", self.interface().unwrap_or("?")));
        let since = earlier.and_then(|earlier| earlier.stats).unwrap_or_default();
        let recycled = stats.and_then(|stats| stats.since(&since).recycle_percent());
        let detached = self.pool.detached_for().map(|time| format!("{} s", grouped(time.as_secs())));
        [
            id.to_string(),
            interface,
            napi.map_or("-".into(), |napi| napi.to_string()),
            grouped(*inflight),
            format!("{:.1} MiB", *inflight_bytes as f64 / f64::from(1 << 20)),
            detached.unwrap_or("-".into()),
            recycled.map_or("-".into(), |percent| format!("{percent:.1} %")),
        ]
    }

    fn details(&self) -> Vec<String> {
        let counters = self.pool.stats.map(|stats| match without_zeros(&stats.fields()) {
            none if none.is_empty() => "all counters are 0".into(),
            counters => counters,
        });
        let memory = self.pool.provider.map(|provider| format!("memory of {}", provider_name(provider)));
        memory.into_iter().chain(counters).map(|line| format!("{:6} {line}", "")).collect()
    }

    fn json(&self) -> Value {
        let pool = self.pool;
        json!({
            "id": pool.id,
            "ifindex": pool.ifindex,
            "interface": self.interface(),
            "napi": pool.napi,
            "inflight": pool.inflight,
            "inflight_bytes": pool.inflight_bytes,
            "detached_seconds": pool.detached_for().map(|time| time.as_secs()),
            "memory_of": pool.provider.map(provider_name),
            "recycled_percent": pool.stats.and_then(|stats| stats.recycle_percent()),
            "stats": pool.stats.map(|stats: KernelPoolStats| object(stats.fields())),
        })
    }
}

fn provider_name(provider: KernelPoolProvider) -> String {
    match provider {
        KernelPoolProvider::DmaBuf(number) => format!("dma-buf {number}"),
        KernelPoolProvider::IoUring => "io_uring".into(),
        _ => "another provider".into(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::time::Instant;

    use super::*;

    fn empty_look() -> KernelLook {
        let (pools, names) = (Vec::new(), HashMap::from([(2, "eth0".to_owned())]));
        KernelLook { taken: Instant::now(), pools, names, has_stats: true }
    }

    fn pool(fill: impl FnOnce(&mut KernelPagePool)) -> KernelPagePool {
        let mut pool = KernelPagePool::default();
        fill(&mut pool);
        pool
    }

    #[test]
    fn a_pool_has_a_row_its_counters_and_an_object() {
        let look = empty_look();
        let live = pool(|pool| {
            (pool.id, pool.ifindex, pool.napi) = (18, Some(2), Some(8193));
            (pool.inflight, pool.inflight_bytes) = (2048, 8 << 20);
            let mut stats = KernelPoolStats::default();
            (stats.alloc_fast, stats.alloc_slow, stats.recycle_ring) = (990, 10, 500);
            pool.stats = Some(stats);
        });
        let listed = ListedPool { pool: &live, look: &look };
        assert_eq!(listed.cells(None), ["18", "eth0 (2)", "8193", "2,048", "8.0 MiB", "-", "50.0 %"]);
        assert_eq!(listed.details(), ["       alloc_fast 990, alloc_slow 10, recycle_ring 500"]);
        let json = listed.json();
        assert_eq!(
            (&json["interface"], &json["stats"]["alloc_waive"]),
            (&"eth0".into(), &0.into()),
            "{json}"
        );
        let tables = [false, true].map(table);
        assert!(tables.iter().all(|of| of.row(listed.cells(None)).len() <= 80 && of.head().len() <= 80));
    }

    #[test]
    fn the_recycled_of_a_watch_are_those_since_the_look_before() {
        let counted = |fast, ring| {
            let mut stats = KernelPoolStats::default();
            (stats.alloc_fast, stats.recycle_ring) = (fast, ring);
            pool(|pool| (pool.id, pool.stats) = (18, Some(stats)))
        };
        let at = |pool| KernelLook { pools: vec![pool], ..empty_look() };
        let (before, now) = (at(counted(100, 0)), at(counted(200, 100)));
        let recycled = |earlier| lines(&now, earlier)[1].text.clone();
        assert!(recycled(None).ends_with(" 50.0 %"), "{}", recycled(None));
        assert!(recycled(Some(&before)).ends_with(" 100.0 %"), "{}", recycled(Some(&before)));
        let head = |earlier| lines(&now, earlier)[0].text.clone();
        assert!(head(None).ends_with(" ever%") && head(Some(&before)).ends_with(" recyc%"));
        let another = at(pool(|pool| pool.id = 17));
        assert!(recycled(Some(&another)).ends_with(" 50.0 %"), "{}", recycled(Some(&another)));
    }

    #[test]
    fn what_a_pool_has_not_is_not_there() {
        let orphan = pool(|pool| (pool.id, pool.detached_at) = (7, Some(std::time::Duration::ZERO)));
        let look = empty_look();
        let listed = ListedPool { pool: &orphan, look: &look };
        let [_, interface, napi, .., detached, recycled] = listed.cells(None);
        assert_eq!((&*interface, &*napi, &*recycled), ("removed", "-", "-"));
        assert!(detached.ends_with(" s") && listed.details().is_empty(), "{detached}");
        let json = listed.json();
        assert!(json["stats"].is_null() && json["interface"].is_null() && json["detached_seconds"].is_u64());
        let uring = pool(|pool| {
            (pool.provider, pool.stats) =
                (Some(KernelPoolProvider::IoUring), Some(KernelPoolStats::default()))
        });
        let details = ListedPool { pool: &uring, look: &look }.details();
        assert!(
            details[0].ends_with("memory of io_uring") && details[1].ends_with("all counters are 0"),
            "{details:?}"
        );
    }
}
