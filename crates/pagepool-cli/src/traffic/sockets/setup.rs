//! Opens what a command works with: a device and a pool for each queue, and memory for each pair of queues.
//! Assigns them to threads.

mod parallel;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use pagepool::{Arena, Error, NodeId, PoolRef};
use pagepool_link::{AttachedXdp, XdpMode};
use pagepool_net::{
    Attach, Driver, DriverQueues, Match, OpenParams, OpenedDevice, OtherEnd, Redirect, SocketInfo, TxMode,
    XdpProgram, open_devices,
};
use serde::Serialize;

use self::parallel::in_parallel;
use crate::report::{error_chain, grouped, in_words, output, ranges};
use crate::traffic::options::{ReceiveOptions, TrafficOptions};
use crate::traffic::poll_loop::PollPort;
use crate::traffic::sockets::{Interface, QueueProgress, SocketSizes, pairs_of, with_sockets};

/// The sockets and pools of a command, opened before the first packet. Nothing is redirected to them yet.
#[derive(Default)]
pub struct TrafficSetup {
    /// The ports of each thread, and where each port belongs.
    pub threads: Vec<(Vec<PortSide>, Vec<PollPort>)>,
    /// The pools, in the order of the threads' ports, for the verdict at the end.
    pub pools: Vec<PoolRef>,
    pub interfaces: Vec<OpenedInterface>,
    /// What redirects packets to the sockets, in the order of the interfaces with sockets. Empty if nothing
    /// is received.
    pub redirects: Vec<Arc<Redirect>>,
    /// Keeps XDP programs attached; see [`OpenedDevice::redirect`].
    pub attached: Vec<Arc<Redirect>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortSide {
    /// The pair of queues, of different interfaces, that packets go between. It has its own memory.
    pub pair: usize,
    /// The index of the interface among the command's, and its queue.
    pub interface: usize,
    pub queue: u32,
}

#[derive(Clone, Debug, Serialize)]
pub struct OpenedInterface {
    pub name: String,
    #[serde(skip)]
    row: &'static Driver,
    /// The mode, such as `af_xdp_native_copy`.
    pub mode: String,
    /// Where the XDP program runs, if there is one: `native` or `generic`.
    pub attach: Option<&'static str>,
    /// The map of another program that redirects to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub map: Option<String>,
    /// Why `auto` chose generic.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attach_reason: Option<String>,
    /// The XDP program, as `bpftool prog` shows it.
    pub program_id: Option<u32>,
    /// The match that taken packets fulfil; `None`: all are taken.
    #[serde(rename = "match", skip_serializing_if = "Option::is_none")]
    pub steer: Option<String>,
    /// Whether the driver works on the memory itself; `None` for a device without sockets.
    pub zero_copy: Option<bool>,
    /// How packets are sent, if they are: `bpf-batch`, `ring`, or `mixed` if queues differ.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tx_mode: Option<&'static str>,
    /// Why `auto` chose the ring.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tx_mode_reason: Option<String>,
    pub mtu: u32,
    pub queues: Vec<u32>,
    /// The number of the interface's queues, used or not.
    pub queues_of: u32,
    /// Bytes of a chunk, and slots of a ring.
    pub chunk: u32,
    pub ring: u32,
    /// Pages per queue.
    pub pages: usize,
    #[serde(skip)]
    page_size: usize,
    /// The NUMA node of the pages, on a machine with several nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<u8>,
    pub multi_buffer: bool,
    /// How many queues' drivers support busy polling, with `--busy-poll`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub busy_polled: Option<usize>,
}

#[derive(Clone, Copy)]
pub struct SetupParams<'a> {
    pub sizes: SocketSizes,
    pub options: &'a TrafficOptions,
    /// How packets are received, if they are.
    pub receive: Option<&'a ReceiveOptions>,
    /// How packets are sent, if they are.
    pub tx_mode: Option<TxMode>,
    /// Set if a signal ends the command while it waits for queues.
    pub end: &'a Arc<AtomicBool>,
}

