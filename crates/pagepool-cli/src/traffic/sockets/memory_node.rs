//! The NUMA node that a card, its memory and the thread that polls it should share.
//!
//! Memory on another node costs several times as much, and a page that is not on the node of its pool leaves
//! the pool at the next refill. So memory is bound to one node, pools allocate from that node whatever CPU a
//! thread is on, and threads stay on the node's CPUs.

use std::fs;

use pagepool::{NodeId, Topology};
use pagepool_watch::commands::numbers;

use crate::sys;

const NODES: &str = "/sys/devices/system/node";

/// The node of the first interface whose card has one; else of the first CPU; else of the calling thread.
/// `None` if this process may use the memory of only one node, or not that of this node.
pub fn choose<'a>(interfaces: impl IntoIterator<Item = &'a str>, cpus: &[usize]) -> Option<NodeId> {
    let with_memory = usable();
    if with_memory.len() < 2 {
        return None;
    }
    let of_card = interfaces.into_iter().find_map(of_interface);
    let of_cpu = || cpus.first().and_then(|&cpu| of_cpu(cpu));
    let node = of_card.or_else(of_cpu).unwrap_or_else(|| Topology::detect().current_node());
    with_memory.contains(&usize::from(node.0)).then_some(node)
}

/// The nodes with memory that this process may use.
fn usable() -> Vec<usize> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let (mut nodes, allowed) = (kernel_list(&format!("{NODES}/has_memory")), allowed(&status));
    nodes.retain(|node| allowed.as_ref().is_none_or(|allowed| allowed.contains(node)));
    nodes
}

/// The nodes of a process's cpuset, from its status; `None` on a kernel without cpusets.
fn allowed(status: &str) -> Option<Vec<usize>> {
    status.lines().find_map(|line| line.strip_prefix("Mems_allowed_list:")).map(numbers)
}

pub fn cpus_of(node: NodeId) -> Vec<usize> {
    let there = kernel_list(&format!("{NODES}/node{}/cpulist", node.0));
    sys::allowed_cpus().into_iter().filter(|cpu| there.contains(cpu)).collect()
}

/// The node of an interface's card. `None` if it has no card, or the kernel does not know. A virtio device
/// has the node of its card.
fn of_interface(name: &str) -> Option<NodeId> {
    let device = fs::canonicalize(format!("/sys/class/net/{name}/device")).ok()?;
    let text = device.ancestors().find_map(|of| fs::read_to_string(of.join("numa_node")).ok())?;
    text.trim().parse().ok().map(NodeId) // -1 if the kernel does not know
}

fn of_cpu(cpu: usize) -> Option<NodeId> {
    let nodes =
        kernel_list(&format!("{NODES}/has_cpu")).into_iter().filter_map(|node| u8::try_from(node).ok());
    nodes.map(NodeId).find(|node| kernel_list(&format!("{NODES}/node{}/cpulist", node.0)).contains(&cpu))
}

/// The numbers in a file of the kernel; empty if there is no such file.
fn kernel_list(path: &str) -> Vec<usize> {
    fs::read_to_string(path).map(|text| numbers(&text)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_outside_the_cpuset_are_not_used() {
        let status = "Mems_allowed:\t00000000,00000005\nMems_allowed_list:\t0,2\nThreads:\t1\n";
        assert_eq!((allowed(status), allowed("Threads:\t1\n")), (Some(vec![0, 2]), None));
        assert!(!usable().is_empty() || kernel_list(&format!("{NODES}/has_memory")).is_empty());
    }

    #[test]
    fn a_thread_gets_a_node_if_the_machine_has_several() {
        let nodes = usable().len();
        let home = choose(["lo"], &[]);
        assert_eq!(home.is_some(), nodes > 1, "lo has no card: {home:?} of {nodes}");
        assert!(home.is_none_or(|node| !cpus_of(node).is_empty()), "{home:?}");
        let cpu = sys::allowed_cpus()[0];
        assert!(of_cpu(cpu).is_none_or(|node| cpus_of(node).contains(&cpu)));
    }
}
