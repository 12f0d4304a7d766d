//! The options of commands on interfaces.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};
use pagepool::PAGE_SIZE;
use pagepool_net::{self as net, Attach, BusyPoll, Match, XskMode};

use crate::file_name::file_name;
use crate::queues::published_run::PublishOptions;
use crate::report::figure_options::FigureOptions;
use crate::report::loss::LossLimit;
use crate::report::number::count_of;

/// Options of every command on interfaces. The first paragraph of each is its line in the short help.
#[derive(Args, Clone, Debug)]
pub struct TrafficOptions {
    /// Queues to use: 0, or 0,2, or 0-3 [default: all]
    ///
    /// Each queue has its own socket and pool, and its own thread unless --threads says otherwise. Packets
    /// of other queues go to the kernel as before. `ethtool -l IF` shows the number of queues, and
    /// `ethtool -L IF` changes it.
    #[arg(long, value_name = "LIST", value_parser = numbers)]
    pub queues: Option<Numbers>,
    /// How packets move between the driver and this process's memory
    ///
    /// The chosen mode is printed at startup. Before Linux 6.1, mlx5 with n queues has zero copy on queues n
    /// to 2n-1 only, which these commands do not use.
    #[arg(long, value_enum, value_name = "MODE", default_value_t = Mode::Auto)]
    pub mode: Mode,
    /// CPUs for the threads: 1, or 2,4, or 0-3 [default: those of the card's NUMA node]
    ///
    /// There is one thread per queue (forward: per pair of queues), or as many as --threads says. The CPUs
    /// are given to the threads in order; if there are more threads than CPUs, threads share them. For steady
    /// figures, choose idle CPUs on the NIC's NUMA node that do not handle its interrupts. Without this
    /// option the kernel moves threads among the CPUs of that node. The memory is on that node in any case;
    /// for an interface without a card it is on the node of the first CPU given, or of the command.
    #[arg(long, value_name = "LIST", value_parser = numbers)]
    pub cpus: Option<Numbers>,
    /// Let the kernel move threads to other NUMA nodes than the card's
    #[arg(long, conflicts_with = "cpus")]
    pub no_pin: bool,
    /// Threads to share the queues [default: one per queue, or per pair of queues]
    ///
    /// Queues are dealt out to the threads in turn. A thread asks the queues that bring nothing rarely while
    /// others are busy. More threads than queues (forward: pairs of queues) are refused.
    #[arg(long, value_name = "N", value_parser = count_of::<u16>("threads", 1..=65_535))]
    pub threads: Option<u16>,
    /// Bytes of a chunk of the UMEM: 2048 or 4096 [default: 4096]
    ///
    /// A chunk (libxdp: frame) holds one packet with its headroom. With 4096 each packet has a page. 2048 is
    /// for packets of MTU 1500, cut from pages of 256 KiB, and takes as much memory: a page is free again
    /// with its last chunk. Longer packets use several chunks, which requires Linux 6.6. With --unaligned:
    /// any multiple of 64 from 2048 to 4096 [default: 3072].
    #[arg(long, visible_alias = "frame-size", value_name = "BYTES")]
    pub chunk_size: Option<u32>,
    /// Use unaligned chunks: each begins at another offset of its page
    ///
    /// Packets then fall into different sets of the CPU's cache, which helps if they are read long after they
    /// arrived. Many drivers do not support zero copy with unaligned chunks.
    #[arg(long)]
    pub unaligned: bool,
    /// Use huge pages of 2 MiB
    ///
    /// The CPU and the IOMMU need fewer translations for huge pages. Reserve them first: `sysctl
    /// vm.nr_hugepages=64`. If there are too few, the error says how many are needed.
    #[arg(long)]
    pub hugepages: bool,
    /// Slots of each ring, a power of two from 64 to 8192 [default: 1024; with more than 4 queues an
    /// interface 512]
    ///
    /// The buffers of small rings stay in the CPU's cache. Large rings take longer bursts without loss. If
    /// packets need several chunks, the default is lower, so that a pool has at most 16384 pages out.
    #[arg(long, value_name = "SLOTS", value_parser = ring)]
    pub ring: Option<u32>,
    /// Busy-poll the NIC from the queue's thread, BUDGET packets per call, and never sleep [BUDGET: 1 to
    /// 65535, default 64]
    ///
    /// Gives the lowest latency, and uses a whole CPU per queue. Interrupts stay off only if the interface
    /// defers them (`napi_defer_hard_irqs` and `gro_flush_timeout` in /sys/class/net/IF). Requires Linux
    /// 5.11. Without this option a thread sleeps while no packet arrives.
    #[arg(long, value_name = "BUDGET", num_args = 0..=1, require_equals = true, default_missing_value = "64")]
    #[arg(value_parser = count_of::<u32>("packets", 1..=65_535))]
    pub busy_poll: Option<u32>,
    /// Stop after N seconds [default: at Ctrl-C]
    ///
    /// Ctrl-C stops earlier and prints the verdict. A second Ctrl-C stops at once, without it.
    #[arg(long, value_name = "N", value_parser = crate::engine::run_time::seconds)]
    pub seconds: Option<u64>,
    #[command(flatten)]
    pub limit: LossLimit,
    #[command(flatten)]
    pub figures: FigureOptions,
    /// Write every packet received (gen: sent) to a file for tcpdump or Wireshark
    ///
    /// The file holds whole packets with timestamps in nanoseconds. Each packet is copied, and a separate
    /// thread writes the file. If it falls behind, packets are missing from the file and counted; they are
    /// forwarded all the same. Only its owner can read a new file. Symbolic links are refused, except to
    /// descriptors of this process, as in `--pcap >(gzip >FILE)`. A FIFO must have a reader.
    #[arg(long, value_name = "FILE", value_parser = file_name())]
    pub pcap: Option<PathBuf>,
    /// Proceed even if the interface carries the default route or your SSH session
    ///
    /// Without this option the command refuses such an interface, and lo, which local programs use.
    #[arg(long)]
    pub yes: bool,
    #[command(flatten)]
    pub publish: PublishOptions,
}

