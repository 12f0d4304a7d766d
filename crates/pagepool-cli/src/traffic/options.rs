//! What the commands on interfaces can be told.

use std::fmt::Display;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use pagepool::PAGE_SIZE;
use pagepool_net::{self as net, Attach, BusyPoll, XskMode};

/// Options of every command. What stands before the empty line of each is its line in the short help.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// Queues to work on, by number: 0, or 0,2, or 0-3 [default: all]
    ///
    /// Each has a thread, a socket and a pool of its own. Packets of the others go to the kernel as before. `ethtool -l IF`
    /// says how many there are, `ethtool -L IF` changes that.
    #[arg(long, value_name = "LIST", value_parser = numbers)]
    pub queues: Option<Numbers>,
    /// Who moves packets between the driver and our memory
    ///
    /// The first lines say which it became.
    #[arg(long, value_enum, value_name = "MODE", default_value_t = Mode::Auto)]
    pub mode: Mode,
    /// CPUs for the threads, by number: 1, or 2,4, or 0-3 [default: the kernel chooses]
    ///
    /// There is a thread for each queue (forward: for each pair of queues). The first one stays on the first CPU, and so on,
    /// from the beginning again if there are fewer. For steady figures name CPUs that nothing else runs on, of the node
    /// that the card is on, and that do not take its interrupts.
    #[arg(long, value_name = "LIST", value_parser = numbers)]
    pub cpus: Option<Numbers>,
    /// Bytes of a chunk, the fragment of memory for one packet: 2048 or 4096 [default: 4096]
    ///
    /// 4096 is a page for each packet; 2048 halves the memory and still holds packets of MTU 1500. Packets that do not fit
    /// travel in several chunks, which needs Linux 6.6. With --unaligned it is any multiple of 64 from 2048 to 4096, and 3072
    /// unless it is said.
    #[arg(long, value_name = "BYTES")]
    pub frame_size: Option<u32>,
    /// Let chunks begin anywhere in their page
    ///
    /// So that packets lie in other sets of the CPU's cache from page to page. Try it where packets are read long after they
    /// came. Many drivers have no zero copy with it.
    #[arg(long)]
    pub unaligned: bool,
    /// Take the memory from huge pages of 2 MiB
    ///
    /// The CPU and the IOMMU need fewer translations for them. They must be set aside before: `sysctl vm.nr_hugepages=64`;
    /// if there are too few, the error says how many it takes.
    #[arg(long)]
    pub hugepages: bool,
    /// Slots of each ring of a queue, a power of two from 64 to 8192 [default: 1024]
    ///
    /// Small ones stay in the CPU's cache, large ones take longer bursts without loss. Where packets are so large that a pool
    /// could not keep its pages, the default is less.
    #[arg(long, value_name = "SLOTS", value_parser = ring)]
    pub ring: Option<u32>,
    /// Do the driver's work in our own calls, BUDGET packets a call, and never sleep [BUDGET: 1 to 65535, usually 64]
    ///
    /// The lowest latency, for a whole CPU per queue. Interrupts stay away only where the interface is told to defer them
    /// (`napi_defer_hard_irqs` and `gro_flush_timeout` in /sys/class/net/IF). Needs Linux 5.11. Without it a thread sleeps when
    /// nothing comes.
    #[arg(long, value_name = "BUDGET", num_args = 0..=1, require_equals = true, default_missing_value = "64")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=65_535))]
    pub busy_poll: Option<u32>,
    /// End after so many seconds [default: at Ctrl-C]
    ///
    /// Ctrl-C ends it earlier in any case, with the verdict; a second one at once.
    #[arg(long, value_name = "N", value_parser = crate::engine::run_time::seconds)]
    pub seconds: Option<u64>,
    /// One JSON object at the end on standard output, and nothing else there
    #[arg(long)]
    pub json: bool,
    /// Write every packet that is received (gen: sent), whole, to a file for tcpdump or Wireshark
    ///
    /// With nanoseconds. It costs a copy of each packet; a thread of its own writes the file. What that cannot keep up with is
    /// left out of the file, whole, and counted; the packet goes its way all the same.
    #[arg(long, value_name = "FILE")]
    pub pcap: Option<PathBuf>,
    /// Print figures every so many seconds; 0 prints none [default: 1]
    ///
    /// With --json none, and nothing about the interfaces, unless it is said: then on standard error.
    #[arg(long, value_name = "SECONDS", value_parser = interval)]
    pub stats_every: Option<u64>,
    /// Do it although somebody depends on the interface
    ///
    /// Without it an interface is refused that carries the default route, the SSH session that this runs in, or what local
    /// programs say to each other (lo).
    #[arg(long)]
    pub yes: bool,
}

/// Options of those that receive.
#[derive(Args, Clone, Copy, Debug)]
pub struct Receiving {
    /// Where the XDP program runs that gives us the packets
    ///
    /// The first lines say which it became.
    #[arg(long, value_enum, value_name = "WHERE", default_value_t = Where::Auto)]
    attach: Where,
}

/// Options of those that send.
#[derive(Args, Clone, Copy, Debug)]
pub struct Sending {
    /// How packets go out where the kernel copies them
    ///
    /// A program takes Linux 6.15, CAP_PERFMON beside the other capabilities, and packets that fit one chunk. What it sends passes
    /// queueing disciplines and filters, and tcpdump sees it, where the ring goes around these. The first lines say which it
    /// became.
    #[arg(long, value_enum, value_name = "HOW", default_value_t = By::Auto)]
    send: By,
}

