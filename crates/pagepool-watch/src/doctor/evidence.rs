//! The doctor's evidence: plain values of two moments, and what moved between them. Sources fill it, rules
//! read it, and tests make it up.

use std::collections::BTreeMap;
use std::time::Duration;

use pagepool::{Inflight, Stats};
use pagepool_link::KernelPoolStats;

use crate::published::model::param;

/// A pool younger than this at the first look is still being filled; its slow calls are not judged.
pub const WARM_UP: Duration = Duration::from_secs(5);
/// The fewest looks that can show a steady rise of buffers that are out.
pub const LEAST_LOOKS: usize = 9;

#[derive(Clone, Debug, Default)]
pub struct Evidence {
    /// From the first to the last look.
    pub seconds: f64,
    pub processes: Vec<ProcessEvidence>,
    /// Interfaces of this network namespace that have sockets of the processes.
    pub links: Vec<LinkEvidence>,
    pub kernel_pools: Vec<KernelPoolEvidence>,
    pub cpus: CpuEvidence,
    /// `always`, `madvise` or `never`; `None` without transparent huge pages.
    pub transparent_huge_pages: Option<String>,
    pub unseen: Unseen,
}

#[derive(Clone, Debug, Default)]
pub struct Unseen {
    /// If it is not empty, no finding does not mean that all is well.
    pub not_judged: Vec<String>,
    /// What this machine lacks, or no rule promises to see.
    pub notes: Vec<String>,
}

#[derive(Clone, Debug, Default)]
pub struct ProcessEvidence {
    pub name: String,
    pub pid: u32,
    /// Its PID in this `/proc`; `None` in another pid namespace.
    pub pid_here: Option<u32>,
    /// Set if another file has this name and PID.
    pub file: Option<String>,
    /// The time since its last sign of life, if it is dead.
    pub dead_for: Option<Duration>,
    /// Whether its interfaces are in this network namespace; `None` if unknown.
    pub is_here: Option<bool>,
    pub pools: Vec<PoolEvidence>,
    /// Arenas, sockets, ports, stacks and others.
    pub entries: Vec<EntryEvidence>,
    /// The threads that own its pools.
    pub threads: Vec<ThreadEvidence>,
}

/// Something of a process.
pub type OfProcess<'a, T> = (&'a ProcessEvidence, &'a T);

#[derive(Clone, Debug, Default)]
pub struct PoolEvidence {
    pub id: u32,
    pub name: String,
    pub area_id: u64,
    /// The owner.
    pub tid: Option<u32>,
    pub page_bytes: u64,
    /// At the first look; zero if it did not exist then.
    pub age: Duration,
    /// How long ago it ended with buffers out.
    pub detached: Option<Duration>,
    pub params: Vec<(String, String)>,
    /// Between the looks.
    pub moved: Stats,
    pub pages: Inflight,
    /// Pages with the program at each look: out, and not waiting for packets at a device.
    pub held: Vec<u64>,
    /// If the pool records them.
    pub holders: Option<HolderEvidence>,
}

#[derive(Clone, Debug, Default)]
pub struct HolderEvidence {
    /// Pages out for a minute or longer.
    pub for_a_minute: u64,
    /// The largest, in words.
    pub most: Vec<String>,
    /// Those that hold more at the last look, in words; the largest rise first.
    pub grown: Vec<String>,
}

#[derive(Clone, Debug, Default)]
pub struct EntryEvidence {
    pub kind: String,
    pub id: u64,
    pub pool: Option<u32>,
    pub name: String,
    pub params: Vec<(String, String)>,
    pub now: BTreeMap<String, u64>,
    /// Between the looks, without counters that are new.
    pub moved: BTreeMap<String, u64>,
}

#[derive(Clone, Debug, Default)]
pub struct ThreadEvidence {
    pub tid: u32,
    pub name: String,
    /// The CPUs that it may run on.
    pub allowed: Vec<usize>,
    /// The CPU that it last ran on.
    pub cpu: Option<usize>,
    /// Its share of a CPU between the looks.
    pub busy: f64,
    /// The part of that share spent in system calls.
    pub in_kernel: f64,
}

