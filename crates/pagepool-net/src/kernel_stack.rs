//! Passes packets to the kernel: those that a program does not want go up the interface's own stack.
//!
//! What   a [`KernelStack`] collects the packets that a handler passes. Once per burst one `BPF_PROG_RUN`
//!        copies up to 64 of them into the kernel (see [`bpf_run`](crate::bpf_run)), which treats them as if
//!        they had just arrived on the interface: taps, nftables and tc see them, XDP in the driver does not.
//! Return buffers return in bulk when the call does: the kernel has copies.
//! Memory any that the CPU can read. A packet of several buffers is gathered in memory of our own first.
//! Loops  a generic XDP program runs behind the place where packets enter, so it would get them again. The
//!        [`LoopWatch`] refuses such an interface, at the start and while it runs.
//! Where  the program compares the thread's network namespace with the interface's. Before Linux 6.15 it
//!        cannot: then `flush` compares them, by one more system call.
//! Cost   a burst: one system call, and two copies of each packet. A lone packet pays the call alone.

mod loop_watch;
mod published;
mod stats;

use pagepool::{Error, PAGE_SIZE, XdpBuff, put_packets};

use crate::bpf_run::program::{Copies, Direction, MOST, SHORTEST};
use crate::bpf_run::{BpfRun, RunBatch};
use crate::device::VlanTag;
use crate::error::parameter;
use crate::forward::{Ingress, Outlets, Stack};
use crate::interface::lookup;
use crate::sys::remedy::failed_unless;
use crate::sys::{capability, errno};
use crate::xsk::RxMetadataReader;
use crate::xsk::descriptor::Descriptor;
use loop_watch::LoopWatch;
use published::PublishedStack;
pub use stats::KernelStackStats;

/// Most bytes of a packet: the kernel copies it into one block of four pages, which also has its own data.
const LONGEST: usize = 15 << 10;
/// Bytes for packets of several buffers, per call.
const GATHERED: usize = 64 << 10;
/// Where a VLAN tag goes: behind both MAC addresses.
const MACS: usize = 12;
const TAG: usize = 4;

/// The kernel's network stack behind an interface. It receives the packets that a handler passes.
///
/// ```no_run
/// // It needs root and an interface whose driver runs XDP programs itself.
/// use pagepool_net::{Action, Forwarder, Ingress, KernelStack, XskDevice};
///
/// let (device, pool) = XskDevice::simple("eth0", 0)?;
/// let stack = KernelStack::new("eth0")?; // after the XDP program is attached
/// let is_flood = |packet: &pagepool::XdpBuff| packet.data().get(23) == Some(&17); // UDP
/// let mut forwarder = Forwarder::with_stack(
///     move |packet: &mut pagepool::XdpBuff, _: Ingress| match is_flood(packet) {
///         true => Action::Drop,
///         false => Action::Pass, // ssh goes on
///     },
///     stack,
/// );
/// forwarder.add_port(device, pool);
/// forwarder.run(&std::sync::atomic::AtomicBool::new(false))?;
/// # Ok::<(), pagepool::Error>(())
/// ```
///
/// It serves one interface: packets of every port go up there. For several interfaces, write a [`Stack`] that
/// holds one `KernelStack` for each, chooses by [`Ingress::port`], and passes each [`flush`](Stack::flush)
/// on: without it packets wait for further ones. A closure as a stack has no `flush`.
///
/// The kernel verifies checksums again, as for a card that does not. A packet whose checksum the sender left
/// to hardware (a veth's peer with `tx-checksum` on) is dropped: turn that offload off. The
/// kernel merges nothing (no GRO), and limits packets that wait by `net.core.netdev_max_backlog`.
///
/// If the process [publishes](pagepool::publish), `show`, `top` and metrics have its counters, and the doctor
/// says why it refuses packets.
#[derive(Debug)]
pub struct KernelStack {
    interface: String,
    /// The program, or why it no longer runs.
    program: Result<BpfRun, String>,
    /// The first `packets.len()` are in use. The program reads them.
    entries: Box<[[u64; 2]; MOST]>,
    packets: Vec<XdpBuff>,
    gathered: Vec<u8>,
    watch: LoopWatch,
    tags: Option<RxMetadataReader>,
    stats: KernelStackStats,
    published: Option<PublishedStack>,
}

