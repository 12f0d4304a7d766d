//! What the commands on interfaces can be told.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use pagepool::PAGE_SIZE;
use pagepool_net::{Attach, BusyPoll, XskMode};

/// Options of every command.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// Which receive queues to work on, by number: 0, or 0,2, or 0-3 [default: all]. Packets of the others go to the
    /// kernel as before. `ethtool -L IF` changes how many there are
    #[arg(long, value_name = "LIST", value_parser = numbers)]
    pub queues: Option<Numbers>,
    /// Who moves packets between the driver and our memory. Which it became is in the first lines
    #[arg(long, value_enum, value_name = "MODE", default_value_t = Mode::Auto)]
    pub mode: Mode,
    /// CPUs to keep the threads on, one thread per queue (forward: per pair of queues): 1, or 2,4, or 0-3. The first thread
    /// has the first CPU, and so on, from the beginning again if there are fewer [default: wherever the kernel puts them].
    /// Best are CPUs of the card's node that do not take its interrupts
    #[arg(long, value_name = "LIST", value_parser = numbers)]
    pub cpus: Option<Numbers>,
    /// Bytes of the chunks that the kernel puts packets into [default: 4096, with --unaligned 3072]. 4096 is a page for
    /// each packet; 2048 halves the memory and holds MTU 1500; packets that do not fit travel in several chunks, which
    /// needs Linux 6.6. With --unaligned any multiple of 64 from 2048 to 4096
    #[arg(long, value_name = "BYTES")]
    pub frame_size: Option<u32>,
    /// Let chunks begin anywhere in their page, so that packets lie in different cache sets from page to page. Try it where
    /// the program reads packets long after they came. Many drivers have no zero copy with it
    #[arg(long)]
    pub unaligned: bool,
    /// Take the memory from huge pages of 2 MiB, for which the CPU and the IOMMU need fewer translations. They must be set
    /// aside before: `sysctl vm.nr_hugepages=64`
    #[arg(long)]
    pub hugepages: bool,
    /// Slots of each ring of a queue, a power of two from 64 to 8192 [default: 2048, fewer for large packets]. Smaller ones
    /// stay in the cache, larger ones take longer bursts without loss
    #[arg(long, value_name = "SLOTS", value_parser = ring)]
    pub ring: Option<u32>,
    /// Do the driver's work in our own calls, up to BUDGET packets a call, and never sleep: the lowest latency, for a whole
    /// CPU per queue. Interrupts stay away only where the interface is told to defer them (napi_defer_hard_irqs,
    /// gro_flush_timeout). Linux 5.11
    #[arg(long, value_name = "BUDGET", num_args = 0..=1, require_equals = true, default_missing_value = "64")]
    pub busy_poll: Option<u32>,
    /// End after so many seconds [default: at Ctrl-C, which ends it earlier in any case]
    #[arg(long, value_name = "N", value_parser = crate::arguments::seconds)]
    pub seconds: Option<u64>,
    /// One JSON object at the end on standard output, and nothing else there
    #[arg(long)]
    pub json: bool,
    /// Write every packet that is received (gen: sent), whole, to a file that tcpdump and Wireshark read, with nanoseconds.
    /// Each is copied once for that, and a thread writes the file; what it cannot keep up with is left out and counted
    #[arg(long, value_name = "FILE")]
    pub pcap: Option<PathBuf>,
    /// Print figures every so many seconds; 0 prints none [default: 1; with --json none, and if asked for on standard error]
    #[arg(long, value_name = "SECONDS", value_parser = interval)]
    pub stats_every: Option<u64>,
    /// Do it although the machine's network, or the session that this runs in, depends on the interface
    #[arg(long)]
    pub yes: bool,
}

/// Options of those that receive.
#[derive(Args, Clone, Copy, Debug)]
pub struct Receiving {
    /// Where the XDP program runs that gives us the packets. Which it became is in the first lines
    #[arg(long, value_enum, value_name = "WHERE", default_value_t = Where::Auto)]
    attach: Where,
}

/// What `--mode` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// zerocopy where the driver has it, else copy
    Auto,
    /// The kernel copies: works with every driver
    Copy,
    /// The driver works on our memory, or it is an error
    Zerocopy,
}

/// What `--attach` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Where {
    /// native where the driver can, else generic
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
    ring.ok_or_else(|| "a ring has a power of two from 64 to 8192 slots; 2048 is the usual number".into())
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
