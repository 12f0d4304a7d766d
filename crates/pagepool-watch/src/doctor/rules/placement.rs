//! The CPUs and nodes of threads, interrupts, cards and memory.

use crate::doctor::evidence::{
    CpuEvidence, EntryEvidence, Evidence, InterruptEvidence, LinkEvidence, ProcessEvidence, ThreadEvidence,
};
#[cfg(test)]
use crate::doctor::rule::RuleCase;
use crate::doctor::rule::{Cost, DoctorRule, Finding};
use crate::kernel_list::ranges;
use crate::words::grouped;

/// Interrupts or pages per second from which on they take much CPU time.
const MANY: f64 = 1000.0;
/// The share of a CPU from which on a thread needs that CPU.
const NEEDS_CPU: f64 = 0.5;

pub const OFF_NODE_MEMORY: DoctorRule = DoctorRule {
    name: "off_node_memory",
    cost: Cost::EachPacket,
    when: "a pool allocates 1,000 pages/s or more, its owner may run only on the CPUs of one NUMA node, and \
           the pool's `nid` is another node",
    why: "Each read of a packet crosses the link between the nodes.",
    fix: "Pin the owner to the memory's node (`--cpus`, `taskset -p`), or set `nid` and the arena's node to \
          the owner's node.",
    verify: "`numastat -p PID`: the memory is on the owner's node.",
    find: off_node_memory,
    #[cfg(test)]
    case: RuleCase {
        ill: |of| of.pool().set("nid", "1"),
        says: "queue0 runs on node 0, but the pool takes pages from node 1",
        well: |of| {
            of.pool().set("nid", "1");
            of.processes[0].threads[0].allowed = vec![0, 1, 2, 3]; // it may move at any moment
        },
    },
};

fn off_node_memory(evidence: &Evidence) -> Vec<Finding> {
    let mut all = Vec::new();
    for (process, pool) in evidence.pools() {
        let Some(thread) = process.thread(pool) else { continue };
        let (Some(here), Some(there)) = (node_of(&evidence.cpus, thread), pool.number("nid")) else {
            continue;
        };
        if here as u64 != there && evidence.per_second(pool.allocated()) >= MANY {
            let name = &thread.name;
            let seen =
                format!("Thread {name} runs on node {here}, but the pool takes pages from node {there}.");
            all.push(Finding::of_pool((process, pool), seen, evidence.per_second(pool.allocated())));
        }
    }
    all
}

pub const OFF_NODE_CARD: DoctorRule = DoctorRule {
    name: "off_node_card",
    cost: Cost::EachPacket,
    when: "the thread of a socket may run only on the CPUs of one NUMA node, and the interface's NIC is on \
           another node",
    why: "Packets and rings cross the link between the nodes when the NIC writes them or the thread reads \
          them.",
    fix: "Use CPUs of the NIC's node (`--cpus`, `taskset -p`). In your own program, bind the arena to that \
          node as well (`NodePolicy::Bind`).",
    verify: "`cat /sys/class/net/{of}/device/numa_node` prints the NIC's node, `taskset -cp TID` the \
             thread's CPUs.",
    find: off_node_card,
    #[cfg(test)]
    case: RuleCase {
        ill: |of| of.links[0].node = Some(1),
        says: "NIC of near0 is on node 1, but thread queue0 runs on node 0",
        well: |of| of.links[0].node = None,
    },
};

fn off_node_card(evidence: &Evidence) -> Vec<Finding> {
    let of = |(process, socket, link): (&ProcessEvidence, &EntryEvidence, &LinkEvidence)| {
        let thread = process.thread_of(socket)?;
        let (here, there) = (node_of(&evidence.cpus, thread)?, link.node?);
        let (interface, name) = (&link.name, &thread.name);
        let seen =
            format!("The NIC of {interface} is on node {there}, but thread {name} runs on node {here}.");
        let finding = Finding::of_socket(evidence, (process, socket), &link.name, seen);
        (here != there).then_some(finding)
    };
    evidence.receivers().filter_map(of).collect()
}

