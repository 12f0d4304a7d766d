//! A front end for one purpose: to test the back end. The messages are of rust-vmm; the driver's half of the
//! queues is here, and checks what the back end writes.

use std::fs::{File, remove_file};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use pagepool_vhost_back_end::HEADER;
use vhost::vhost_user::message::{VhostUserHeaderFlag, VhostUserProtocolFeatures};
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use virtio_bindings::virtio_ring::{VIRTIO_RING_F_EVENT_IDX, VRING_DESC_F_WRITE, VRING_USED_F_NO_NOTIFY};
use vm_memory::{Bytes, FileOffset, GuestAddress, GuestMemoryBackend, GuestMemoryMmap};
use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};
use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};

/// Longer than anything takes that comes at all.
pub const LIMIT: Duration = Duration::from_secs(60);
/// Entries of a queue.
pub const SIZE: u16 = 32;
/// Bytes of a queue's descriptors, available ring and used ring, each.
const PART: u64 = 4096;
/// Bytes between two buffers.
const STRIDE: u64 = 4096;
const QUEUE: u64 = 3 * PART + SIZE as u64 * STRIDE;
const PROTOCOL_FEATURES: u64 = 1 << 30;
const VERSION_1: u64 = 1 << 32;

/// The driver's half of a queue.
struct Queue {
    base: u64,
    available: u16,
    used: u16,
    kick: EventFd,
    call: EventFd,
    free: Vec<u16>,
}

/// A front end that is connected, all queues enabled.
pub struct FrontEnd {
    messages: Frontend,
    memory: GuestMemoryMmap<()>,
    queues: Vec<Queue>,
    event_idx: bool,
    /// Bytes of each receive buffer, with the header of the first.
    buffer: u32,
    /// Kicks that the back end asked for.
    pub kicks: u64,
}

fn memory(folder: &Path, queues: usize) -> GuestMemoryMmap<()> {
    let path = folder.join("memory");
    let len = QUEUE * queues as u64;
    let file = File::options().read(true).write(true).create_new(true).open(&path).expect("a new file");
    remove_file(path).expect("it is there");
    file.set_len(len).expect("room for it");
    let range = (GuestAddress(0), len as usize, Some(FileOffset::new(file, 0)));
    GuestMemoryMmap::from_ranges_with_files([range]).expect("it can be mapped")
}

impl FrontEnd {
    /// Negotiates these features, and posts receive buffers of that many bytes.
    pub fn over(mut messages: Frontend, folder: &Path, pairs: usize, features: u64, buffer: u32) -> Self {
        messages.set_owner().expect("nobody else owns it");
        let offered = messages.get_features().expect("features");
        let features = features | PROTOCOL_FEATURES | VERSION_1;
        assert_eq!(offered & features, features, "{offered:#x} is offered, {features:#x} is wanted");
        let protocol = messages.get_protocol_features().expect("protocol features");
        let wanted = VhostUserProtocolFeatures::MQ | VhostUserProtocolFeatures::REPLY_ACK;
        assert!(protocol.contains(wanted), "{protocol:?}");
        messages.set_protocol_features(wanted).expect("they are offered");
        messages.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
        messages.set_features(features).expect("they are offered");
        assert!(messages.get_queue_num().expect("MQ is on") >= 2 * pairs as u64);
        let memory = memory(folder, 2 * pairs);
        let region = memory.iter().next().expect("there is one");
        let region = VhostUserMemoryRegionInfo::from_guest_region(region).expect("it has a file");
        messages.set_mem_table(&[region]).expect("it can be mapped");
        let event_idx = features & 1 << VIRTIO_RING_F_EVENT_IDX != 0;
        let mut this = Self { messages, memory, queues: Vec::new(), event_idx, buffer, kicks: 0 };
        (0..2 * pairs).for_each(|queue| this.add_queue(queue, region.userspace_addr));
        (0..2 * pairs).for_each(|queue| this.messages.set_vring_enable(queue, true).expect("it is set up"));
        (0..pairs).for_each(|pair| this.post(pair));
        this
    }

    fn add_queue(&mut self, number: usize, memory_at: u64) {
        let event = || EventFd::new(EFD_NONBLOCK | EFD_CLOEXEC).expect("an event descriptor");
        let (base, kick, call) = (QUEUE * number as u64, event(), event());
        let at = |part: u64| memory_at + base + part * PART;
        let config = VringConfigData {
            queue_max_size: SIZE,
            queue_size: SIZE,
            flags: 0,
            desc_table_addr: at(0),
            avail_ring_addr: at(1),
            used_ring_addr: at(2),
            log_addr: None,
        };
        self.messages.set_vring_num(number, SIZE).expect("few entries");
        self.messages.set_vring_base(number, 0).expect("a new queue");
        self.messages.set_vring_addr(number, &config).expect("addresses in the memory");
        self.messages.set_vring_call(number, &call).expect("a descriptor");
        self.messages.set_vring_kick(number, &kick).expect("a descriptor");
        self.queues.push(Queue { base, available: 0, used: 0, kick, call, free: (0..SIZE).collect() });
    }

    fn read(&self, at: u64) -> u16 {
        self.memory.load(GuestAddress(at), Ordering::Acquire).expect("it is in the memory")
    }

    fn write(&self, at: u64, value: u16) {
        self.memory.store(value, GuestAddress(at), Ordering::Release).expect("it is in the memory");
    }

    fn buffer_at(&self, queue: usize, id: u16) -> GuestAddress {
        GuestAddress(self.queues[queue].base + 3 * PART + u64::from(id) * STRIDE)
    }

