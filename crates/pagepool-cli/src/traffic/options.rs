//! The options of commands on interfaces.

use std::path::PathBuf;

use clap::{ArgAction, Args, ValueEnum};
use pagepool::PAGE_SIZE;
use pagepool_net::{self as net, Attach, BusyPoll, Match, XskMode};

use crate::file_name::file_name;
use crate::report::{
    FigureOptions, INTERFACES, LossLimit, MEMORY, OUTPUT, PACKETS, THREADS, count_of, run_seconds,
};
use crate::traffic::publish_options::PublishOptions;

/// Options of every command on interfaces. The first line of each is its line in the short help.
#[derive(Args, Clone, Debug)]
pub struct TrafficOptions {
    /// Queues to use: 0, or 0,2, or 0-3 [default: all]
    ///
    /// Each queue has its own socket and pool, and its own thread unless --threads says otherwise. Packets
    /// of other queues go to the kernel as before. `ethtool -l IF` shows the number of queues, and
    /// `ethtool -L IF` changes it. Of vhost_net:NAME and vhost_user:PATH these are pairs of virtio queues
    /// [default: 0].
    #[arg(long, value_name = "LIST", value_parser = numbers, help_heading = INTERFACES)]
    pub queues: Option<Numbers>,
    /// How packets reach this process [default: auto]
    ///
    /// auto: zero copy if the drivers of all interfaces support it, else copy. zerocopy: the NIC reads and
    /// writes this process's memory; an error if the driver does not support that. native: as auto, but an
    /// error if the XDP program cannot run in the driver. copy: the kernel copies; works with every driver.
    /// generic: the kernel copies, and the XDP program runs in the network stack; works with every driver,
    /// but is slower. gen attaches no program, and refuses native and generic.
    ///
    /// The chosen mode is printed at startup. Before Linux 6.1, mlx5 with n queues has zero copy only on
    /// queues n to 2n-1, which these commands do not use.
    #[arg(long, value_enum, value_name = "MODE", default_value_t = Mode::Auto, help_heading = INTERFACES)]
    #[arg(hide_default_value = true, hide_possible_values = true)]
    pub mode: Mode,
    /// Use an interface that you depend on
    ///
    /// Without this option the command refuses an interface that carries the default route or your SSH
    /// session, and lo, which local programs use.
    #[arg(long, help_heading = INTERFACES)]
    pub yes: bool,
    /// CPUs for threads, or any [default: card's node]
    ///
    /// CPUs: 1, or 2,4, or 0-3. There is one thread per queue (forward: per pair of queues), or as many as
    /// --threads says. The CPUs are given to the threads in order; if there are more threads than CPUs,
    /// threads share them. For steady figures, choose idle CPUs on the NIC's NUMA node that do not handle its
    /// interrupts. Without this option the kernel moves threads among the CPUs of the card's node; with any,
    /// among all CPUs. The memory is on the card's node. For an interface without a card it is on the node of
    /// the first CPU given, or of the command.
    #[arg(long, value_name = "LIST", value_parser = cpus, help_heading = THREADS)]
    pub cpus: Option<Cpus>,
    /// Number of threads [default: one per queue]
    ///
    /// The default of forward is one per pair of queues. Queues are given to the threads in turn. A thread
    /// rarely polls queues that bring nothing while others are busy. More threads than queues (forward: pairs
    /// of queues) are refused.
    #[arg(long, value_name = "N", value_parser = count_of::<u16>("threads", 1..=65_535))]
    #[arg(help_heading = THREADS)]
    pub threads: Option<u16>,
    /// Poll, and never sleep [default budget: 64]
    ///
    /// Polls BUDGET packets per call, 1 to 65535. Gives the lowest latency, and uses a whole CPU per queue.
    /// Interrupts stay off only if the interface defers them (`napi_defer_hard_irqs` and `gro_flush_timeout`
    /// in /sys/class/net/IF). Requires Linux 5.11. The budget has no effect on vhost_net:NAME and
    /// vhost_user:PATH. Without this option a thread sleeps while no packet arrives.
    #[arg(long, value_name = "BUDGET", num_args = 0..=1, require_equals = true, default_missing_value = "64")]
    #[arg(value_parser = count_of::<u32>("packets", 1..=65_535), help_heading = THREADS)]
    pub busy_poll: Option<u32>,
    /// Buffer of a packet: 2048 or 4096 [default: by MTU]
    ///
    /// A chunk (libxdp: frame) of the UMEM holds one packet with its headroom. The default is 2048 up to MTU
    /// 1770, but 4096 on a card unless packets are copied (--mode copy): some drivers fill only whole KiB of
    /// a buffer. For higher MTUs it is 4096, and longer packets use several chunks, which requires Linux 6.6.
    /// Another multiple of 64 from 2112 to 4032 makes unaligned chunks: each begins at another offset of a
    /// page of 4096 bytes, so packets fall into different sets of the CPU's cache. That helps if they are
    /// read long after they arrived. Many drivers do not support zero copy with unaligned chunks.
    #[arg(long, value_name = "BYTES", help_heading = MEMORY)]
    pub chunk_size: Option<u32>,
    /// Slots of each ring [default: 1024, many queues: 512]
    ///
    /// A power of two from 64 to 8192. The default is 512 if an interface has more than 4 queues, and lower
    /// if packets need several chunks: a pool has at most 16384 pages out. The buffers of small rings stay in
    /// the CPU's cache. Large rings take longer bursts without loss.
    #[arg(long, value_name = "SLOTS", value_parser = ring, help_heading = MEMORY)]
    pub ring: Option<u32>,
    /// Use huge pages of 2 MiB
    ///
    /// The CPU and the IOMMU need fewer translations for huge pages. Reserve them first: `sysctl
    /// vm.nr_hugepages=64`. If there are too few, the error says how many are needed.
    #[arg(long, help_heading = MEMORY)]
    pub hugepages: bool,
    #[command(flatten)]
    pub publish: PublishOptions,
    /// Stop after N seconds [default: at Ctrl-C]
    ///
    /// Ctrl-C stops earlier and prints the verdict. A second Ctrl-C stops at once, without a verdict.
    #[arg(long, value_name = "N", value_parser = run_seconds, help_heading = OUTPUT)]
    pub seconds: Option<u64>,
    #[command(flatten)]
    pub limit: LossLimit,
    #[command(flatten)]
    pub figures: FigureOptions,
    /// Write packets to a file for tcpdump or Wireshark
    ///
    /// Every packet that was received (gen: sent). The file holds whole packets with timestamps in
    /// nanoseconds. Each packet is copied, and a separate thread writes the file. If it falls behind, packets
    /// are missing from the file and counted, but still forwarded. Only its owner can read a new file.
    /// Symbolic links are refused, except to descriptors of this process, as in `--pcap >(gzip >FILE)`. A
    /// FIFO must have a reader.
    #[arg(long, value_name = "FILE", value_parser = file_name(), help_heading = OUTPUT)]
    pub pcap: Option<PathBuf>,
    /// Print help; --help prints more
    #[arg(short, long, action = ArgAction::Help, help_heading = OUTPUT)]
    help: Option<bool>,
}