pub const OFF_NODE_IRQ: DoctorRule = DoctorRule {
    name: "off_node_irq",
    cost: Cost::EachPacket,
    when: "the thread of a socket may run only on the CPUs of one NUMA node, and the interrupts of the \
           socket's queue go to CPUs of another node",
    why: "The data that the driver wrote last is in the caches of the other node.",
    fix: "Send the interrupts to a CPU on the thread's node.",
    verify: "`cat /proc/interrupts`: the counts of that node's CPUs rise.",
    find: off_node_irq,
    #[cfg(test)]
    case: RuleCase {
        ill: |of| of.links[0].interrupts[0].cpus = vec![3],
        says: "echo 0-2 > /proc/irq/40/smp_affinity_list",
        well: |of| of.links[0].interrupts[0].cpus = vec![0, 3],
    },
};

fn off_node_irq(evidence: &Evidence) -> Vec<Finding> {
    let mut all = Vec::new();
    for (process, socket, link) in evidence.receivers() {
        let Some(thread) = process.thread_of(socket) else { continue };
        let Some(here) = node_of(&evidence.cpus, thread) else { continue };
        for interrupt in of_queue(link, socket).filter(|interrupt| interrupt.moved > 0) {
            let there = evidence.cpus.node_of_all(&interrupt.cpus);
            let Some(there) = there.filter(|&there| there != here) else { continue };
            let seen = format!(
                "IRQ {} ({}) goes to node {there}, but thread {} runs on node {here}.",
                interrupt.number, interrupt.name, thread.name
            );
            let cpus = evidence.cpus.nodes.iter().find(|(node, _)| *node == here);
            let cpus = cpus.map(|(_, cpus)| ranges(cpus)).unwrap_or_default();
            let fix = format!("Run `echo {cpus} > /proc/irq/{}/smp_affinity_list`.", interrupt.number);
            all.push(Finding::of_socket(evidence, (process, socket), &link.name, seen).fixed_by(fix));
        }
    }
    all
}

pub const IRQ_ON_CPU: DoctorRule = DoctorRule {
    name: "irq_on_cpu",
    cost: Cost::EachPacket,
    when: "at least 1,000 interrupts per second of a socket's queue go to the only CPU on which the socket's \
           thread may run, and the thread uses at least half of that CPU. Not reported with `--busy-poll`, \
           where this is intended",
    why: "Interrupts and thread share one CPU, although others may be idle. Under load, packets wait.",
    fix: "Send the interrupts to another CPU.",
    verify: "`cat /proc/interrupts`: the count of another CPU rises.",
    find: irq_on_cpu,
    #[cfg(test)]
    case: RuleCase {
        ill: |of| of.links[0].interrupts[0].cpus = vec![0],
        says: "IRQ 40 (near0-TxRx-0) arrived 10,000 times per second on CPU 0. Thread queue0 uses",
        well: |of| {
            of.links[0].interrupts[0].cpus = vec![0];
            of.processes[0].threads[0].busy = 0.2;
        },
    },
};

fn irq_on_cpu(evidence: &Evidence) -> Vec<Finding> {
    let mut all = Vec::new();
    for (process, socket, link) in evidence.receivers() {
        let Some(thread) = process.thread_of(socket) else { continue };
        let needs = socket.param("busy_poll").is_none() && thread.busy >= NEEDS_CPU;
        let [cpu] = *thread.allowed else { continue };
        let same = |interrupt: &&InterruptEvidence| {
            interrupt.cpus == [cpu] && evidence.per_second(interrupt.moved) >= MANY
        };
        for interrupt in of_queue(link, socket).filter(same).filter(|_| needs) {
            let seen = format!(
                "IRQ {} ({}) arrived {} times per second on CPU {cpu}. Thread {} uses {:.0} % of that CPU.",
                interrupt.number,
                interrupt.name,
                grouped(evidence.per_second(interrupt.moved) as u64),
                thread.name,
                thread.busy * 100.0
            );
            let finding = Finding::of_socket(evidence, (process, socket), &link.name, seen);
            let other = another_cpu(evidence, cpu);
            let fix = other.map(|other| {
                let number = interrupt.number;
                let file = format!("/proc/irq/{number}/smp_affinity_list");
                format!("Run `echo {other} > {file}`, and exclude the IRQ from irqbalance.")
            });
            all.push(finding.fixed_if(fix));
        }
    }
    all
}