    /// Makes a free buffer available, and kicks if the back end asks for that.
    fn offer(&mut self, queue: usize, len: u32, flags: u32) {
        let id = self.queues[queue].free.pop().expect("a free entry");
        let (base, old) = (self.queues[queue].base, self.queues[queue].available);
        let entry = self.buffer_at(queue, id).0.to_le_bytes().into_iter().chain(len.to_le_bytes());
        let entry: Vec<u8> = entry.chain(flags.to_le_bytes()).collect();
        self.memory.write_slice(&entry, GuestAddress(base + 16 * u64::from(id))).expect("in the memory");
        self.write(base + PART + 4 + 2 * u64::from(old % SIZE), id);
        self.write(base + PART + 2, old.wrapping_add(1));
        self.queues[queue].available = old.wrapping_add(1);
        fence(Ordering::SeqCst);
        let asked = if self.event_idx {
            self.read(base + 2 * PART + 4 + 8 * u64::from(SIZE)) == old
        } else {
            u32::from(self.read(base + 2 * PART)) & VRING_USED_F_NO_NOTIFY == 0
        };
        if asked {
            self.kicks += 1;
            self.queues[queue].kick.write(1).expect("the counter is small");
        }
    }

    /// The next used entry, whose buffer is free from now on.
    fn take_used(&mut self, queue: usize) -> Option<(u16, usize)> {
        let (base, used) = (self.queues[queue].base + 2 * PART, self.queues[queue].used);
        if self.read(base + 2) == used {
            return None;
        }
        let at = base + 4 + 8 * u64::from(used % SIZE);
        let (id, len) = (self.read(at), self.read(at + 4));
        self.queues[queue].used = used.wrapping_add(1);
        assert!(!self.queues[queue].free.contains(&id) && id < SIZE, "entry {id} comes back once");
        self.queues[queue].free.push(id);
        Some((id, len.into()))
    }

    /// Gives all free receive buffers to the back end.
    fn post(&mut self, pair: usize) {
        while !self.queues[2 * pair].free.is_empty() {
            self.offer(2 * pair, self.buffer, VRING_DESC_F_WRITE);
        }
    }

    /// Sends a packet; false if the queue is full.
    pub fn send(&mut self, pair: usize, packet: &[u8]) -> bool {
        let queue = 2 * pair + 1;
        while self.take_used(queue).is_some() {}
        let Some(&id) = self.queues[queue].free.last() else { return false };
        let bytes = [&[0; HEADER], packet].concat();
        self.memory.write_slice(&bytes, self.buffer_at(queue, id)).expect("it is short");
        self.offer(queue, bytes.len() as u32, 0);
        true
    }

    /// Receives a packet, and posts its buffers again.
    pub fn receive(&mut self, pair: usize) -> Option<Vec<u8>> {
        let (mut bytes, mut parts, mut done) = (Vec::new(), 1, 0);
        while done < parts {
            let entry = self.take_used(2 * pair);
            assert!(entry.is_some() || done == 0, "{done} of {parts} buffers of a packet");
            let (id, len) = entry?;
            let mut part = vec![0; len];
            self.memory.read_slice(&mut part, self.buffer_at(2 * pair, id)).expect("in the memory");
            if done == 0 {
                assert_eq!(part[..10], [0; 10], "no offload was negotiated");
                parts = u16::from_le_bytes([part[10], part[11]]);
            }
            bytes.append(&mut part);
            done += 1;
        }
        self.post(pair);
        Some(bytes.split_off(HEADER))
    }

    /// Sleeps until the back end notifies: for received packets, and for sent ones if the queue is full.
    pub fn sleep(&mut self, pair: usize) {
        let epoll = Epoll::new().expect("an epoll");
        for queue in [2 * pair, 2 * pair + 1] {
            let Queue { base, used, call, .. } = &self.queues[queue];
            let event = EpollEvent::new(EventSet::IN, 0);
            epoll.ctl(ControlOperation::Add, call.as_raw_fd(), event).expect("a descriptor");
            let _ = call.read(); // fails if there was no notification
            self.write(base + PART + 4 + 2 * u64::from(SIZE), *used);
        }
        fence(Ordering::SeqCst);
        let came = |queue: &Queue| self.read(queue.base + 2 * PART + 2) != queue.used;
        if !self.queues[2 * pair..2 * pair + 2].iter().any(came) {
            let events = epoll.wait(LIMIT.as_millis() as i32, &mut [EpollEvent::default()]);
            assert_eq!(events.expect("it is no signal"), 1, "no notification came");
        }
    }

    /// Waits for a packet.
    pub fn wait(&mut self, pair: usize) -> Vec<u8> {
        loop {
            match self.receive(pair) {
                Some(packet) => return packet,
                None => self.sleep(pair),
            }
        }
    }

    /// Sends these packets and receives as many.
    pub fn echo(&mut self, pair: usize, packets: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let (mut sent, mut received, start) = (0, Vec::new(), Instant::now());
        while received.len() < packets.len() {
            assert!(start.elapsed() < LIMIT, "{} of {} came back", received.len(), packets.len());
            let before = (sent, received.len());
            while sent < packets.len() && self.send(pair, &packets[sent]) {
                sent += 1;
            }
            received.extend(std::iter::from_fn(|| self.receive(pair)));
            if (sent, received.len()) == before {
                self.sleep(pair);
            }
        }
        received
    }

    /// Stops all queues, and leaves.
    pub fn close(self) {
        for queue in 0..self.queues.len() {
            let base = self.messages.get_vring_base(queue).expect("the back end answers");
            assert!(base as u16 <= self.queues[queue].available, "{base} of queue {queue}");
        }
    }
}