/// Options of commands that receive.
#[derive(Args, Clone, Debug)]
pub struct ReceiveOptions {
    /// Take only packets that match; the rest goes to the kernel [default: all]
    ///
    /// An expression in the words of tcpdump (pcap-filter): ip, ip6, arp, tcp, udp, sctp, icmp, icmp6, proto
    /// P, port N, portrange N-M, host A, net A/LENGTH, each of the last four with src or dst before it,
    /// ethertype N, vlan ID; and nd (IPv6 neighbour discovery), fragment, all. Joined by and, or, not and
    /// parentheses. Example: 'udp dst port 4789 or ethertype 0x88b5'; or 'not (arp or icmp or icmp6)', which
    /// leaves ping and the resolution of addresses to the kernel. docs/steering.md has the rules.
    #[arg(long = "match", value_name = "EXPR", value_parser = |text: &str| text.parse::<Match>())]
    steer: Option<Match>,
    /// Where the XDP program that redirects packets to this command runs
    ///
    /// The chosen place is printed at startup.
    #[arg(long, value_enum, value_name = "WHERE", default_value_t = AttachArg::Auto)]
    attach: AttachArg,
    /// Share the interface with other XDP programs through libxdp's dispatcher [PRIORITY: default 50]
    ///
    /// Programs that xdp-loader and xdp-filter attached stay, and others can join meanwhile. The lowest
    /// number runs first (xdp-filter: 10). This command's program gets what earlier ones pass, and passes on
    /// what it does not take. It leaves the chain at the end. If the command is killed, the program stays and
    /// passes every packet until the next --beside run removes it. Requires Linux 5.10 with
    /// CONFIG_DEBUG_INFO_BTF and the BPF JIT, a BPF file system (at /sys/fs/bpf, or where the variable
    /// LIBXDP_BPFFS says), and CAP_SYS_ADMIN, CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON, which the command
    /// keeps.
    #[arg(long, value_name = "PRIORITY", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "50", conflicts_with_all = ["map", "pin"])]
    beside: Option<u32>,
    /// Attach no XDP program; use the XSKMAP of another one, pinned at PATH (forward: once for each
    /// interface)
    ///
    /// The sockets are put into the map at the numbers of their queues, when they have buffers, and removed
    /// before they are closed. A place that is taken is an error. `bpftool map pin id ID PATH` gives a map a
    /// name.
    #[arg(long, value_name = "PATH", conflicts_with_all = ["attach", "steer"])]
    map: Vec<PathBuf>,
    /// Keep the XDP program attached after the end, by a link pagepool-IF in this folder of a BPF file system
    ///
    /// Between runs the program passes all packets to the kernel's stack. The next run reuses the link, so
    /// drivers do not restart the interface for a new program. Only one run at a time can use a folder for an
    /// interface: a second one takes the packets of all queues, and the first fails. `rm DIR/pagepool-IF`
    /// detaches the program, at once or when the run that uses it ends. A dot in the name of the interface is
    /// a colon in the name of the link.
    #[arg(long, value_name = "DIR", conflicts_with = "map")]
    pin: Option<PathBuf>,
    /// Before a thread sleeps until a packet arrives, sleep N microseconds whatever arrives, 0 to 10000
    ///
    /// Packets that arrive one by one then share a wake-up, which costs as much CPU time as a hundred packets.
    /// Each packet may wait that long. It is capped at 0.6 µs per slot of the receive ring. Not with
    /// --busy-poll.
    #[arg(long, value_name = "N", default_value_t = 0, conflicts_with = "busy_poll")]
    #[arg(value_parser = count_of::<u64>("microseconds", 0..=10_000))]
    rx_usecs: u64,
    /// Have the card spread flows over the queues of --queues alone (RSS); put its table back at the end
    ///
    /// Without this option the card spreads flows over all of its queues, and those on other queues go to the
    /// kernel. The command that undoes it is printed; it is undone when --fix-offloads would be, and a table
    /// that somebody else set meanwhile stays. Packets that the card does not hash (such as ARP) keep their
    /// queue, mostly 0. The command fails if the card has no such table, or if another run holds it.
    #[arg(long)]
    pub rss: bool,
    /// Turn off the offloads that falsify what this command receives; turn them on again at its end
    ///
    /// On a veth, its other end leaves VLAN tags, checksums and segmentation to hardware. On a network card,
    /// offloads remove VLAN tags from packets, or merge packets. Without this option the command warns, and
    /// prints the `ethtool -K` line that turns them off. So it does for the other end of a veth in another
    /// network namespace, also with this option: it changes nothing there. What was changed, and the `ethtool
    /// -K` line that undoes it, is printed. The offloads are restored when the command ends by itself, after
    /// an error, or after a first Ctrl-C, SIGTERM or SIGHUP. SIGKILL, an abort and a second Ctrl-C leave them
    /// off: run the printed line. A second run on this interface finds them off, and the end of the first
    /// turns them on.
    #[arg(long)]
    pub fix_offloads: bool,
}