pub const GOVERNOR: DoctorRule = DoctorRule {
    name: "governor",
    cost: Cost::SomePackets,
    when: "the owner of a pool uses at least 5 % of a CPU, and the CPU on which it last ran has a frequency \
           governor other than `performance`. Not reported with the drivers `intel_pstate` and \
           `amd-pstate-epp`, which let the hardware choose the frequency",
    why: "The CPU speeds up only some time after packets arrive. With `powersave`, it stays slow.",
    fix: "Run `cpupower frequency-set -g performance`.",
    verify: "`cat /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor` prints performance.",
    find: governor,
    #[cfg(test)]
    case: RuleCase {
        ill: |of| of.cpus.governors[0].1 = "powersave".into(),
        says: "CPU 0, on which thread queue0 runs, has the governor powersave.",
        well: |of| of.cpus.governors[3].1 = "powersave".into(),
    },
};

fn governor(evidence: &Evidence) -> Vec<Finding> {
    let of = |process: &ProcessEvidence| {
        let slow = process.threads.iter().filter(|thread| thread.busy >= 0.05).filter_map(|thread| {
            let of_cpu = evidence.cpus.governors.iter().find(|(cpu, _)| Some(*cpu) == thread.cpu);
            let (cpu, governor) = of_cpu.filter(|(_, name)| name != "performance")?;
            let name = &thread.name;
            Some((
                format!("CPU {cpu}, on which thread {name} runs, has the governor {governor}"),
                thread.busy,
            ))
        });
        let (seen, busy): (Vec<_>, Vec<f64>) = slow.unzip();
        let seen = format!("{}.", seen.join("; "));
        (!busy.is_empty()).then(|| Finding::new(process.title(), &process.name, seen, busy.iter().sum()))
    };
    evidence.alive().filter_map(of).collect()
}

pub const IRQS_ON_ONE_CPU: DoctorRule = DoctorRule {
    name: "irqs_on_one_cpu",
    cost: Cost::SomePackets,
    when: "the interrupts of several receive queues of an interface all go to one CPU, although the machine \
           has others. Each arrives at least 100 times per second, and all together at least 1,000 times",
    why: "That CPU limits the rate of all these queues.",
    fix: "Use one CPU per queue (`echo CPU > /proc/irq/N/smp_affinity_list`), or start irqbalance.",
    verify: "`cat /proc/interrupts`: the counts of several CPUs rise.",
    find: irqs_on_one_cpu,
    #[cfg(test)]
    case: RuleCase {
        ill: |of| of.links[0].interrupts.iter_mut().for_each(|interrupt| interrupt.cpus = vec![2]),
        says: "IRQs 40, 41 all go to CPU 2, together 20,000 times per second",
        well: |of| {
            let names = ["virtio2-input.0", "virtio2-output.0"];
            for (interrupt, name) in of.links[0].interrupts.iter_mut().zip(names) {
                (interrupt.cpus, interrupt.name) = (vec![2], name.into());
            }
        },
    },
};

fn irqs_on_one_cpu(evidence: &Evidence) -> Vec<Finding> {
    let of = |link: &LinkEvidence| {
        let busy = |of: &&InterruptEvidence| evidence.per_second(of.moved) >= MANY / 10.0;
        let all: Vec<_> = link.interrupts.iter().filter(busy).filter(|of| queue_of(of).is_some()).collect();
        let mut queues: Vec<_> = all.iter().map(|of| queue_of(of)).collect();
        queues.sort_unstable();
        queues.dedup();
        let [cpu] = *all.first()?.cpus else { return None };
        let together = queues.len() > 1 && all.iter().all(|interrupt| interrupt.cpus == [cpu]);
        let has_others = evidence.cpus.nodes.iter().any(|(_, cpus)| cpus.iter().any(|&of| of != cpu));
        let count = all.iter().map(|interrupt| interrupt.moved).fold(0, u64::saturating_add);
        let rate = evidence.per_second(count);
        if !together || !has_others || rate < MANY {
            return None;
        }
        let numbers: Vec<_> = all.iter().map(|interrupt| interrupt.number.to_string()).collect();
        let often = grouped(rate as u64);
        let numbers = numbers.join(", ");
        let seen = format!("IRQs {numbers} all go to CPU {cpu}, together {often} times per second.");
        Some(Finding::of_link(link, seen, rate))
    };
    evidence.links.iter().filter_map(of).collect()
}

