//! Capabilities: what a command keeps while it runs, and whether it ends in order with that.

// UNSAFETY: the kernel is asked what `membarrier` does here.
#![expect(unsafe_code)]

use crate::between;
use std::collections::BTreeSet;

use crate::between::{Place, Running, far_ends, frames, hosts, ok, pass};
use pagepool_lab::TempFolder;
use pagepool_link::{Netlink, TwoHostsParams};

const NET_ADMIN: u64 = 1 << 12;
const NET_RAW: u64 = 1 << 13;
const BPF: u64 = 1 << 39;

/// What this kernel makes a run keep: for bpf(2) as a whole, and to wait for its readers.
fn by_kernel() -> u64 {
    let read = |name: &str| std::fs::read_to_string(format!("/proc/sys/kernel/{name}")).unwrap_or_default();
    let release = read("osrelease");
    let mut numbers = release.split(['.', '-']).map(|number| number.parse().unwrap_or(0));
    let version: [u32; 2] = [(); 2].map(|()| numbers.next().unwrap_or(0));
    let restricted = version < [5, 19] && read("unprivileged_bpf_disabled").trim() != "0";
    // SAFETY: the call takes three integers, and touches no memory of ours.
    let known = unsafe { libc::syscall(libc::SYS_membarrier, libc::MEMBARRIER_CMD_QUERY, 0, 0) };
    let waits = known > 0 && known & libc::c_long::from(libc::MEMBARRIER_CMD_GLOBAL) != 0;
    (if restricted { BPF } else { 0 }) | (if waits { 0 } else { NET_RAW })
}

/// Of all threads of a process: the permitted, effective, inheritable and ambient capabilities, and whether
/// no program that it executes gets more.
fn capabilities(running: &Running) -> BTreeSet<[u64; 5]> {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", running.id())).expect("it runs");
    tasks
        .map(|task| {
            let status = task.expect("it runs").path().join("status");
            let text = std::fs::read_to_string(status).expect("it runs");
            ["CapPrm:", "CapEff:", "CapInh:", "CapAmb:", "NoNewPrivs:"].map(|name| {
                let bits = text.lines().find_map(|line| line.strip_prefix(name)).expect("Linux has it");
                u64::from_str_radix(bits.trim(), 16).expect("a number")
            })
        })
        .collect()
}

/// Every command gives up its capabilities in all of its threads, moves packets without them, and ends in
/// order: nothing is attached, nobody holds an interface in promiscuous mode, and all pages are the arena's.
#[test]
fn a_run_keeps_the_capabilities_that_it_needs() {
    let name = "a_run_keeps_the_capabilities_that_it_needs";
    let folder = TempFolder::new("pagepool-privileges").expect("a new folder");
    let file = folder.path().join("file");
    let Some(hosts) = hosts(name, &TwoHostsParams { queues: 2, ..TwoHostsParams::default() }) else { return };
    for (command, may_keep) in [
        (&["drop", "near0", "--pcap", file.to_str().expect("text")][..], 0),
        (&["echo", "near0", "--tx-mode", "ring"], 0),
        (&["echo", "near0", "--tx-mode", "ring", "--busy-poll"], 0),
        (&["echo", "near0"], NET_ADMIN | BPF),
        (&["forward", "near0", "near1", "--tx-mode", "ring"], 0),
        (&["gen", "near0", "--tx-mode", "ring", "--rate", "1000"], 0),
    ] {
        let Some(running) = Place::Between(&hosts).start(name, command) else { return };
        let batch = running.said.concat().contains("TX by BPF batch");
        let [near, other] = far_ends(&hosts);
        match command[0] {
            "echo" => drop(pass(&frames(&hosts, 0, 64), 100, &near, &near)),
            "forward" => drop(pass(&frames(&hosts, 0, 64), 100, &near, &other)),
            _ => between::send(&near, &[0xff; 64]),
        }
        running.wait_for_count(&["rx_packets", "tx_packets"], 1);
        let kept = capabilities(&running);
        assert_eq!(kept.len(), 1, "all threads have the same: {command:?}: {kept:x?}");
        let [permitted, effective, inheritable, ambient, no_more] = *kept.first().expect("it has a thread");
        let may_keep = if batch { may_keep } else { 0 };
        assert_eq!(permitted & !(may_keep | by_kernel()), 0, "{command:?}: {permitted:x}");
        assert_eq!((effective, inheritable, ambient), (permitted, 0, 0), "{command:?}");
        assert_eq!(no_more, 1, "{command:?}: root would have all of them again after execve");
        assert!(!batch || permitted & NET_ADMIN != 0, "BPF batch asks for filters: {permitted:x}");
        running.interrupt();
        let link = hosts.run_between(|| ok(ok(Netlink::open()).link("near0")));
        assert_eq!((link.xdp, link.promiscuity), (vec![], 0), "{command:?}");
    }
}
