//! The sources of evidence: looks at what processes publish, and at the machine.

mod cpus;
mod interrupts;
mod kernel_pools;
mod links;
mod not_judged;
mod published;
mod tasks;

use std::path::Path;

use interrupts::Interrupts;
use kernel_pools::KernelPools;
use links::Links;
use tasks::SeenTasks;

use super::evidence::{Evidence, Unseen};
use crate::observation::Observation;

/// Tests use another root.
const ROOT: &str = "/";

/// The machine at the first look at processes.
pub struct Sources {
    links: Links,
    kernel: KernelPools,
    tasks: SeenTasks,
    interrupts: Interrupts,
    unseen: Unseen,
}

impl Sources {
    pub fn look(first: &Observation) -> Self {
        let (root, mut unseen) = (Path::new(ROOT), Unseen::default());
        Self {
            links: Links::look(root, first, &mut unseen),
            kernel: KernelPools::look(&mut unseen),
            tasks: SeenTasks::look(root, first),
            interrupts: Interrupts::look(root),
            unseen,
        }
    }

    /// What changed until the last look, `seconds` later. If only `some` processes are examined: of the
    /// kernel's pools only those on interfaces of these processes.
    pub fn evidence(self, looks: &[Observation], seconds: f64, some: bool) -> Evidence {
        let Self { mut links, mut kernel, tasks, interrupts, mut unseen } = self;
        let root = Path::new(ROOT);
        let mut processes = published::processes(looks);
        let interrupts = Interrupts::look(root).since(&interrupts);
        if let (Some(first), Some(last)) = (looks.first(), looks.last()) {
            tasks.fill(root, (last, seconds), &mut processes, &mut unseen);
            links::mark_here(&mut processes);
            unseen.not_judged.extend(last.errors.iter().cloned());
            // If no process publishes, the kernel's pools are all there is to judge.
            let of_nobody = if kernel.are_seen() { &mut unseen.notes } else { &mut unseen.not_judged };
            of_nobody.extend(not_judged::nobody(last));
            unseen.not_judged.extend(not_judged::elsewhere(&processes));
            unseen.not_judged.extend(not_judged::ended(first, last));
        }
        unseen.not_judged.extend(not_judged::too_young(&processes));
        unseen.not_judged.extend(not_judged::uncollected(&processes));
        let links = links.evidence(root, &interrupts, &mut unseen);
        let names: Vec<_> = links.iter().filter(|_| some).map(|link| link.name.clone()).collect();
        let kernel_pools = kernel.evidence(some.then_some(&*names), &mut unseen);
        let (cpus, transparent_huge_pages) = (cpus::cpus(root), cpus::transparent_huge_pages(root));
        Evidence { seconds, processes, links, kernel_pools, cpus, transparent_huge_pages, unseen }
    }
}