/// Options of commands that send.
#[derive(Args, Clone, Copy, Debug)]
pub struct TransmitOptions {
    /// How packets are sent in copy mode
    ///
    /// bpf-batch is for veths (containers, labs); zero copy never uses it. It requires Linux 6.15,
    /// CAP_PERFMON, and packets that fit one chunk. Its packets pass queueing disciplines and filters (tc,
    /// nftables), and tcpdump sees them; the ring bypasses all three. The chosen mode is printed at startup.
    #[arg(long, value_enum, value_name = "MODE", default_value_t = TxModeArg::Auto)]
    tx_mode: TxModeArg,
}

/// What `--tx-mode` takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum TxModeArg {
    /// bpf-batch, if available, on a veth without queueing discipline or filters; else ring
    Auto,
    /// The kernel sends packets one by one from the transmit ring
    Ring,
    /// A BPF program sends up to 64 packets per system call; an error if not available
    BpfBatch,
}

impl TransmitOptions {
    /// As the library has it.
    pub fn tx_mode(&self) -> net::TxMode {
        match self.tx_mode {
            TxModeArg::Auto => net::TxMode::Auto,
            TxModeArg::Ring => net::TxMode::Ring,
            TxModeArg::BpfBatch => net::TxMode::BpfBatch,
        }
    }
}

/// What `--mode` takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// Zero copy if the drivers of all interfaces support it, else copy
    Auto,
    /// The kernel copies; works with every driver
    Copy,
    /// The NIC reads and writes this process's memory; an error if the driver does not support that
    Zerocopy,
}

/// What `--attach` takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum AttachArg {
    /// Native if the driver supports it, else generic
    Auto,
    /// In the driver, before the kernel allocates an skb; an error if the driver does not support it
    Native,
    /// In the network stack, after the driver; works with every driver, but is slower
    Generic,
}

impl ReceiveOptions {
    /// The packets that are taken; `None`: all.
    pub fn steer(&self) -> Option<&Match> {
        self.steer.as_ref()
    }

    /// How long a thread sleeps before packets may end a sleep.
    pub fn rx_nap(&self) -> Duration {
        Duration::from_micros(self.rx_usecs)
    }

    /// As the library has it.
    pub fn attach(&self) -> Attach {
        match self.attach {
            AttachArg::Auto => Attach::Auto,
            AttachArg::Native => Attach::Native,
            AttachArg::Generic => Attach::Generic,
        }
    }

    /// The folder for the links of our XDP programs, if they shall outlive the command.
    pub fn pin(&self) -> Option<&Path> {
        self.pin.as_deref()
    }

    /// The priority of our XDP program, if it shall run beside others.
    pub fn beside(&self) -> Option<u32> {
        self.beside
    }

    /// The maps of other XDP programs, if no program is to be attached.
    pub fn maps(&self) -> &[PathBuf] {
        &self.map
    }
}

/// The usual unaligned chunk: what is left of its page is for colours.
const UNALIGNED: u32 = 3072;

impl TrafficOptions {
    /// As the library has it.
    pub fn mode(&self) -> XskMode {
        match self.mode {
            Mode::Auto => XskMode::Auto,
            Mode::Copy => XskMode::Copy,
            Mode::Zerocopy => XskMode::ZeroCopy,
        }
    }

    /// Bytes of a chunk.
    pub fn chunk(&self) -> Result<u32, String> {
        let default = if self.unaligned { UNALIGNED } else { PAGE_SIZE as u32 };
        let chunk = self.chunk_size.unwrap_or(default);
        let page = PAGE_SIZE as u32;
        let (fits, must_be) = if self.unaligned {
            let fits = (2048..=page).contains(&chunk) && chunk.is_multiple_of(64);
            (fits, "a multiple of 64 from 2048 to 4096")
        } else {
            (
                [2048, page].contains(&chunk),
                "2048 or 4096; with --unaligned, any multiple of 64 from 2048 to 4096",
            )
        };
        fits.then_some(chunk).ok_or_else(|| format!("--chunk-size is {chunk}, but must be {must_be}"))
    }

    /// How the NIC is busy-polled, if it is.
    pub fn busy_poll(&self) -> Option<BusyPoll> {
        self.busy_poll.map(|budget| BusyPoll { budget, ..BusyPoll::default() })
    }
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

/// Reads `--ring`.
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