impl TrafficSetup {
    /// Opens all queues. The interface with the fewest queues sets the number of pairs. Each interface deals
    /// its queues to the pairs in turn, and the pairs are dealt to the threads: by default one thread per
    /// pair.
    pub fn open(name: &str, interfaces: &[Interface], params: SetupParams<'_>) -> Result<Self, String> {
        let pages = params.sizes.pages;
        let redirects = params.load(&with_sockets(interfaces)).map_err(in_words)?;
        let opened = open_groups(name, interfaces, params, &redirects)?;
        let count = params.options.threads.map_or(pairs_of(interfaces), usize::from);
        let threads = (0..count).map(|_| Default::default()).collect();
        let mut this = Self { threads, redirects, ..Self::default() };
        let mut sockets: Vec<_> = interfaces.iter().map(|_| Vec::new()).collect();
        for (side, OpenedDevice { device, pool, socket, redirect, .. }) in opened {
            let (sides, ports) = &mut this.threads[side.pair % count];
            this.attached.extend(redirect);
            sockets[side.interface].extend(socket);
            sides.push(side);
            ports.push(PollPort { pool, pages, device });
        }
        let ports = this.threads.iter().flat_map(|(_, ports)| ports);
        this.pools = ports.map(|port| port.pool.handle()).collect();
        let mut maps = params.receive.into_iter().flat_map(|receive| &receive.map);
        for (of, sockets) in interfaces.iter().zip(&sockets) {
            let map = if of.has_sockets() { maps.next() } else { None };
            this.interfaces.push(OpenedInterface::new(of, sockets, params, map));
        }
        Ok(this)
    }
}

/// The name of an interface's link in a BPF file system. It allows no dots; no interface has a colon.
fn pin_name(interface: &str) -> String {
    format!("pagepool-{}", interface.replace('.', ":"))
}

/// Queues that are opened together, over one memory.
struct Group {
    /// Of each interface: the queues, each with its pair.
    of: Vec<Vec<(usize, u32)>>,
    /// The number of pairs.
    pairs: usize,
}

impl Group {
    fn queues(&self) -> usize {
        self.of.iter().map(Vec::len).sum()
    }
}

/// Each pair gets its own memory and UMEM: packets go nowhere else, and the kernel's tables for a socket are
/// as large as its UMEM. But all pairs share one memory if the queues of a device must.
fn groups(interfaces: &[Interface]) -> Vec<Group> {
    let numbered = |(pair, queues): (usize, Vec<Vec<u32>>)| {
        let of = queues.into_iter().map(|queues| queues.into_iter().map(|queue| (pair, queue)).collect());
        Group { of: of.collect(), pairs: 1 }
    };
    let pairs = pairs(interfaces).into_iter().enumerate().map(numbered);
    if !interfaces.iter().any(Interface::is_one_device) {
        return pairs.collect();
    }
    let join = |mut all: Group, pair: Group| {
        all.of.iter_mut().zip(pair.of).for_each(|(all, queues)| all.extend(queues));
        all.pairs += pair.pairs;
        all
    };
    pairs.reduce(join).into_iter().collect()
}

/// The queues of each interface in each pair.
fn pairs(interfaces: &[Interface]) -> Vec<Vec<Vec<u32>>> {
    let fewest = interfaces.iter().map(|interface| interface.queues.len()).min().unwrap_or(0);
    let of =
        |interface: &Interface, pair| interface.queues.iter().copied().skip(pair).step_by(fewest).collect();
    (0..fewest).map(|pair| interfaces.iter().map(|interface| of(interface, pair)).collect()).collect()
}

pub fn locked_bytes(interfaces: &[Interface], sizes: &SocketSizes) -> u64 {
    let of_group = |group: &Group| sizes.arena("", group.queues()).max_bytes;
    groups(interfaces).iter().map(of_group).sum()
}

/// Opens all queues, over as many memories as there are groups. Returns them with where each port belongs.
fn open_groups(
    name: &str,
    interfaces: &[Interface],
    params: SetupParams<'_>,
    redirects: &[Arc<Redirect>],
) -> Result<Vec<(PortSide, OpenedDevice)>, String> {
    let (sizes, groups) = (params.sizes, groups(interfaces));
    let huge = groups.iter().map(|group| sizes.hugepages(group.queues())).sum();
    let shown = QueueProgress::new("opening", interfaces.len(), pairs_of(interfaces));
    let opened = in_parallel(groups.iter().enumerate().collect(), |(number, group)| {
        (0..group.pairs).for_each(|_| shown.begin_one());
        let name = format!("{name}{number}");
        let arena = Arena::new(sizes.arena(&name, group.queues()));
        let arena = arena.map_err(|error| no_memory(&error, huge, sizes.needs.node))?;
        let mut of_group = params.open_params(&name, redirects);
        of_group.taps = interfaces.iter().flat_map(|interface| interface.taps.clone()).collect();
        open_group(interfaces, group, &of_group, &arena)
    })?;
    output::progress_end();
    Ok(opened.into_iter().flatten().collect())
}