#[derive(Clone, Debug, Default)]
pub struct LinkEvidence {
    pub name: String,
    pub index: u32,
    pub state: LinkState,
    pub driver: Option<String>,
    /// Receive queues: in use, and the most possible.
    pub queues: Option<(u32, u32)>,
    /// The card's NUMA node.
    pub node: Option<usize>,
    /// Whether the driver has native XDP, and zero copy; `None` if not reported.
    pub native: Option<bool>,
    pub zero_copy: Option<bool>,
    pub has_iommu: bool,
    /// Slots of the hardware's receive ring: now, and the most possible.
    pub rx_ring: Option<(u32, u32)>,
    /// Packets that card or driver dropped between the looks.
    pub dropped: u64,
    /// Sorted by number.
    pub interrupts: Vec<InterruptEvidence>,
    pub offloads: Vec<OffloadEvidence>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinkState {
    #[default]
    Up,
    /// It was not set up.
    Down,
    /// It is up, but the other end is missing.
    NoCarrier,
    /// It was removed, or moved to another network namespace.
    Gone,
}

#[derive(Clone, Debug, Default)]
pub struct InterruptEvidence {
    pub number: u32,
    pub name: String,
    pub cpus: Vec<usize>,
    /// Between the looks.
    pub moved: u64,
}

/// Offloads that change arriving packets.
#[derive(Clone, Debug, Default)]
pub struct OffloadEvidence {
    pub effect: String,
    /// Turns the offloads off, if anything does.
    pub command: Option<String>,
}

#[derive(Clone, Debug, Default)]
pub struct KernelPoolEvidence {
    pub id: u32,
    /// `None` if it is gone.
    pub interface: Option<String>,
    pub inflight: u64,
    pub detached: Option<Duration>,
    /// Whether the first look found it.
    pub is_old: bool,
    /// Between the looks; zero if the kernel has no counters.
    pub moved: KernelPoolStats,
}

#[derive(Clone, Debug, Default)]
pub struct CpuEvidence {
    /// Nodes that have CPUs, with these.
    pub nodes: Vec<(usize, Vec<usize>)>,
    /// Frequency governors, of the CPUs that have one.
    pub governors: Vec<(usize, String)>,
}

impl Evidence {
    pub fn alive(&self) -> impl Iterator<Item = &ProcessEvidence> {
        self.processes.iter().filter(|process| process.dead_for.is_none())
    }

    /// Pools of live processes that have not ended.
    pub fn pools(&self) -> impl Iterator<Item = (&ProcessEvidence, &PoolEvidence)> {
        let all = self.alive().flat_map(|process| process.pools.iter().map(move |pool| (process, pool)));
        all.filter(|(_, pool)| pool.detached.is_none())
    }

    /// Those of [`Self::pools`] that are no longer being filled.
    pub fn warm_pools(&self) -> impl Iterator<Item = (&ProcessEvidence, &PoolEvidence)> {
        self.pools().filter(|(_, pool)| pool.age >= WARM_UP)
    }

    /// Entries of live processes, of these kinds.
    pub fn entries<'a>(
        &'a self,
        kinds: &'a [&'a str],
    ) -> impl Iterator<Item = (&'a ProcessEvidence, &'a EntryEvidence)> {
        let of = move |process: &'a ProcessEvidence| {
            process.entries.iter().filter(move |entry| kinds.contains(&&*entry.kind))
        };
        self.alive().flat_map(move |process| of(process).map(move |entry| (process, entry)))
    }

    /// AF_XDP sockets that receive on interfaces of this network namespace.
    pub fn receivers(&self) -> impl Iterator<Item = (&ProcessEvidence, &EntryEvidence, &LinkEvidence)> {
        self.entries(&["socket"]).filter_map(|(process, socket)| {
            let link = self.link_of(process, socket)?;
            socket.receives().then_some((process, socket, link))
        })
    }

    pub fn link_of(&self, process: &ProcessEvidence, socket: &EntryEvidence) -> Option<&LinkEvidence> {
        let index: u32 = socket.number("ifindex")?;
        self.links.iter().find(|link| process.is_here == Some(true) && link.index == index)
    }

    pub fn per_second(&self, count: u64) -> f64 {
        if self.seconds > 0.0 { count as f64 / self.seconds } else { 0.0 }
    }
}

impl ProcessEvidence {
    pub fn title(&self) -> String {
        let file = self.file.as_ref().map_or(String::new(), |file| format!(" ({file})"));
        format!("{}, pid {}{file}", self.name, self.pid)
    }

    /// The owner of the socket's pool, which polls the socket.
    pub fn thread_of(&self, socket: &EntryEvidence) -> Option<&ThreadEvidence> {
        let pool = self.pools.iter().find(|pool| Some(pool.id) == socket.pool)?;
        self.thread(pool)
    }

    pub fn thread(&self, pool: &PoolEvidence) -> Option<&ThreadEvidence> {
        self.threads.iter().find(|thread| Some(thread.tid) == pool.tid)
    }

    /// The rise of a counter, summed over all entries.
    pub fn moved(&self, counter: &str) -> u64 {
        self.entries.iter().map(|entry| entry.moved(counter)).fold(0, u64::saturating_add)
    }

