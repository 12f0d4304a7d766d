//! One queue pair: takes packets from a transmit queue, and puts packets into a receive queue.

use std::io::{Read, Write};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use vhost_user_backend::{VringMutex, VringState, VringT};
use virtio_queue::{DescriptorChain, QueueOwnedT, QueueT, Writer};
use vm_memory::{Bytes, GuestAddress, GuestAddressSpace, GuestMemoryAtomic, GuestMemoryMmap};

use crate::counts::Counts;

/// Bytes of the header before each packet: `virtio_net_hdr_v1`.
pub const HEADER: usize = 12;
/// The longest packet, in bytes.
const LONGEST: usize = 65_535 + 18;
/// Packets moved before others may look at the queue pair.
const BURST: usize = 64;

type Memory = GuestMemoryMmap<()>;
pub(crate) type SharedMemory = GuestMemoryAtomic<Memory>;

/// What the back end does with packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Sends each packet back, in order. A packet waits while the front end has no buffer for it.
    Echo,
    /// Drops each packet.
    Drop,
    /// Drops each packet, and fills each buffer of the front end with a packet of its own.
    Generate {
        /// The length of these packets in bytes.
        len: usize,
    },
    /// Moves only what calls of [`QueuePair::take`] and [`QueuePair::put`] move: for tests.
    Manual,
}

/// The two queues of a front end that is connected.
struct Rings {
    rx: VringMutex,
    tx: VringMutex,
    memory: SharedMemory,
    mergeable: bool,
}

#[derive(Default)]
struct State {
    rings: Option<Rings>,
    stopped: bool,
    counts: Counts,
    packet: Vec<u8>,
}

/// The back end's side of a queue pair. It outlives connections.
#[derive(Default)]
pub struct QueuePair {
    state: Mutex<State>,
    changed: Condvar,
}

fn usable(ring: &VringState<SharedMemory>) -> bool {
    ring.is_enabled() && ring.get_queue().ready()
}

impl QueuePair {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What this queue pair has done so far.
    pub fn counts(&self) -> Counts {
        self.state().counts
    }

    /// Waits until this is so, given whether a front end is connected, and the counts; false after the limit.
    pub fn wait(&self, limit: Duration, until: impl Fn(bool, Counts) -> bool) -> bool {
        let missing = |state: &mut State| !until(state.rings.is_some(), state.counts);
        let waited = self.changed.wait_timeout_while(self.state(), limit, missing);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    /// Takes a packet from the front end's transmit queue; false if there is none.
    pub fn take(&self, packet: &mut Vec<u8>) -> bool {
        let take = |transfer: &mut Transfer<'_>| {
            let Some(head) = transfer.take() else { return false };
            transfer.give_back(head);
            packet.clear();
            packet.extend_from_slice(&transfer.packet[HEADER..]);
            true
        };
        self.with(take).unwrap_or(false)
    }