fn open_group(
    interfaces: &[Interface],
    group: &Group,
    params: &OpenParams,
    arena: &Arc<Arena>,
) -> Result<Vec<(PortSide, OpenedDevice)>, String> {
    let numbers: Vec<Vec<_>> =
        group.of.iter().map(|queues| queues.iter().map(|&(_, queue)| queue).collect()).collect();
    let names = interfaces.iter().map(|interface| &*interface.device);
    let devices: Vec<_> = names.zip(numbers.iter().map(Vec::as_slice)).collect();
    let opened = open_devices(&devices, params, arena).map_err(in_words)?;
    let sides = group.of.iter().enumerate().flat_map(|(interface, queues)| {
        queues.iter().map(move |&(pair, queue)| PortSide { pair, interface, queue })
    });
    Ok(sides.zip(opened.into_iter().flatten()).collect())
}

impl SetupParams<'_> {
    /// Makes what redirects packets to the sockets, if they receive.
    fn load(&self, interfaces: &[Interface]) -> Result<Vec<Arc<Redirect>>, Error> {
        let Some(ReceiveOptions { steer, beside, map, pin, .. }) = self.receive else { return Ok(vec![]) };
        if !map.is_empty() {
            return map.iter().map(Redirect::pinned).collect();
        }
        let (attach, frags) = (self.options.mode.attach(), self.sizes.needs.multi_buffer());
        let load = |interface: &Interface| {
            let name = &interface.name;
            let redirect = match (pin, *beside) {
                (None, None) => Redirect::load(name, attach, frags),
                (None, Some(priority)) => Redirect::load_beside(name, attach, frags, priority),
                (Some(folder), _) => Redirect::load_pinned(name, attach, frags, folder.join(pin_name(name))),
            }?;
            steer.as_ref().map_or(Ok(()), |by| redirect.steer(by)).map(|()| redirect)
        };
        interfaces.iter().map(load).collect()
    }

    fn open_params(&self, name: &str, redirects: &[Arc<Redirect>]) -> OpenParams {
        let mut params = self.sizes.open_params(name);
        params.af_xdp.program = match redirects {
            [] => XdpProgram::None,
            _ => XdpProgram::Redirects(redirects.to_vec()),
        };
        params.af_xdp.tx_mode = self.tx_mode.unwrap_or(TxMode::Ring);
        params.af_xdp.busy_poll = self.options.busy_poll();
        params.af_xdp.give_up = Some(self.end.clone());
        params
    }
}

/// Why there is no memory, and what helps. `huge`: the number of huge pages required, on `node` if given. The
/// library reserves them step by step, so its own error names only some of them.
fn no_memory(error: &Error, huge: Option<u64>, node: Option<NodeId>) -> String {
    let (Error::System { call, source, .. }, Some(n)) = (error, huge) else { return error_chain(error) };
    let (there, remedy) = match node {
        None => (String::new(), format!("sysctl vm.nr_hugepages={n}")),
        // sysctl spreads its pages over all nodes
        Some(NodeId(node)) => {
            let file = format!("/sys/devices/system/node/node{node}/hugepages/hugepages-2048kB/nr_hugepages");
            (format!(" on node {node}"), format!("echo {n} > {file}"))
        }
    };
    format!(
        "{call} failed: --hugepages requires {n} free huge pages of 2 MiB{there}: use `{remedy}`, more if \
         other processes use huge pages, or omit --hugepages: {source}"
    )
}