impl KernelStack {
    /// Loads the program for an interface of this thread's network namespace. Attach the XDP program first.
    /// Takes about a millisecond.
    ///
    /// # Errors
    /// If the interface has a generic XDP program (which would get each packet again), has no Ethernet header
    /// or does not exist, or capabilities are missing: `CAP_BPF`, `CAP_NET_ADMIN`, `CAP_PERFMON`. If the
    /// kernel refuses it, send packets to a TAP, with [`Action::Redirect`](crate::Action::Redirect).
    pub fn new(interface: &str) -> Result<Self, Error> {
        let link = lookup::look_up(interface)?;
        if !link.is_ethernet {
            return Err(parameter("interface", interface, "one whose packets have an Ethernet header"));
        }
        let mut watch = LoopWatch::new(link.index)?;
        if watch.look()?.is_some() {
            let remedy = "an interface without a generic XDP program, which would receive each passed packet \
                          again: attach the program in driver mode, or pass packets to a TAP";
            return Err(parameter("interface", interface, remedy));
        }
        let entries = Box::new([[0; 2]; MOST]);
        let program = load(&mut watch, link.index, &entries)?;
        Ok(Self {
            interface: interface.into(),
            program: Ok(program),
            entries,
            packets: Vec::with_capacity(MOST),
            gathered: Vec::with_capacity(GATHERED),
            watch,
            tags: None,
            stats: KernelStackStats::default(),
            published: PublishedStack::new(interface, link.index),
        })
    }

    /// Puts back VLAN tags that the card removed, as this reader finds them. Without this the kernel gets
    /// such packets untagged. A packet with less than 4 bytes of headroom is refused. The handler must not
    /// read the metadata itself, or move the packet's beginning: then no tag is found.
    pub fn put_back_tags(mut self, reader: RxMetadataReader) -> Self {
        self.tags = Some(reader);
        self
    }

    /// What happened to passed packets so far.
    pub fn stats(&self) -> KernelStackStats {
        self.stats
    }

    /// Why it refuses all packets now, if it does: a generic XDP program was attached, or the thread is in
    /// another network namespace.
    pub fn stopped(&self) -> Option<&str> {
        self.program.as_ref().err().map(String::as_str)
    }
}

/// Loads the program that checks the namespace; if the kernel has no such helper, the one that does not.
fn load(watch: &mut LoopWatch, index: u32, entries: &[[u64; 2]; MOST]) -> Result<BpfRun, Error> {
    let copies = |namespace| Copies {
        direction: Direction::Up,
        namespace,
        index,
        queue: 0,
        ring: entries.as_ptr().expose_provenance() as u64,
        memory: 0,
        longest: LONGEST as u32,
    };
    let checked = BpfRun::load(&copies(Some(watch.namespace())));
    let loaded = match checked {
        Err((_, error)) if error.raw_os_error() == Some(errno::EINVAL) => watch
            .compare_namespaces()
            .map_err(|error| ("stat(/proc/thread-self/ns/net)", error))
            .and_then(|()| BpfRun::load(&copies(None))),
        checked => checked,
    };
    loaded.map_err(|(call, source)| {
        let own = match source.raw_os_error() {
            Some(errno::EPERM) => Some(capability::remedy(capability::SEND_PROGRAM)),
            // Without CAP_PERFMON a kernel does not know the helper that reads memory.
            Some(errno::EINVAL) if capability::lacks(capability::SEND_PROGRAM) => {
                Some(capability::remedy(capability::SEND_PROGRAM))
            }
            _ => None,
        };
        failed_unless(own, call, source, "the kernel refused the BPF program: pass packets to a TAP instead")
    })
}

impl Stack for KernelStack {
    fn deliver(&mut self, mut packet: XdpBuff, _: Ingress) -> Result<(), XdpBuff> {
        let tag = self.tags.and_then(|tags| tags.read(&mut packet)?.vlan);
        let len = packet.len() + if tag.is_some() { TAG } else { 0 };
        if len > LONGEST {
            self.stats.too_long += 1;
            return Err(packet);
        }
        let is_short = packet.data_len() < SHORTEST as usize;
        if is_short || self.program.is_err() || tag.is_some_and(|tag| !put_back(&mut packet, tag)) {
            self.stats.refused += 1;
            return Err(packet);
        }
        let is_whole = !packet.has_frags();
        if self.packets.len() == MOST || !(is_whole || self.gathered.len() + len <= GATHERED) {
            self.send();
        }
        let place = if is_whole { Some(packet.data().as_ptr()) } else { self.gather(&packet) };
        let Some(addr) = place.map(|place| place.expose_provenance() as u64) else {
            self.stats.refused += 1;
            return Err(packet);
        };
        self.entries[self.packets.len()] = Descriptor { addr, len: len as u32, options: 0 }.to_words();
        self.packets.push(packet);
        Ok(())
    }

    fn flush(&mut self, _: &mut Outlets<'_>) {
        self.send();
    }
}

impl KernelStack {
    /// Gives the collected packets to the kernel, and returns their buffers. A forwarder does it after each
    /// burst, by [`flush`](Stack::flush); call it yourself in a loop of your own.
    pub fn send(&mut self) {
        if !self.packets.is_empty() {
            self.send_up();
            put_packets(&mut self.packets);
            self.gathered.clear();
        }
        if let Some(published) = &mut self.published {
            let stopped = self.program.as_ref().err().map(String::as_str);
            published.show(&self.interface, self.stats, stopped);
        }
    }