#[derive(Args, Clone, Debug)]
pub struct ReceiveOptions {
    /// Make the card use only these queues (RSS)
    ///
    /// The card spreads flows over only the queues of --queues. Its table is restored at the end, whenever
    /// --fix-offloads would restore offloads, and the command that restores it is printed. Without this
    /// option the card spreads flows over all of its queues, and flows on other queues go to the kernel. If
    /// another program changes the table during the run, that change stays. Packets that the card does not
    /// hash (such as ARP) keep their queue, mostly 0. The command fails if the card has no such table, or if
    /// another run holds it.
    #[arg(long, help_heading = INTERFACES)]
    pub rss: bool,
    /// Turn off offloads that change packets, until the end
    ///
    /// On a veth, its other end leaves VLAN tags, checksums and segmentation to hardware. On a network card,
    /// offloads remove VLAN tags from packets, or merge packets. Without this option the command warns, and
    /// prints the `ethtool -K` line that turns them off. With it, the command prints what it changed, and the
    /// `ethtool -K` line that undoes it. It changes nothing in another network namespace, where the other end
    /// of a veth may be: it only prints the line. The offloads are restored when the command ends by itself,
    /// after an error, or after a first Ctrl-C, SIGTERM or SIGHUP. SIGKILL, an abort and a second Ctrl-C
    /// leave them off: run the printed line. A second run on this interface finds them off, and the end of
    /// the first turns them on.
    #[arg(long, help_heading = INTERFACES)]
    pub fix_offloads: bool,
    /// Take only packets that match [default: all]
    ///
    /// The rest goes to the kernel. An expression in the words of tcpdump (pcap-filter): ip, ip6, arp, tcp,
    /// udp, sctp, icmp, icmp6, proto P, port N, portrange N-M, host A, net A/LENGTH, each of the last four
    /// with src or dst before it, ethertype N, vlan ID; and nd (IPv6 neighbour discovery), fragment, all.
    /// Joined by and, or, not and parentheses. Example: 'udp dst port 4789 or ethertype 0x88b5'; or 'not (arp
    /// or icmp or icmp6)', which leaves ping and address resolution to the kernel. docs/steering.md has the
    /// rules.
    #[arg(long = "match", value_name = "EXPR", value_parser = |text: &str| text.parse::<Match>())]
    #[arg(help_heading = PACKETS)]
    pub steer: Option<Match>,
    /// Join libxdp's dispatcher [default priority: 50]
    ///
    /// Shares the interface with other XDP programs. Those that xdp-loader and xdp-filter attached stay, and
    /// others can join later. The lowest number runs first (xdp-filter: 10). This command's program gets what
    /// earlier ones pass, and passes on what it does not take. It leaves the chain at the end. If the command
    /// is killed, the program stays and passes every packet until the next --beside run removes it. Requires
    /// Linux 5.10 with CONFIG_DEBUG_INFO_BTF and the BPF JIT, a BPF file system (at /sys/fs/bpf, or where the
    /// variable LIBXDP_BPFFS says), and CAP_SYS_ADMIN, CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON, which the
    /// command keeps.
    #[arg(long, value_name = "PRIORITY", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "50", conflicts_with_all = ["map", "pin"], help_heading = PACKETS)]
    pub beside: Option<u32>,
    /// Use the pinned XSKMAP of another XDP program
    ///
    /// Attaches no XDP program (forward: give it once for each interface). Puts the sockets into the map at
    /// the numbers of their queues when they have buffers, and removes them before they are closed. An
    /// occupied place is an error. `bpftool map pin id ID PATH` pins a map at a path.
    #[arg(long, value_name = "PATH", conflicts_with = "steer", help_heading = PACKETS)]
    pub map: Vec<PathBuf>,
    /// Keep the XDP program attached, pinned in DIR
    ///
    /// The program stays attached after the end, by a link pagepool-IF in DIR, a folder of a BPF file system.
    /// Between runs it passes all packets to the kernel's stack. The next run reuses the link, so drivers do
    /// not restart the interface for a new program. Only one run at a time can use a folder for an interface:
    /// a second one takes the packets of all queues, and the first fails. `rm DIR/pagepool-IF` detaches the
    /// program, at once or when the run that uses it ends. A dot in the name of the interface is a colon in
    /// the name of the link.
    #[arg(long, value_name = "DIR", conflicts_with = "map", help_heading = PACKETS)]
    pub pin: Option<PathBuf>,
    /// Wait N µs for more packets [default: 0]
    ///
    /// An idle thread first sleeps N microseconds, 0 to 10000, even if packets arrive, and then until a
    /// packet arrives. Packets that arrive one by one then share a wake-up, which costs as much CPU time as a
    /// hundred packets. Each packet may wait that long. N is capped at 0.6 µs per slot of the receive ring.
    /// Not with --busy-poll.
    #[arg(long, value_name = "N", default_value_t = 0, conflicts_with = "busy_poll", help_heading = THREADS)]
    #[arg(value_parser = count_of::<u64>("microseconds", 0..=10_000), hide_default_value = true)]
    pub rx_usecs: u64,
}

