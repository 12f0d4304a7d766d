//! The threads that own pools, as `/proc` shows them: their CPUs, and the time that they took.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use pagepool::observe::{Life, ProcessView, ThreadView};

use crate::doctor::evidence::{ProcessEvidence, ThreadEvidence};
use crate::engine::memory_node::numbers;
use crate::observing::look::Observation;

/// Of the kernel's clock ticks in a second, which every Linux tells user space so (`USER_HZ`).
const TICKS: f64 = 100.0;

/// The CPU time of threads at a look, in ticks, by process and thread.
pub struct SeenTasks(HashMap<(u32, u32), u64>);

/// What `/proc` says of a thread.
struct SeenTask {
    ticks: u64,
    cpu: Option<usize>,
    allowed: Vec<usize>,
}

impl SeenTasks {
    /// What they took so far.
    pub fn look(root: &Path, look: &Observation) -> Self {
        let all = look.processes.iter().flat_map(|process| {
            let tasks =
                owners(process).filter_map(|thread| Some((thread.tid, SeenTask::of(root, process, thread)?)));
            tasks.map(|(tid, task)| ((process.pid, tid), task.ticks)).collect::<Vec<_>>()
        });
        Self(all.collect())
    }

    /// Tells the processes of their threads. `seconds`: since this look.
    pub fn fill(&self, root: &Path, last: &Observation, seconds: f64, processes: &mut [ProcessEvidence]) {
        for (process, evidence) in last.processes.iter().zip(processes) {
            let of = |thread: &ThreadView| {
                let task = SeenTask::of(root, process, thread)?;
                let before = *self.0.get(&(process.pid, thread.tid))?;
                let took = task.ticks.saturating_sub(before) as f64 / TICKS;
                let (tid, name) = (thread.tid, thread.name.clone());
                let busy = took / seconds.max(0.001);
                Some(ThreadEvidence { tid, name, allowed: task.allowed, cpu: task.cpu, busy })
            };
            evidence.threads = owners(process).filter_map(of).collect();
        }
    }
}

/// The threads that own pools of a process, each once.
fn owners(process: &ProcessView) -> impl Iterator<Item = &ThreadView> {
    let is_alive = process.life == Life::Alive;
    let mut all: Vec<_> = process.pools.iter().filter_map(|pool| pool.thread.as_ref()).collect();
    all.sort_by_key(|thread| thread.tid);
    all.dedup_by_key(|thread| thread.tid);
    all.into_iter().filter(move |_| is_alive)
}

impl SeenTask {
    /// `None` if it is gone, or another thread has its number here: in another PID namespace.
    fn of(root: &Path, process: &ProcessView, thread: &ThreadView) -> Option<Self> {
        let at = root.join(format!("proc/{}/task/{}", process.pid, thread.tid));
        let read = |name| fs::read_to_string(at.join(name)).ok();
        let is_it = read("comm")?.trim_end() == thread.name;
        is_it.then(|| Self::parse(&read("stat")?, &read("status")?)).flatten()
    }

    /// Fields 14, 15 and 39 of stat: proc(5). They are counted from behind the name, which may hold anything.
    fn parse(stat: &str, status: &str) -> Option<Self> {
        let (_, fields) = stat.rsplit_once(')')?;
        let fields: Vec<_> = fields.split_whitespace().collect();
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        Some(Self {
            ticks: field(14)? + field(15)?,
            cpu: field(39).and_then(|cpu| usize::try_from(cpu).ok()),
            allowed: allowed.map(numbers).unwrap_or_default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_with_any_name_is_read() {
        let stat = "71 (a) b (c) R 1 71 71 0 -1 4194304 90 0 0 0 250 33 0 0 20 0 1 0 1234 0 0 0 0 0 0 0 0 \
                    0 0 0 0 0 0 0 17 5 0 0 0 0 0";
        let task = SeenTask::parse(stat, "Name:\tx\nCpus_allowed_list:\t0-2,7\n").unwrap();
        assert_eq!((task.ticks, task.cpu, task.allowed), (283, Some(5), vec![0, 1, 2, 7]));
        assert!(SeenTask::parse("71", "").is_none() && SeenTask::parse("71 (x) R 1", "").is_none());
    }

    #[test]
    fn this_thread_is_read() {
        let read = |name: &str| fs::read_to_string(format!("/proc/thread-self/{name}")).unwrap();
        let task = SeenTask::parse(&read("stat"), &read("status")).unwrap();
        assert!(task.cpu.is_some_and(|cpu| task.allowed.contains(&cpu)), "{:?} {:?}", task.cpu, task.allowed);
    }
}