/// What `--send` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum By {
    /// BPF batch on a veth without queueing discipline or filters, if packets fit one chunk; else ring
    Auto,
    /// The kernel sends one packet after the other
    Ring,
    /// A BPF program in the kernel sends up to 64 packets in one call, or it is an error
    BpfBatch,
}

impl Sending {
    /// As the library has it.
    pub fn tx_mode(&self) -> net::TxMode {
        match self.send {
            By::Auto => net::TxMode::Auto,
            By::Ring => net::TxMode::Ring,
            By::BpfBatch => net::TxMode::BpfBatch,
        }
    }
}

/// What `--mode` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// Zero copy where the driver has it, else copy
    Auto,
    /// The kernel copies: works with every driver
    Copy,
    /// The driver works on our memory, or it is an error
    Zerocopy,
}

/// What `--attach` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Where {
    /// Native where the driver can, else generic
    Auto,
    /// In the driver, before the kernel makes a packet of its own of it, or it is an error
    Native,
    /// Behind the driver: works with every one, slower
    Generic,
}

impl Receiving {
    /// As the library has it.
    pub fn attach(&self) -> Attach {
        match self.attach {
            Where::Auto => Attach::Auto,
            Where::Native => Attach::Native,
            Where::Generic => Attach::Generic,
        }
    }
}

/// Colours need room in the page beside the chunk.
const UNALIGNED: u32 = 3072;

impl Options {
    /// Who moves the bytes.
    pub fn mode(&self) -> XskMode {
        match self.mode {
            Mode::Auto => XskMode::Auto,
            Mode::Copy => XskMode::Copy,
            Mode::Zerocopy => XskMode::ZeroCopy,
        }
    }

    /// Bytes of a chunk.
    pub fn chunk(&self) -> Result<u32, String> {
        let usual = if self.unaligned { UNALIGNED } else { PAGE_SIZE as u32 };
        let chunk = self.frame_size.unwrap_or(usual);
        let fits = match self.unaligned {
            true => (2048..=PAGE_SIZE as u32).contains(&chunk) && chunk.is_multiple_of(64),
            false => [2048, PAGE_SIZE as u32].contains(&chunk),
        };
        let must_be = match self.unaligned {
            true => "a multiple of 64 from 2048 to 4096",
            false => "2048 or 4096; with --unaligned others go too",
        };
        fits.then_some(chunk).ok_or_else(|| format!("--frame-size is {chunk}, but must be {must_be}"))
    }

    /// How the driver is polled, if by us.
    pub fn busy_poll(&self) -> Option<BusyPoll> {
        self.busy_poll.map(|budget| BusyPoll { budget, ..BusyPoll::default() })
    }

    /// Says something to whoever watches: not among the JSON output, and with that only if figures are asked for, too.
    pub fn say(&self, text: &dyn Display) {
        match (self.json, self.stats_every) {
            (false, _) => println!("{text}"),
            (true, Some(_)) => eprintln!("{text}"),
            (true, None) => {}
        }
    }

    /// Every how many seconds figures are printed, if they are.
    pub fn stats_every(&self) -> Option<u64> {
        let usual = if self.json { 0 } else { 1 };
        Some(self.stats_every.unwrap_or(usual)).filter(|&seconds| seconds > 0)
    }
}

/// Numbers as they are written in a list, in their order, each once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Numbers(pub Vec<u32>);

/// Most numbers of a list.
const MOST: usize = 4096;

/// Reads `0,2,4-7`.
fn numbers(text: &str) -> Result<Numbers, String> {
    let mut all = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| text.parse::<u32>().ok().filter(|&number| (number as usize) < MOST);
        let (Some(first), Some(last)) = (number(first), number(last)) else {
            return Err(format!(
                "{part:?} is no number from 0 to {} and no range; say 0, or 0,2, or 0-3",
                MOST - 1
            ));
        };
        if first > last {
            return Err(format!("{part:?} ends before it begins; say {last}-{first}"));
        }
        for number in first..=last {
            if all.contains(&number) {
                return Err(format!("{number} is there twice"));
            }
            all.push(number);
        }
    }
    Ok(Numbers(all))
}

/// Reads `--ring`.
fn ring(text: &str) -> Result<u32, String> {
    let ring = text.parse().ok().filter(|ring: &u32| ring.is_power_of_two() && (64..=8192).contains(ring));
    ring.ok_or_else(|| "a ring has a power of two from 64 to 8192 slots; 1024 is the usual number".into())
}

/// Reads `--stats-every`.
fn interval(text: &str) -> Result<u64, String> {
    let seconds = text.parse().ok().filter(|seconds| (0..=3600).contains(seconds));
    seconds.ok_or_else(|| "figures come every 1 to 3600 whole seconds; 0 is never".into())
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
            ("", "no number"),
            ("a", "no number"),
            ("-1", "no number"),
            ("1-", "no number"),
            ("0-4096", "no number"),
            ("3-1", "say 1-3"),
            ("0-2,1", "1 is there twice"),
        ] {
            let error = read(bad).unwrap_err();
            assert!(error.contains(why), "{bad}: {error}");
        }
    }
}
