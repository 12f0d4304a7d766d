//! What the looks at processes could not show, in words.

use pagepool::Stats;
use pagepool::published::shown_path;

use crate::doctor::evidence::{PoolEvidence, ProcessEvidence, WARM_UP};
use crate::observation::Observation;
use crate::published::model::ProcessView;
use crate::words::grouped;

/// No process publishes.
pub fn nobody(last: &Observation) -> Option<String> {
    let is_nobody = last.processes.is_empty() && last.errors.is_empty();
    is_nobody.then(|| format!("no process publishes in {}", shown_path(&last.folder)))
}

/// Processes that ended during the looks, and left no file.
pub fn ended<'a>(first: &'a Observation, last: &'a Observation) -> impl Iterator<Item = String> + 'a {
    let is_there = |process: &&ProcessView| last.processes.iter().any(|now| now.file == process.file);
    let gone = first.processes.iter().filter(move |process| !is_there(process));
    gone.map(|process| format!("{}, pid {} ended during the looks", process.name, process.pid))
}

/// Pools too young for some rules, made after the first look.
pub fn too_young(processes: &[ProcessEvidence]) -> Option<String> {
    let alive = processes.iter().filter(|process| process.dead_for.is_none());
    let pools = alive.flat_map(|process| &process.pools).filter(|pool| pool.detached.is_none());
    let names: Vec<_> = pools.filter(|pool| pool.age < WARM_UP).map(|pool| &*pool.name).collect();
    let are = match names.len() {
        0 => return None,
        1 => "1 pool is".to_owned(),
        young => format!("{young} pools are"),
    };
    Some(format!(
        "{are} too young to judge (created during the looks, and filled in the first {} s): run again to \
         find leaks and slow allocations in {}",
        WARM_UP.as_secs(),
        names.join(", ")
    ))
}

/// Pages of fragments whose holders are unknown: the owner has not collected since some returned.
pub fn uncollected(processes: &[ProcessEvidence]) -> impl Iterator<Item = String> + '_ {
    let pools = processes.iter().flat_map(|process| &process.pools);
    let has_not_looked = |pool: &&PoolEvidence| {
        let Stats { alloc_refill, alloc_empty, alloc_slow, alloc_slow_high_order, .. } = pool.moved;
        alloc_refill + alloc_empty + alloc_slow + alloc_slow_high_order == 0
    };
    let unknown = |pool: &&PoolEvidence| pool.pages.uncollected > 0 && pool.holders.is_none();
    pools.filter(unknown).filter(has_not_looked).map(|pool| {
        format!(
            "{} pages of {}: the owner has not collected their returned fragments; only a pool with \
             `holders` shows whether other fragments are out",
            grouped(pool.pages.uncollected),
            pool.name
        )
    })
}

/// Processes whose interfaces were not examined.
pub fn elsewhere(processes: &[ProcessEvidence]) -> impl Iterator<Item = String> + '_ {
    let is_unseen = |process: &&ProcessEvidence| {
        let has_sockets = process.entries.iter().any(|entry| entry.kind == "socket");
        process.dead_for.is_none() && (has_sockets || process.pid_here.is_none())
    };
    let not_here = processes.iter().filter(|process| process.is_here != Some(true));
    not_here.filter(is_unseen).map(|process| {
        let (title, pid) = (process.title(), process.pid);
        match process.is_here {
            None if process.pid_here.is_none() => format!(
                "{title} is in another pid namespace: its threads and interfaces were not checked; run \
                 `pagepool doctor` in that namespace"
            ),
            None => format!(
                "/proc/{pid}/ns/net of {title} cannot be read (the process ended, or has capabilities): its \
                 interfaces were not checked; run as root"
            ),
            _ => format!(
                "{title} is in another network namespace: its interfaces were not checked; run `nsenter \
                 --net=/proc/{pid}/ns/net pagepool doctor {pid}`"
            ),
        }
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::doctor::evidence::{HolderEvidence, healthy};

    #[test]
    fn an_unreadable_namespace_is_not_reported_as_another_one() {
        let mut processes = healthy::evidence().processes;
        let mut said = |is_here| {
            processes[0].is_here = is_here;
            elsewhere(&processes).collect::<Vec<_>>().join("")
        };
        assert!(said(None).starts_with("/proc/500/ns/net of drop, pid 500 cannot be read"));
        assert!(said(Some(false)).starts_with("drop, pid 500 is in another network namespace"));
        assert_eq!(said(Some(true)), "");
        processes[0].pid_here = None;
        processes[0].is_here = None;
        let said = elsewhere(&processes).collect::<Vec<_>>().join("");
        assert!(said.starts_with("drop, pid 500 is in another pid namespace"), "{said}");
    }

    #[test]
    fn pages_whose_holders_are_not_known_are_not_judged() {
        let mut processes = healthy::evidence().processes;
        assert_eq!(uncollected(&processes).count(), 0);
        let pool = &mut processes[0].pools[0];
        (pool.pages.uncollected, pool.holders) = (100, None);
        (pool.moved.alloc_fast, pool.moved.alloc_refill) = (1000, 1);
        assert_eq!(uncollected(&processes).count(), 0, "its owner has collected some meanwhile");
        processes[0].pools[0].moved = Stats::default();
        let said = uncollected(&processes).collect::<Vec<_>>();
        assert!(said.len() == 1 && said[0].starts_with("100 pages of "), "{said:?}");
        processes[0].pools[0].holders = Some(HolderEvidence::default());
        assert_eq!(uncollected(&processes).count(), 0, "holders know");
    }

    #[test]
    fn a_pool_that_is_still_filled_is_not_judged() {
        let mut processes = healthy::evidence().processes;
        assert_eq!(too_young(&processes), None);
        processes[0].pools[0].age = Duration::ZERO;
        let said = too_young(&processes).unwrap();
        assert!(said.starts_with("1 pool is too young to judge (created during the looks, "), "{said}");
        let other = PoolEvidence { name: "near1".into(), ..processes[0].pools[0].clone() };
        processes[0].pools.push(other);
        let said = too_young(&processes).unwrap();
        assert!(said.starts_with("2 pools are too young to judge (created during the looks, "), "{said}");
        assert!(said.ends_with(" in near0, near1"), "{said}");
        processes[0].pools.iter_mut().for_each(|pool| pool.detached = Some(Duration::ZERO));
        assert_eq!(too_young(&processes), None, "they will not be filled");
    }
}