    pub fn arena(&self, pool: &PoolEvidence) -> Option<&EntryEvidence> {
        self.entries.iter().find(|entry| entry.kind == "arena" && entry.id == pool.area_id)
    }
}

impl PoolEvidence {
    pub fn number(&self, name: &str) -> Option<u64> {
        param(&self.params, name)?.parse().ok()
    }

    /// Pages allocated between the looks.
    pub fn allocated(&self) -> u64 {
        // `alloc_slow` counts calls; further pages of a call came out of the cache.
        let Stats { alloc_fast, alloc_refill, alloc_slow, alloc_slow_high_order, .. } = self.moved;
        [alloc_fast, alloc_refill, alloc_slow, alloc_slow_high_order].into_iter().fold(0, u64::saturating_add)
    }

    /// Whether it receives from a socket or an in-memory NIC.
    pub fn has_device(&self) -> bool {
        self.number("domains").is_some_and(|domains| domains > 0)
    }

    /// The largest holders, as sentences; empty if not recorded.
    pub fn holders_in_words(&self) -> String {
        let most = self.holders.as_ref().map_or(&[][..], |holders| &holders.most);
        sentences(most)
    }

    /// Holders that hold more than before, as sentences; empty if not recorded.
    pub fn grown_in_words(&self) -> String {
        let grown = self.holders.as_ref().map_or(&[][..], |holders| &holders.grown);
        sentences(grown)
    }

    /// A count in percent of the allocated pages.
    pub fn percent(&self, count: u64) -> f64 {
        count as f64 * 100.0 / self.allocated().max(1) as f64
    }
}

fn sentences(parts: &[String]) -> String {
    parts.iter().map(|part| format!(" {part}.")).collect()
}

impl EntryEvidence {
    pub fn param(&self, name: &str) -> Option<&str> {
        param(&self.params, name)
    }

    pub fn number<T: std::str::FromStr>(&self, name: &str) -> Option<T> {
        self.param(name)?.parse().ok()
    }

    /// At the last look.
    pub fn now(&self, counter: &str) -> u64 {
        self.now.get(counter).copied().unwrap_or(0)
    }

    /// Between the looks.
    pub fn moved(&self, counter: &str) -> u64 {
        self.moved.get(counter).copied().unwrap_or(0)
    }

    /// Whether an XDP program redirects packets to it.
    pub fn receives(&self) -> bool {
        self.param("attach").is_some()
    }
}

impl CpuEvidence {
    /// `None` on a machine with one node.
    pub fn node_of(&self, cpu: usize) -> Option<usize> {
        let of = self.nodes.iter().find(|(_, cpus)| cpus.contains(&cpu));
        of.filter(|_| self.nodes.len() > 1).map(|(node, _)| *node)
    }

    /// The node of all these CPUs, if they share one.
    pub fn node_of_all(&self, cpus: &[usize]) -> Option<usize> {
        let node = self.node_of(*cpus.first()?)?;
        cpus.iter().all(|&cpu| self.node_of(cpu) == Some(node)).then_some(node)
    }
}

/// Evidence without a finding, for tests of rules to break.
#[cfg(test)]
pub mod healthy {
    use super::*;