    /// Copies a packet of several buffers to one place, for which there is room. `None` if the CPU cannot
    /// read all of it.
    fn gather(&mut self, packet: &XdpBuff) -> Option<*const u8> {
        let start = self.gathered.len();
        self.gathered.resize(start + packet.len(), 0); // never moves: it has the capacity
        if packet.copy_to(&mut self.gathered[start..]) < packet.len() {
            self.gathered.truncate(start);
            return None;
        }
        Some(self.gathered[start..].as_ptr())
    }

    /// Runs the program until each packet is passed or refused.
    fn send_up(&mut self) {
        let count = self.packets.len();
        let mut next = if self.may_pass() { 0 } else { count };
        self.stats.refused += next as u64;
        let mut touched = false;
        while next < count {
            let Some(done) = self.run(next) else {
                self.stats.refused += (count - next) as u64;
                break;
            };
            if done == 0 && touched {
                (next, self.stats.refused) = (next + 1, self.stats.refused + 1);
            }
            next += done;
            touched = done == 0 && !touched;
            if touched {
                touch(&self.packets[next]);
            }
        }
    }

    /// Whether packets may go up: none would come back, and this thread is in the interface's namespace.
    fn may_pass(&mut self) -> bool {
        if self.watch.is_elsewhere() {
            self.stop(ELSEWHERE.into());
        }
        match self.watch.look_if_due() {
            Ok(None) => {}
            Ok(Some(name)) => _ = self.stop(format!("a generic XDP program was attached to {name}")),
            Err(_) => return false, // the next burst looks again
        }
        self.program.is_ok()
    }

    /// Runs the program on packets from `next` on. Returns how many are done; `None` if none of the rest can
    /// be.
    fn run(&mut self, next: usize) -> Option<usize> {
        let program = self.program.as_ref().ok()?;
        let entries = &self.entries[next..self.packets.len()];
        let batch = RunBatch::of(entries.iter().map(|entry| Descriptor::of_words(*entry).place()))?;
        self.stats.runs += 1;
        match program.run(batch, next as u32) {
            Ok(Some(result)) => {
                self.stats.passed += result.done as u64 - result.dropped;
                self.stats.refused += result.dropped;
                Some(result.done)
            }
            Ok(None) => self.stop(ELSEWHERE.into()),
            Err(error) => match error.raw_os_error() {
                Some(errno::ENOMEM | errno::EINTR | errno::EAGAIN) => None,
                _ => self.stop(format!("the kernel refused to run the program: {error}")),
            },
        }
    }

    #[cold]
    fn stop(&mut self, why: String) -> Option<usize> {
        self.program = Err(why);
        None
    }
}

const ELSEWHERE: &str = "the forwarder ran in another network namespace";

/// Reads a byte of each page, because the program reads only memory that is present.
fn touch(packet: &XdpBuff) {
    packet.data().iter().step_by(PAGE_SIZE).for_each(|byte| {
        std::hint::black_box(*byte);
    });
    std::hint::black_box(packet.data().last());
}

/// Inserts a VLAN tag behind the MAC addresses. Returns whether there was room before them. Without its tag,
/// a packet would go to another network.
fn put_back(packet: &mut XdpBuff, tag: VlanTag) -> bool {
    if packet.adjust_head(-(TAG as isize)).is_err() {
        return false;
    }
    let data = packet.data_mut();
    data.copy_within(TAG..TAG + MACS, 0);
    data[MACS..MACS + 2].copy_from_slice(&tag.protocol.to_be_bytes());
    data[MACS + 2..MACS + TAG].copy_from_slice(&tag.tci.to_be_bytes());
    true
}

#[cfg(not(loom))]
#[cfg(test)]
mod tests {
    use super::*;
    use pagepool::{Arena, ArenaParams, Pool, PoolParams};

    #[test]
    fn a_tag_is_put_back_or_the_packet_refused() {
        let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() }).unwrap();
        let pool = Pool::new(PoolParams { headroom: 256, ..Default::default() }, arena).unwrap().bind();
        let mut packet = pool.packet(60).unwrap();
        (0..60u8).zip(packet.data_mut()).for_each(|(value, byte)| *byte = value);
        let tag = VlanTag { protocol: 0x8100, tci: 0x2005 };
        assert!(put_back(&mut packet, tag));
        let tagged: Vec<u8> = (0..12).chain([0x81, 0, 0x20, 5]).chain(12..60).collect();
        assert_eq!(packet.data(), tagged);
        let whole = packet.headroom() as isize;
        packet.adjust_head(-whole).unwrap();
        let before = packet.data().to_vec();
        assert!(!put_back(&mut packet, tag), "no room");
        assert_eq!(packet.data(), before, "and nothing has changed");
    }
}