#[derive(Args, Clone, Copy, Debug)]
pub struct TransmitOptions {
    /// How packets are sent in copy mode [default: auto]
    ///
    /// auto: bpf-batch, if available, on a veth without a qdisc or filters; else ring. ring: the
    /// kernel sends packets one by one from the transmit ring. bpf-batch: a BPF program sends up to 64
    /// packets per system call; an error if not available.
    ///
    /// bpf-batch is for veths (containers, labs); zero copy never uses it. It requires Linux 6.15,
    /// CAP_PERFMON, and packets that fit one chunk. Its packets go through qdiscs and filters (tc,
    /// nftables), and tcpdump sees them; the ring bypasses all three. The chosen mode is printed at startup.
    #[arg(long, value_enum, value_name = "MODE", default_value_t = TxModeArg::Auto)]
    #[arg(help_heading = INTERFACES, hide_default_value = true, hide_possible_values = true)]
    tx_mode: TxModeArg,
}

/// The values of `--tx-mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum TxModeArg {
    /// bpf-batch, if available, on a veth without a qdisc or filters; else ring
    Auto,
    /// The kernel sends packets one by one from the transmit ring
    Ring,
    /// A BPF program sends up to 64 packets per system call; an error if not available
    BpfBatch,
}

impl TransmitOptions {
    /// The mode as the library's type.
    pub fn tx_mode(&self) -> net::TxMode {
        match self.tx_mode {
            TxModeArg::Auto => net::TxMode::Auto,
            TxModeArg::Ring => net::TxMode::Ring,
            TxModeArg::BpfBatch => net::TxMode::BpfBatch,
        }
    }
}

