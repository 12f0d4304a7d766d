//! The sources of evidence: repeated looks at what processes publish, and at the machine.

mod cpus;
mod interrupts;
mod kernel_pools;
mod links;
mod published;
mod tasks;

use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::evidence::{Evidence, LEAST_LOOKS, PoolEvidence, ProcessEvidence, Unseen, WARM_UP};
use crate::engine::interrupt::{RunSignals, listen};
use crate::observing::look::is_alive;
use crate::report::number::grouped;
use crate::report::output;
use interrupts::Interrupts;
use kernel_pools::KernelPools;
use links::Links;
use pagepool::Stats;
use pagepool_watch::{Observation, PoolView, ProcessView, RunFolder, shown_path};
use tasks::SeenTasks;

/// Looks at the pools; if they take too long, fewer, but at least [`LEAST_LOOKS`].
const LOOKS: u32 = 31;
/// How often a wait checks for a signal.
const NAP: Duration = Duration::from_millis(20);

/// Tests use another root.
const ROOT: &str = "/";

/// Collects evidence for some seconds, of all processes of a folder, or of those with a name or PID. Fails if
/// there are none, or a signal ends it.
pub fn collect(folder: &RunFolder, of: Option<&str>, seconds: u64) -> Result<Evidence, String> {
    let signals = listen()?;
    let first = first_look(folder, of, &signals)?;
    if let Some(of) = of.filter(|_| first.processes.is_empty()) {
        let folder = shown_path(&first.folder);
        let nothing = format!("no process {of} publishes in {folder}: `pagepool list` shows those that do");
        return Err([vec![nothing], first.errors].concat().join("; "));
    }
    let mut unseen = Unseen::default();
    let mut links = Links::look(Path::new(ROOT), &first, &mut unseen);
    let mut kernel = KernelPools::look(&mut unseen);
    let (tasks, interrupts) = (SeenTasks::look(Path::new(ROOT), &first), Interrupts::look(Path::new(ROOT)));
    let (start, mut looks) = (Instant::now(), vec![first]);
    wait_and_look(folder, of, (start, Duration::from_secs(seconds)), &mut looks, &signals)?;
    let last = &looks[looks.len() - 1];
    let seconds = start.elapsed().as_secs_f64();
    let interrupts = Interrupts::look(Path::new(ROOT)).since(&interrupts);
    let mut processes = published::processes(&looks);
    tasks.fill(Path::new(ROOT), (last, seconds), &mut processes, &mut unseen);
    links::mark_here(&mut processes);
    unseen.not_judged.extend(last.errors.iter().cloned());
    // If no process publishes, the kernel's pools are all there is to judge.
    let of_nobody = if kernel.are_seen() { &mut unseen.notes } else { &mut unseen.not_judged };
    of_nobody.extend(nobody(last));
    unseen.not_judged.extend(elsewhere(&processes));
    unseen.not_judged.extend(ended(&looks[0], last));
    unseen.not_judged.extend(too_young(&processes));
    unseen.not_judged.extend(uncollected(&processes));
    let links = links.evidence(Path::new(ROOT), &interrupts, &mut unseen);
    let names: Vec<_> = of.iter().flat_map(|_| &links).map(|link| link.name.clone()).collect();
    let kernel_pools = kernel.evidence(of.map(|_| &*names), &mut unseen);
    let (cpus, huge_pages) = (cpus::cpus(Path::new(ROOT)), cpus::huge_pages(Path::new(ROOT)));
    Ok(Evidence { seconds, processes, links, kernel_pools, cpus, huge_pages, unseen })
}

/// Takes the first look, after the existing pools were filled.
fn first_look(folder: &RunFolder, of: Option<&str>, signals: &RunSignals) -> Result<Observation, String> {
    let look = chosen(Observation::at(folder), of);
    let Some((pools, left)) = being_filled(&look) else { return Ok(look) };
    let are = if pools == 1 { "1 pool is".to_owned() } else { format!("{pools} pools are") };
    let seconds = left.as_millis().div_ceil(1000);
    output::note(format_args!("{are} still being filled: the first look is in {seconds} s"));
    wait_until(Instant::now() + left + NAP, signals)?;
    Ok(chosen(Observation::at(folder), of))
}

/// How many pools are being filled, and for how much longer at most.
fn being_filled(look: &Observation) -> Option<(usize, Duration)> {
    let pools = look.processes.iter().filter(|process| is_alive(process)).flat_map(|process| &process.pools);
    let age = |pool: &PoolView| look.at.duration_since(pool.created).unwrap_or_default();
    let left = pools.filter(|pool| pool.detached.is_none()).map(|pool| WARM_UP.saturating_sub(age(pool)));
    let left: Vec<_> = left.filter(|left| !left.is_zero()).collect();
    left.iter().max().map(|&most| (left.len(), most))
}

/// Takes the other looks at their times, and more if they were too few: on a busy machine, or with many
/// pools, a look takes long.
fn wait_and_look(
    folder: &RunFolder,
    of: Option<&str>,
    (start, time): (Instant, Duration),
    looks: &mut Vec<Observation>,
    signals: &RunSignals,
) -> Result<(), String> {
    loop {
        let next = (start.elapsed() + time / (LOOKS - 1)).min(time);
        wait_until(start + next, signals)?;
        looks.push(chosen(Observation::at(folder), of));
        if next == time && looks.len() >= LEAST_LOOKS {
            return Ok(());
        }
    }
}

/// Fails on a signal.
fn wait_until(due: Instant, signals: &RunSignals) -> Result<(), String> {
    while Instant::now() < due {
        if signals.interrupted() {
            return Err("interrupted before the last look".into());
        }
        sleep(NAP.min(due.saturating_duration_since(Instant::now())));
    }
    Ok(())
}

/// Keeps the processes with this name or PID.
fn chosen(mut look: Observation, of: Option<&str>) -> Observation {
    if let Some(of) = of {
        look.processes.retain(|process| process.name == of || process.pid.to_string() == of);
    }
    look
}

fn nobody(last: &Observation) -> Option<String> {
    let is_nobody = last.processes.is_empty() && last.errors.is_empty();
    is_nobody.then(|| format!("no process publishes in {}", shown_path(&last.folder)))
}

/// Processes that ended during the looks, and left no file.
fn ended<'a>(first: &'a Observation, last: &'a Observation) -> impl Iterator<Item = String> + 'a {
    let is_there = |process: &&ProcessView| last.processes.iter().any(|now| now.file == process.file);
    let gone = first.processes.iter().filter(move |process| !is_there(process));
    gone.map(|process| format!("{}, pid {} ended during the looks", process.name, process.pid))
}

/// Pools too young for some rules, made after the first look.
fn too_young(processes: &[ProcessEvidence]) -> Option<String> {
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
fn uncollected(processes: &[ProcessEvidence]) -> impl Iterator<Item = String> + '_ {
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
fn elsewhere(processes: &[ProcessEvidence]) -> impl Iterator<Item = String> + '_ {
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
    fn looks_are_enough_however_long_they_take() {
        let folder = RunFolder::at("/a folder that is not");
        let mut looks = vec![Observation::at(&folder)];
        let no_time = (Instant::now(), Duration::ZERO);
        wait_and_look(&folder, None, no_time, &mut looks, &listen().unwrap()).unwrap();
        assert_eq!(looks.len(), LEAST_LOOKS);
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