impl OpenedInterface {
    fn new(of: &Interface, sockets: &[SocketInfo], params: SetupParams<'_>, map: Option<&PathBuf>) -> Self {
        let first = sockets.first();
        let theirs = map.and_then(|_| of.link.as_ref()?.xdp.first());
        let attach = theirs.map(attached).or(first.and_then(|socket| socket.attach));
        let tx_mode_reason = || sockets.iter().find_map(|socket| socket.tx_mode_reason.clone());
        let polled = || sockets.iter().filter(|socket| socket.napi_id.is_some()).count();
        let steer = params.receive.and_then(|receive| receive.steer.as_ref()).filter(|_| of.has_sockets());
        Self {
            name: of.name.clone(),
            row: of.row,
            mode: first
                .map_or_else(|| of.row.scheme.into(), |socket| Attach::mode_name(attach, socket.zero_copy)),
            attach: attach.map(Attach::name),
            map: map.map(|path| path.display().to_string()),
            attach_reason: first.and_then(|socket| socket.attach_reason.clone()),
            program_id: theirs.map(|there| there.id).or(first.and_then(|socket| socket.program_id)),
            steer: steer.map(Match::to_string),
            zero_copy: first.map(|_| sockets.iter().all(|socket| socket.zero_copy)),
            tx_mode: params.tx_mode.filter(|_| of.has_sockets()).map(|_| tx_mode(sockets)),
            tx_mode_reason: params.tx_mode.and_then(|_| tx_mode_reason()),
            mtu: of.mtu,
            queues: of.queues.clone(),
            queues_of: of.queues_of,
            chunk: params.sizes.needs.chunk,
            ring: params.sizes.ring,
            pages: params.sizes.pages,
            page_size: params.sizes.page_size(),
            node: params.sizes.needs.node.map(|node| node.0),
            multi_buffer: params.sizes.needs.multi_buffer(),
            busy_polled: params.options.busy_poll.filter(|_| of.has_sockets()).map(|_| polled()),
        }
    }

    /// What else users should know.
    fn details(&self) -> Vec<String> {
        let Self { map, steer, attach_reason, tx_mode_reason, .. } = self;
        let unpolled = self.busy_polled.map_or(0, |polled| self.queues.len().saturating_sub(polled));
        let details = [
            map.as_ref().map(|map| format!("map {map}, of another XDP program")),
            steer.as_ref().map(|by| format!("packets that match are taken, the rest goes to the kernel: {by}")),
            attach_reason.as_ref().map(|why| format!("generic because {why}")),
            tx_mode_reason.as_ref().map(|why| format!("TX by ring because {why}")),
            (unpolled > 0).then(|| {
                format!(
                    "on {unpolled} of the queues the driver does not support busy polling: interrupts drive them"
                )
            }),
        ];
        details.into_iter().flatten().collect()
    }

    /// Records where its XDP program runs, which is known once it is attached.
    pub fn set_attached(&mut self, redirect: &Redirect) {
        if let Some((attach, reason)) = redirect.mode() {
            self.attach = Some(attach.name());
            self.attach_reason = reason;
            self.mode = Attach::mode_name(Some(attach), self.zero_copy == Some(true));
        }
    }

    /// Whether at least some of its queues send by BPF batch.
    pub fn sends_by_batch(&self) -> bool {
        matches!(self.tx_mode, Some("bpf-batch" | "mixed"))
    }

    /// Whether its queues are AF_XDP sockets.
    pub fn has_sockets(&self) -> bool {
        self.row.other_end == OtherEnd::Interface
    }

    /// Whether a back end moves the packets of its virtio queues.
    pub fn has_back_end(&self) -> bool {
        self.row.queues == DriverQueues::Requested
    }

    /// Whether the XDP program runs after the driver.
    pub fn is_generic(&self) -> bool {
        self.attach == Some("generic")
    }
}

/// Where a program runs that another process attached.
fn attached(there: &AttachedXdp) -> Attach {
    if there.mode == XdpMode::Generic { Attach::Generic } else { Attach::Native }
}

fn tx_mode(sockets: &[SocketInfo]) -> &'static str {
    let by_batch = sockets.iter().filter(|socket| socket.tx_mode == TxMode::BpfBatch).count();
    match by_batch {
        0 => "ring",
        n if n == sockets.len() => "bpf-batch",
        _ => "mixed",
    }
}

impl fmt::Display for OpenedInterface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let attach = self.attach.unwrap_or(match &*self.mode {
            "tap" => "TAP",
            "vhost_user" => "vhost-user",
            "vhost_net" => "vhost-net",
            _ if self.has_sockets() => "no XDP program",
            other => other,
        });
        let copy = self.zero_copy.map_or("", |zero_copy| if zero_copy { ", zerocopy" } else { ", copy" });
        let queues = if self.queues.len() == 1 { "queue" } else { "queues" };
        let tx_mode = match self.tx_mode {
            Some("bpf-batch") => ", TX by BPF batch",
            Some("mixed") => ", TX by BPF batch on some queues",
            _ => "",
        };
        let pages = self.pages * self.queues.len();
        write!(
            f,
            "{}: {attach}{copy}, {queues} {} ({} of {}), MTU {}, chunks of {} bytes{}, rings of {} slots, {} \
             pages ({:.1} MiB){tx_mode}",
            self.name,
            ranges(&self.queues),
            self.queues.len(),
            self.queues_of,
            self.mtu,
            self.chunk,
            if self.multi_buffer { " (several per packet)" } else { "" },
            self.ring,
            grouped(pages as u64),
            (pages * self.page_size) as f64 / f64::from(1 << 20)
        )?;
        self.details().iter().try_for_each(|line| write!(f, "\n  {line}"))
    }
}