/// The values of `--mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// Zero copy if the drivers of all interfaces support it; else copy
    Auto,
    /// The NIC reads and writes this process's memory; an error if the driver does not support that
    Zerocopy,
    /// As auto, but the XDP program runs in the driver; an error if the driver does not support that
    Native,
    /// The kernel copies; works with every driver
    Copy,
    /// The kernel copies, and the XDP program runs in the network stack; works with every driver, but slower
    Generic,
}

impl Mode {
    pub fn attach(self) -> Attach {
        match self {
            Self::Native => Attach::Native,
            Self::Generic => Attach::Generic,
            Self::Auto | Self::Zerocopy | Self::Copy => Attach::Auto,
        }
    }

    /// Whether the kernel copies packets in any case.
    pub fn copies(self) -> bool {
        matches!(self, Self::Copy | Self::Generic)
    }
}

impl TrafficOptions {
    /// The mode as the library's type.
    pub fn mode(&self) -> XskMode {
        match self.mode {
            Mode::Auto | Mode::Native => XskMode::Auto,
            Mode::Copy | Mode::Generic => XskMode::Copy,
            Mode::Zerocopy => XskMode::ZeroCopy,
        }
    }

    /// The given size of a chunk.
    pub fn chunk(&self) -> Result<Option<u32>, String> {
        let fits = |chunk: u32| (2048..=PAGE_SIZE as u32).contains(&chunk) && chunk.is_multiple_of(64);
        match self.chunk_size.filter(|&chunk| !fits(chunk)) {
            None => Ok(self.chunk_size),
            Some(chunk) => Err(format!(
                "--chunk-size is {chunk}, but must be 2048 or 4096, or for unaligned chunks another multiple \
                 of 64 from 2112 to 4032"
            )),
        }
    }

    /// Whether chunks may begin at offsets that are not multiples of their size.
    pub fn unaligned(&self) -> bool {
        self.chunk_size.is_some_and(|chunk| ![2048, PAGE_SIZE as u32].contains(&chunk))
    }

    /// How to busy-poll the NIC, if requested.
    pub fn busy_poll(&self) -> Option<BusyPoll> {
        self.busy_poll.map(|budget| BusyPoll { budget, ..BusyPoll::default() })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cpus {
    /// All that the process may use.
    Any,
    List(Numbers),
}

fn cpus(text: &str) -> Result<Cpus, String> {
    if text == "any" {
        return Ok(Cpus::Any);
    }
    numbers(text).map(Cpus::List).map_err(|error| format!("{error}; any allows all CPUs"))
}

/// The numbers of a list, in the given order, each once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Numbers(pub Vec<u32>);

/// The highest number of a list, plus 1.
const MOST: usize = 4096;

/// Reads `0,2,4-7`.
fn numbers(text: &str) -> Result<Numbers, String> {
    let mut all = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| text.parse::<u32>().ok().filter(|&number| (number as usize) < MOST);
        let (Some(first), Some(last)) = (number(first), number(last)) else {
            return Err(format!(
                "{part:?} is neither a number from 0 to {} nor a range; examples: 0, or 0,2, or 0-3",
                MOST - 1
            ));
        };
        if first > last {
            return Err(format!("{part:?} ends before it begins; use {last}-{first}"));
        }
        for number in first..=last {
            if all.contains(&number) {
                return Err(format!("{number} is listed twice"));
            }
            all.push(number);
        }
    }
    Ok(Numbers(all))
}

fn ring(text: &str) -> Result<u32, String> {
    let ring = text.parse().ok().filter(|ring: &u32| ring.is_power_of_two() && (64..=8192).contains(ring));
    ring.ok_or_else(|| "slots are a power of two from 64 to 8192; the default is 1024, or 512".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_or_refused() {
        let read = |text| numbers(text).map(|Numbers(all)| all);
        assert_eq!(read("0"), Ok(vec![0]));
        assert_eq!(read("4-6,2"), Ok(vec![4, 5, 6, 2]));
        for (bad, why) in [
            ("", "neither a number"),
            ("a", "neither a number"),
            ("-1", "neither a number"),
            ("1-", "neither a number"),
            ("0-4096", "neither a number"),
            ("3-1", "use 1-3"),
            ("0-2,1", "1 is listed twice"),
        ] {
            let error = read(bad).unwrap_err();
            assert!(error.contains(why), "{bad}: {error}");
        }
    }
}