    fn texts(params: &[(&str, &str)]) -> Vec<(String, String)> {
        params.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn pool() -> PoolEvidence {
        let mut pool = PoolEvidence {
            id: 1,
            name: "near0".into(),
            area_id: 7,
            tid: Some(501),
            page_bytes: 4096,
            age: Duration::from_secs(60),
            held: vec![300; 30],
            params: texts(&[
                ("order", "0"),
                ("cache_size", "128"),
                ("refill", "64"),
                ("ring_size", "1024"),
                ("max_lanes", "16"),
                ("lane_size", "1024"),
                ("low_water", "0"),
                ("colour", "1"),
                ("colours", "16"),
                ("nid", "0"),
                ("domains", "1"),
            ]),
            ..Default::default()
        };
        (pool.moved.alloc_fast, pool.moved.recycle_cached) = (1_000_000, 1_000_000);
        (pool.pages.total, pool.pages.out, pool.pages.cache) = (1800, 1300, 500);
        pool
    }

    fn socket() -> EntryEvidence {
        let (now, moved) = ([("in_rx", 1000)], [("rx_packets", 1_000_000), ("rx_dropped", 0)]);
        let counters = |of: &[(&str, u64)]| of.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect();
        EntryEvidence {
            kind: "socket".into(),
            id: 1,
            pool: Some(1),
            name: "near0:0".into(),
            params: texts(&[
                ("interface", "near0"),
                ("queue", "0"),
                ("ifindex", "3"),
                ("mode", "af_xdp_native_zerocopy"),
                ("rx_ring", "1024"),
                ("chunk", "4096"),
                ("mtu", "1500"),
                ("zero_copy", "true"),
                ("attach", "native"),
            ]),
            now: counters(&now),
            moved: counters(&moved),
        }
    }

    fn vhost() -> EntryEvidence {
        EntryEvidence {
            kind: "nic".into(),
            id: 2,
            pool: Some(1),
            name: "vhost_user:/run/sw0.sock:0".into(),
            params: texts(&[("mode", "vhost_user"), ("rx_ring", "1024"), ("mtu", "1500")]),
            now: [("in_rx".to_owned(), 1024)].into(),
            moved: [("rx_packets".to_owned(), 0)].into(),
        }
    }

    fn arena() -> EntryEvidence {
        EntryEvidence {
            kind: "arena".into(),
            id: 7,
            name: "drop0".into(),
            params: texts(&[
                ("max_bytes", "67108864"),
                ("backing", "2 MiB pages"),
                ("got", "2 MiB pages"),
                ("node", "bound to node 0"),
            ]),
            ..Default::default()
        }
    }

    fn stack() -> EntryEvidence {
        EntryEvidence {
            kind: "stack".into(),
            id: 1,
            name: "near0".into(),
            params: texts(&[("interface", "near0"), ("ifindex", "3")]),
            moved: [("passed".to_owned(), 1_000_000)].into(),
            ..Default::default()
        }
    }

    fn link() -> LinkEvidence {
        let interrupt = |number, cpu| InterruptEvidence {
            number,
            name: format!("near0-TxRx-{}", number - 40),
            cpus: vec![cpu],
            moved: 50_000,
        };
        LinkEvidence {
            name: "near0".into(),
            index: 3,
            driver: Some("ice".into()),
            node: Some(0),
            native: Some(true),
            zero_copy: Some(true),
            has_iommu: true,
            queues: Some((2, 8)),
            rx_ring: Some((1024, 4096)),
            interrupts: vec![interrupt(40, 1), interrupt(41, 2)],
            ..Default::default()
        }
    }

    pub fn evidence() -> Evidence {
        let thread =
            ThreadEvidence { tid: 501, name: "queue0".into(), cpu: Some(0), busy: 0.9, ..Default::default() };
        let thread = ThreadEvidence { allowed: vec![0], in_kernel: 0.2, ..thread };
        let process = ProcessEvidence {
            name: "drop".into(),
            pid: 500,
            pid_here: Some(500),
            is_here: Some(true),
            pools: vec![pool()],
            entries: vec![socket(), arena(), stack()],
            threads: vec![thread],
            ..Default::default()
        };
        let mut kernel = KernelPoolEvidence {
            id: 18,
            interface: Some("near0".into()),
            inflight: 2048,
            is_old: true,
            ..Default::default()
        };
        kernel.moved.alloc_fast = 100_000;
        let governors = (0..4).map(|cpu| (cpu, "performance".to_owned())).collect();
        Evidence {
            seconds: 5.0,
            processes: vec![process],
            links: vec![link()],
            kernel_pools: vec![kernel],
            cpus: CpuEvidence { nodes: vec![(0, vec![0, 1, 2]), (1, vec![3])], governors },
            transparent_huge_pages: Some("madvise".into()),
            unseen: Unseen::default(),
        }
    }

    impl Evidence {
        pub fn pool(&mut self) -> &mut PoolEvidence {
            &mut self.processes[0].pools[0]
        }

        pub fn socket(&mut self) -> &mut EntryEvidence {
            &mut self.processes[0].entries[0]
        }

        pub fn arena(&mut self) -> &mut EntryEvidence {
            &mut self.processes[0].entries[1]
        }

        /// Another device of the pool.
        pub fn vhost(&mut self) -> &mut EntryEvidence {
            let entries = &mut self.processes[0].entries;
            if entries.last().is_none_or(|last| last.kind != "nic") {
                entries.push(vhost());
            }
            entries.last_mut().expect("there is one")
        }

        pub fn stack(&mut self) -> &mut EntryEvidence {
            let mut entries = self.processes[0].entries.iter_mut();
            entries.find(|entry| entry.kind == "stack").expect("a stack")
        }
    }

    impl PoolEvidence {
        pub fn set(&mut self, name: &str, value: &str) {
            self.params.retain(|(key, _)| key != name);
            self.params.push((name.into(), value.into()));
        }
    }

    impl EntryEvidence {
        pub fn set(&mut self, name: &str, value: &str) {
            self.params.retain(|(key, _)| key != name);
            self.params.push((name.into(), value.into()));
        }

        pub fn count(&mut self, counter: &str, moved: u64) {
            self.moved.insert(counter.into(), moved);
        }
    }
}