    /// Puts a packet into the front end's receive queue; false if it has no buffer, and the packet is lost.
    pub fn put(&self, packet: &[u8]) -> bool {
        let put = |transfer: &mut Transfer<'_>| {
            transfer.packet.clear();
            transfer.packet.extend_from_slice(&[0; HEADER]);
            transfer.packet.extend_from_slice(packet);
            let put = transfer.put();
            transfer.counts.lost += u64::from(put == Put::NoBuffer);
            put == Put::Done
        };
        self.with(put).unwrap_or(false)
    }

    /// Uses these queues from now on, once both are enabled.
    pub(crate) fn connect(&self, rx: &VringMutex, tx: &VringMutex, memory: &SharedMemory, mergeable: bool) {
        let mut state = self.state();
        if state.rings.is_none() && !state.stopped && usable(&rx.get_ref()) && usable(&tx.get_ref()) {
            state.rings = Some(Rings { rx: rx.clone(), tx: tx.clone(), memory: memory.clone(), mergeable });
            state.counts.connections += 1;
            self.changed.notify_all();
        }
    }

    /// Touches no memory of the front end any more. After `for_good`, no other front end is served.
    pub(crate) fn disconnect(&self, for_good: bool) {
        let mut state = self.state();
        state.rings = None;
        state.stopped |= for_good;
        self.changed.notify_all();
    }

    /// Works until nothing is left to move. Then each queue that it waits for notifies it.
    pub(crate) fn serve(&self, mode: Mode) {
        let burst = |transfer: &mut Transfer<'_>| {
            let _ = (transfer.rx.disable_notification(), transfer.tx.disable_notification());
            (0..BURST).all(|_| transfer.step(mode))
        };
        while mode != Mode::Manual && self.with(burst).unwrap_or(false) {}
    }

    /// Works on both queues, and notifies the front end; `None` if there is none.
    fn with<R>(&self, work: impl FnOnce(&mut Transfer<'_>) -> R) -> Option<R> {
        let mut state = self.state();
        let State { rings, counts, packet, .. } = &mut *state;
        let rings = rings.as_ref()?;
        let (memory, mergeable) = (&*rings.memory.memory(), rings.mergeable);
        let (rx, tx) = (&mut *rings.rx.get_mut(), &mut *rings.tx.get_mut());
        if !usable(rx) || !usable(tx) {
            return None;
        }
        let mut transfer =
            Transfer { rx, tx, memory, mergeable, counts, packet, used: [false; 2], merged: false };
        let result = work(&mut transfer);
        transfer.notify();
        self.changed.notify_all();
        Some(result)
    }
}

/// What became of a packet for the receive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Put {
    Done,
    /// It is longer than the buffers can ever be; counted.
    Lost,
    /// The front end has too few buffers now. It notifies when it adds some.
    NoBuffer,
}

/// Work on a queue pair, during which nobody stops it.
struct Transfer<'a> {
    rx: &'a mut VringState<SharedMemory>,
    tx: &'a mut VringState<SharedMemory>,
    memory: &'a Memory,
    mergeable: bool,
    counts: &'a mut Counts,
    /// The packet with its header.
    packet: &'a mut Vec<u8>,
    /// Whether the receive and the transmit queue got buffers back.
    used: [bool; 2],
    /// Whether several went back at once, of which the queue has counted only one.
    merged: bool,
}

/// The next chain; the front end notifies if there is none.
fn pop<'m>(ring: &mut VringState<SharedMemory>, memory: &'m Memory) -> Option<DescriptorChain<&'m Memory>> {
    if let Some(chain) = ring.get_queue_mut().pop_descriptor_chain(memory) {
        return Some(chain);
    }
    let came = ring.enable_notification().unwrap_or(false);
    came.then(|| ring.get_queue_mut().pop_descriptor_chain(memory)).flatten()
}