/// The mode that all interfaces share, or `mixed`.
pub fn common_mode(interfaces: &[OpenedInterface]) -> &str {
    let first = interfaces.first().map_or("", |interface| &interface.mode);
    let same = interfaces.iter().all(|interface| interface.mode == first);
    if same { first } else { "mixed" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pin_name_of_a_vlan_interface_is_valid_in_bpffs() {
        assert_eq!(
            (pin_name("eth0"), pin_name("eth0.100")),
            ("pagepool-eth0".into(), "pagepool-eth0:100".into())
        );
    }
    use clap::Parser;
    use pagepool_net::open_device;

    /// A device with these queues, that is not opened.
    fn interface(device: &str, queues: &[u32]) -> Interface {
        Interface {
            device: device.into(),
            row: Driver::find(device).unwrap().0,
            name: device.into(),
            mtu: 1500,
            link: None,
            driver: None,
            queues: queues.to_vec(),
            queues_of: 4,
            hardware_ring: 0,
            taps: Vec::new(),
        }
    }

    #[derive(clap::Parser)]
    #[command(disable_help_flag = true)]
    struct OptionsTest {
        #[command(flatten)]
        options: TrafficOptions,
    }

    #[test]
    fn queues_are_dealt_out_to_pairs() {
        let with = |queues: &[u32]| interface("af_xdp:eth0", queues);
        assert_eq!(pairs(&[with(&[3, 1])]), [[[3]], [[1]]], "of one interface each is one");
        assert_eq!(
            pairs(&[with(&[0, 1, 2, 3, 4]), with(&[6, 7])]),
            [[vec![0, 2, 4], vec![6]], [vec![1, 3], vec![7]]]
        );
    }

    #[test]
    fn queues_with_one_connection_share_their_memory() {
        let of = |device| groups(&[interface("af_xdp:eth0", &[0, 1, 2]), interface(device, &[6, 7])]);
        let apart = of("af_xdp:eth1");
        assert_eq!(
            apart.iter().map(|group| (group.queues(), group.pairs)).collect::<Vec<_>>(),
            [(3, 1), (2, 1)]
        );
        let one = of("vhost_user:/run/a");
        assert_eq!((one.len(), one[0].queues(), one[0].pairs), (1, 5, 2));
        assert_eq!(one[0].of, [vec![(0, 0), (0, 2), (1, 1)], vec![(0, 6), (1, 7)]]);
    }

    #[test]
    fn the_remedy_requests_huge_pages_on_the_node_that_needs_them() {
        let source = || std::io::Error::from(std::io::ErrorKind::OutOfMemory);
        let error = Error::System { call: "mmap", remedy: String::new(), source: source() };
        let anywhere = no_memory(&error, Some(20), None);
        assert!(
            anywhere.contains("20 free huge pages of 2 MiB: use `sysctl vm.nr_hugepages=20`"),
            "{anywhere}"
        );
        let there = no_memory(&error, Some(20), Some(NodeId(1)));
        assert!(
            there.contains("on node 1: use `echo 20 > /sys/devices/system/node/node1/hugepages"),
            "{there}"
        );
    }

    #[test]
    fn a_device_without_sockets_has_neither_copy_nor_zero_copy() {
        let interface = interface("memory:nic", &[0]);
        let sizes = SocketSizes::of_mtu(1500);
        let OptionsTest { options } = OptionsTest::parse_from(["gen"]);
        let (options, end) = (&options, &Arc::default());
        let params = SetupParams { sizes, options, receive: None, tx_mode: None, end };
        let arena = Arena::new(sizes.arena("test", 1)).unwrap();
        let queue = open_device(&interface.device, &params.open_params("test", &[]), &arena).unwrap();
        let opened = OpenedInterface::new(&interface, queue.socket.as_slice(), params, None);
        assert_eq!(opened.zero_copy, None);
        let shown = opened.to_string();
        assert!(shown.starts_with("memory:nic: memory, queue 0 (1 of 4), MTU "), "{shown}");
    }
}