/// The node of a thread, if all CPUs that it may use are on it: where it ran at one moment proves nothing.
fn node_of(cpus: &CpuEvidence, thread: &ThreadEvidence) -> Option<usize> {
    cpus.node_of_all(&thread.allowed)
}

/// Another CPU without a pinned owner of a pool, if possible on the node of `than`.
fn another_cpu(evidence: &Evidence, than: usize) -> Option<usize> {
    let nodes = evidence.cpus.nodes.iter();
    let (of_node, others): (Vec<_>, Vec<_>) = nodes.partition(|(_, cpus)| cpus.contains(&than));
    let mut all = of_node.into_iter().chain(others).flat_map(|(_, cpus)| cpus).copied();
    let is_taken = |cpu| evidence.alive().flat_map(|process| &process.threads).any(|of| of.allowed == [cpu]);
    all.find(|&cpu| cpu != than && !is_taken(cpu))
}

/// The interrupts named after a socket's queue, except those for sent packets only.
fn of_queue<'a>(
    link: &'a LinkEvidence,
    socket: &EntryEvidence,
) -> impl Iterator<Item = &'a InterruptEvidence> {
    let queue: Option<u32> = socket.number("queue");
    link.interrupts.iter().filter(move |interrupt| queue.is_some() && queue_of(interrupt) == queue)
}

/// The receive queue in the name of an interrupt: `near0-TxRx-3`, `virtio2-input.3`,
/// `mlx5_comp3@pci:0000:3b:00.0`. `None` if it is only for sent packets or events of the card; also for gve
/// (`ntfy`), which counts send queues first.
fn queue_of(interrupt: &InterruptEvidence) -> Option<u32> {
    let name = interrupt.name.to_lowercase();
    let name = name.split('@').next()?;
    let sends_only = name.contains("output") || name.contains("tx") && !name.contains("rx");
    let is_other = ["async", "ntfy"].iter().any(|other| name.contains(other));
    let number = name.rsplit(|of: char| !of.is_ascii_digit()).next()?;
    number.parse().ok().filter(|_| !sends_only && !is_other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::evidence::healthy;

    #[test]
    fn an_interrupt_is_that_of_a_queue_by_its_number() {
        let names = [
            "virtio2-config",
            "virtio2-input.0",
            "virtio2-output.0",
            "eth0-TxRx-10",
            "ice-eth0-tx-0",
            "mlx5_comp7@pci:0000:3b:00.0",
            "mlx5_async0@pci:0000:3b:00.0",
            "gve-ntfy-blk0@pci:0000:00:04.0",
        ];
        let interrupt = |name: &&str| InterruptEvidence { name: (*name).into(), ..Default::default() };
        let link = LinkEvidence { interrupts: names.iter().map(interrupt).collect(), ..Default::default() };
        let names_of = |queue: &str| {
            let mut socket = EntryEvidence::default();
            socket.set("queue", queue);
            of_queue(&link, &socket).map(|of| of.name.clone()).collect::<Vec<_>>()
        };
        assert_eq!(
            (names_of("0"), names_of("10"), names_of("1"), names_of("7")),
            (
                vec!["virtio2-input.0".into()],
                vec!["eth0-TxRx-10".into()],
                vec![],
                vec!["mlx5_comp7@pci:0000:3b:00.0".into()]
            )
        );
    }

    #[test]
    fn slow_cpus_are_one_finding_of_a_process() {
        let mut evidence = healthy::evidence();
        evidence.cpus.governors.iter_mut().for_each(|(_, name)| *name = "schedutil".into());
        let threads = &mut evidence.processes[0].threads;
        threads.push(ThreadEvidence { cpu: Some(1), name: "queue1".into(), ..threads[0].clone() });
        let [found] = &*governor(&evidence) else { panic!("not one finding") };
        assert!(found.seen.contains("thread queue0 runs") && found.seen.contains("thread queue1 runs"));
    }

    #[test]
    fn interrupts_are_not_sent_to_a_cpu_that_an_owner_is_pinned_to() {
        let mut evidence = healthy::evidence();
        assert_eq!(another_cpu(&evidence, 0), Some(1));
        let queue1 = ThreadEvidence { allowed: vec![1], ..evidence.processes[0].threads[0].clone() };
        evidence.processes[0].threads.push(queue1);
        assert_eq!(another_cpu(&evidence, 0), Some(2));
    }
}