impl Transfer<'_> {
    /// Moves a packet; false if there is nothing to move.
    fn step(&mut self, mode: Mode) -> bool {
        match (self.take(), mode) {
            (Some(_), Mode::Echo) if self.put() == Put::NoBuffer => {
                self.tx.get_queue_mut().go_to_previous_position();
                return false;
            }
            (Some(head), _) => self.give_back(head),
            (None, Mode::Generate { len }) => {
                generate(self.packet, self.counts.put, len);
                return self.put() == Put::Done;
            }
            (None, _) => return false,
        }
        true
    }

    /// Copies the next packet of the transmit queue; returns its chain. Chains that are no packet go back.
    fn take(&mut self) -> Option<u16> {
        loop {
            let chain = pop(self.tx, self.memory)?;
            let head = chain.head_index();
            if self.read(chain).is_some() {
                return Some(head);
            }
            self.counts.bad += 1;
            self.used[1] |= self.tx.add_used(head, 0).is_ok();
        }
    }

    /// Copies a packet. No offload was offered, so its header must ask for none.
    fn read(&mut self, chain: DescriptorChain<&Memory>) -> Option<()> {
        let mut reader = chain.reader(self.memory).ok()?;
        let len = reader.available_bytes();
        if !(HEADER + 1..=HEADER + LONGEST).contains(&len) {
            return None;
        }
        self.packet.resize(len, 0);
        reader.read_exact(self.packet).ok()?;
        let [flags, segmentation, .., buffers, buffers_high] = self.packet[..HEADER] else { return None };
        ([flags, segmentation, buffers, buffers_high] == [0; 4]).then_some(())
    }

    /// The front end may use the packet's buffers again.
    fn give_back(&mut self, head: u16) {
        let _ = self.tx.add_used(head, 0); // fails only for a chain that is not from this queue
        self.used[1] = true;
        self.counts.taken += 1;
    }

    /// Puts the packet into as many buffers as it needs.
    fn put(&mut self) -> Put {
        let (mut chains, mut room) = (Vec::with_capacity(1), 0);
        while room < self.packet.len() {
            let chain = if chains.is_empty() || self.mergeable { pop(self.rx, self.memory) } else { None };
            let Some(chain) = chain else { return self.leave(chains.len()) };
            let (head, writer) = (chain.head_index(), chain.writer(self.memory).ok());
            self.counts.bad += u64::from(writer.is_none());
            room += writer.as_ref().map_or(0, |writer| writer.available_bytes());
            chains.push((head, writer));
        }
        self.packet[10..HEADER].copy_from_slice(&(chains.len() as u16).to_le_bytes());
        self.counts.put += 1;
        let mut rest = &self.packet[..];
        let fill = |(head, writer): (u16, Option<Writer<'_>>)| {
            let Some(mut writer) = writer else { return (head, 0) };
            let (part, after) = rest.split_at(writer.available_bytes().min(rest.len()));
            rest = after;
            (head, writer.write_all(part).map_or(0, |()| part.len() as u32))
        };
        let filled: Vec<_> = chains.into_iter().map(fill).collect();
        self.use_all(&filled);
        Put::Done
    }

    /// Leaves so many chains in the receive queue: the packet does not fit into them.
    fn leave(&mut self, count: usize) -> Put {
        (0..count).for_each(|_| self.rx.get_queue_mut().go_to_previous_position());
        let all = usize::from(self.rx.get_queue().size());
        let never = count > 0 && (count == all || !self.mergeable);
        self.counts.lost += u64::from(never);
        if never { Put::Lost } else { Put::NoBuffer }
    }

    /// Publishes all buffers of a packet at once. `add_used` publishes each: a front end that polls would see
    /// a part of the packet. So the entries of all except the last are written here.
    fn use_all(&mut self, filled: &[(u16, u32)]) {
        let Some(((last, len), first)) = filled.split_last() else { return };
        let queue = self.rx.get_queue_mut();
        for (head, len) in first {
            let slot = u64::from(queue.next_used() % queue.size());
            let entry = u64::from(*head) | u64::from(*len) << 32;
            let at = GuestAddress(queue.used_ring() + 4 + 8 * slot);
            let _ = self.memory.write_slice(&entry.to_le_bytes(), at); // fails like `add_used`
            queue.set_next_used(queue.next_used().wrapping_add(1));
        }
        self.merged |= !first.is_empty();
        self.used[0] |= self.rx.add_used(*last, *len).is_ok();
    }

    /// Notifies the front end, if it asked for that.
    fn notify(&mut self) {
        for (ring, used) in [(&mut *self.rx, self.used[0]), (&mut *self.tx, self.used[1])] {
            if used && (ring.needs_notification().unwrap_or(true) || self.merged) {
                let _ = ring.signal_used_queue(); // a front end without a descriptor polls
            }
        }
    }
}

/// A packet to nobody, with its number after the Ethernet header.
fn generate(packet: &mut Vec<u8>, number: u64, len: usize) {
    packet.clear();
    packet.resize(HEADER + len, 0);
    packet[HEADER..HEADER + 14].copy_from_slice(b"\x02to..\x01\x02from\x01\x88\xb5");
    packet[HEADER + 14..HEADER + 22].copy_from_slice(&number.to_be_bytes());
}
