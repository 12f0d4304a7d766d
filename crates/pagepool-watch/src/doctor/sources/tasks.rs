//! The threads that own pools, from `/proc`.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use pagepool::ThreadView;

use crate::doctor::evidence::{ProcessEvidence, ThreadEvidence, Unseen};
use crate::kernel_list::numbers;
use crate::observation::Observation;
use crate::published::model::{Life, ProcessView};

/// `USER_HZ`, on every Linux.
const TICKS: f64 = 100.0;

/// CPU time at a look, by PID and TID.
pub struct SeenTasks(HashMap<(u32, u32), Ticks>);

/// CPU time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ticks {
    user: u64,
    kernel: u64,
}

struct SeenTask {
    ticks: Ticks,
    cpu: Option<usize>,
    allowed: Vec<usize>,
}

impl SeenTasks {
    pub fn look(root: &Path, look: &Observation) -> Self {
        let all = look.processes.iter().flat_map(|process| {
            let tasks =
                owners(process).filter_map(|thread| Some((thread.tid, SeenTask::of(root, process, thread)?)));
            let pid = process.pid_here.unwrap_or_default(); // 0 matches no task
            tasks.map(|(tid, task)| ((pid, tid), task.ticks)).collect::<Vec<_>>()
        });
        Self(all.collect())
    }

    /// `seconds`: since this look.
    pub fn fill(
        &self,
        root: &Path,
        (last, seconds): (&Observation, f64),
        processes: &mut [ProcessEvidence],
        unseen: &mut Unseen,
    ) {
        for (process, evidence) in last.processes.iter().zip(processes) {
            let Some(pid) = process.pid_here else { continue };
            let of = |thread: &ThreadView| {
                let task = SeenTask::of(root, process, thread)?;
                let before = *self.0.get(&(pid, thread.tid))?;
                let share =
                    |now: u64, then: u64| now.saturating_sub(then) as f64 / TICKS / seconds.max(0.001);
                let in_kernel = share(task.ticks.kernel, before.kernel);
                let busy = share(task.ticks.user, before.user) + in_kernel;
                let (tid, name) = (thread.tid, thread.name.clone());
                Some(ThreadEvidence { tid, name, allowed: task.allowed, cpu: task.cpu, busy, in_kernel })
            };
            evidence.threads = owners(process).filter_map(of).collect();
            let tasks = format!("proc/{pid}/task");
            if owners(process).next().is_some() && fs::read_dir(root.join(&tasks)).is_err() {
                let title = evidence.title();
                unseen.not_judged.push(format!("the threads of {title}: /{tasks} cannot be read"));
            }
        }
    }
}

/// Each owner once; only of a live process.
fn owners(process: &ProcessView) -> impl Iterator<Item = &ThreadView> {
    let is_alive = process.life == Life::Alive;
    let mut all: Vec<_> = process.pools.iter().filter_map(|pool| pool.thread.as_ref()).collect();
    all.sort_by_key(|thread| thread.tid);
    all.dedup_by_key(|thread| thread.tid);
    all.into_iter().filter(move |_| is_alive)
}

impl SeenTask {
    /// `None` if it is gone, or in another pid namespace.
    fn of(root: &Path, process: &ProcessView, thread: &ThreadView) -> Option<Self> {
        let at = root.join(format!("proc/{}/task/{}", process.pid_here?, thread.tid));
        let read = |name| Some(String::from_utf8_lossy(&fs::read(at.join(name)).ok()?).into_owned());
        Self::parse(&read("stat")?, &read("status")?)
    }

    /// Fields 14, 15 and 39 of stat (proc(5)), counted from after the name, which may contain anything.
    fn parse(stat: &str, status: &str) -> Option<Self> {
        let (_, fields) = stat.rsplit_once(')')?;
        let fields: Vec<_> = fields.split_whitespace().collect();
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        Some(Self {
            ticks: Ticks { user: field(14)?, kernel: field(15)? },
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
        assert_eq!((task.ticks, task.cpu), (Ticks { user: 250, kernel: 33 }, Some(5)));
        assert_eq!(task.allowed, [0, 1, 2, 7]);
        assert!(SeenTask::parse("71", "").is_none() && SeenTask::parse("71 (x) R 1", "").is_none());
    }

    #[test]
    fn this_thread_is_read() {
        let read = |name: &str| fs::read_to_string(format!("/proc/thread-self/{name}")).unwrap();
        let task = SeenTask::parse(&read("stat"), &read("status")).unwrap();
        assert!(task.cpu.is_some_and(|cpu| task.allowed.contains(&cpu)), "{:?} {:?}", task.cpu, task.allowed);
    }
}
