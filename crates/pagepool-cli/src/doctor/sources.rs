//! Where evidence comes from: looks at what processes publish and at the machine, some time apart.

mod cpus;
mod interrupts;
mod kernel_pools;
mod links;
mod published;
mod tasks;

use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use pagepool::observe::RunFolder;

use super::evidence::{Evidence, ProcessEvidence};
use crate::engine::interrupt::listen;
use crate::observing::look::Observation;
use interrupts::Interrupts;
use kernel_pools::KernelPools;
use links::Links;
use tasks::SeenTasks;

/// Looks at the pools, the first and the last among them; fewer if they take longer than the time between.
const LOOKS: u32 = 31;
/// The time between two looks whether the user wants an end.
const NAP: Duration = Duration::from_millis(20);

/// Where the kernel shows the machine. Tests make up another place.
const ROOT: &str = "/";

/// Looks for some seconds, at all processes of a folder or at those of a name or number. An error if there is
/// none of that, or the user wants an end.
pub fn collect(folder: &RunFolder, of: Option<&str>, seconds: u64) -> Result<Evidence, String> {
    let first = chosen(Observation::at(folder), of);
    if let Some(of) = of.filter(|_| first.processes.is_empty()) {
        let folder = first.folder.display();
        return Err(format!("{of} is no process that publishes in {folder}: `pagepool list` shows them"));
    }
    let mut notes = Vec::new();
    let mut links = Links::look(Path::new(ROOT), &first, &mut notes);
    let mut kernel = KernelPools::look(&mut notes);
    let (tasks, interrupts) = (SeenTasks::look(Path::new(ROOT), &first), Interrupts::look(Path::new(ROOT)));
    let (start, mut looks) = (Instant::now(), vec![first]);
    wait_and_look(folder, of, (start, Duration::from_secs(seconds)), &mut looks)?;
    let last = &looks[looks.len() - 1];
    let seconds = start.elapsed().as_secs_f64();
    let interrupts = Interrupts::look(Path::new(ROOT)).since(&interrupts);
    let mut processes = published::processes(&looks);
    tasks.fill(Path::new(ROOT), last, seconds, &mut processes);
    links::mark_here(&mut processes);
    notes.extend(last.errors.iter().cloned());
    notes.extend(elsewhere(&processes));
    let links = links.evidence(Path::new(ROOT), &interrupts, &mut notes);
    let names: Vec<_> = of.iter().flat_map(|_| &links).map(|link| link.name.clone()).collect();
    let kernel_pools = kernel.evidence(of.map(|_| &*names), &mut notes);
    let (cpus, huge_pages) = (cpus::cpus(Path::new(ROOT)), cpus::huge_pages(Path::new(ROOT)));
    Ok(Evidence { seconds, processes, links, kernel_pools, cpus, huge_pages, notes })
}

/// Takes the other looks when their time comes.
fn wait_and_look(
    folder: &RunFolder,
    of: Option<&str>,
    (start, time): (Instant, Duration),
    looks: &mut Vec<Observation>,
) -> Result<(), String> {
    let signals = listen()?;
    loop {
        let next = (start.elapsed() + time / (LOOKS - 1)).min(time);
        while start.elapsed() < next {
            if signals.interrupted() {
                return Err("interrupted before the last look".into());
            }
            sleep(NAP.min(next.saturating_sub(start.elapsed())));
        }
        looks.push(chosen(Observation::at(folder), of));
        if next == time {
            return Ok(());
        }
    }
}

/// The same look, at these processes alone.
fn chosen(mut look: Observation, of: Option<&str>) -> Observation {
    if let Some(of) = of {
        look.processes.retain(|process| process.name == of || process.pid.to_string() == of);
    }
    look
}

/// Says that the interfaces of some processes were not looked at.
fn elsewhere(processes: &[ProcessEvidence]) -> impl Iterator<Item = String> + '_ {
    let has_sockets = |process: &&ProcessEvidence| {
        process.dead_for.is_none() && process.entries.iter().any(|entry| entry.kind == "socket")
    };
    let not_here = processes.iter().filter(|process| process.is_here != Some(true));
    not_here.filter(has_sockets).map(|process| {
        let (title, pid) = (process.title(), process.pid);
        match process.is_here {
            None => format!(
                "/proc/{pid}/ns/net of {title} could not be read, as of a process that ended or has \
                 capabilities: its interfaces were not looked at; root may read it"
            ),
            _ => format!(
                "{title} is in another network namespace: its interfaces were not looked at; `nsenter \
                 --net=/proc/{pid}/ns/net pagepool doctor {pid}` does"
            ),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::evidence::healthy;

    #[test]
    fn a_process_that_may_not_be_asked_is_not_said_to_be_elsewhere() {
        let mut processes = healthy::evidence().processes;
        let mut said = |is_here| {
            processes[0].is_here = is_here;
            elsewhere(&processes).collect::<Vec<_>>().join("")
        };
        assert!(said(None).starts_with("/proc/500/ns/net of drop, pid 500 could not be read"));
        assert!(said(Some(false)).starts_with("drop, pid 500 is in another network namespace"));
        assert_eq!(said(Some(true)), "");
    }
}
