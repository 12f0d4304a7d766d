//! A host that sends numbered packets, checks those that come back, and where each buffer is.

use std::path::Path;
use std::time::{Duration, Instant};

use pagepool::{Bound, XdpBuff, XdpFrameBulk};
use pagepool_net::{Device, DeviceExt, OpenParams, OpenedDevice, TxQueue, Wake};

use crate::{LIMIT, open};

/// The most packets that wait to be sent.
const AHEAD: usize = 32;

/// A device with its pool.
pub struct Host {
    pub device: Box<dyn Device>,
    pub pool: Bound,
    /// Packets sent, or lost with a back end.
    pub sent: usize,
    /// Packets that came back.
    pub received: usize,
    /// The number that the next one has at least.
    next: usize,
    /// Packets that the test keeps.
    pub kept: Vec<XdpBuff>,
    /// How many of them it is to keep.
    pub keep: usize,
    lengths: (usize, usize),
    queue: TxQueue,
    done: XdpFrameBulk,
    packets: Vec<XdpBuff>,
}

/// The byte of a packet at this place. The first 8 say the number.
fn byte(number: usize, at: usize) -> u8 {
    if at < 8 { number.to_be_bytes()[at] } else { (number * 31 + at * 7) as u8 }
}

fn number_of(packet: &XdpBuff) -> usize {
    usize::from_be_bytes(packet.data()[..8].try_into().expect("8 bytes"))
}

impl Host {
    /// Over this queue pair. Its packets are 60 to 1500 bytes long.
    pub fn new(opened: OpenedDevice) -> Self {
        Self {
            device: opened.device,
            pool: opened.pool.bind(),
            sent: 0,
            received: 0,
            next: 0,
            kept: Vec::new(),
            keep: 0,
            lengths: (60, 1500),
            queue: TxQueue::new(),
            done: XdpFrameBulk::new(),
            packets: Vec::with_capacity(64),
        }
    }

    /// Over the first queue pair of this socket.
    pub fn open(socket: &Path, words: &str, params: &OpenParams) -> Self {
        Self::new(open(socket, words, &[0], params).remove(0))
    }

    /// With packets of up to so many bytes, if the device can have them.
    pub fn with_packets_up_to(mut self, len: usize) -> Self {
        let can = self.device.info();
        let buffers = can.max_buffers * self.pool.alloc_page().expect("a free page").packet_capacity();
        self.lengths.1 = len.min(can.max_packet).min(buffers);
        self
    }

    /// The length of the packet with this number.
    fn len_of(&self, number: usize) -> usize {
        self.lengths.0 + number * 37 % (self.lengths.1 - self.lengths.0 + 1)
    }

    fn packet(&self, number: usize) -> Option<XdpBuff> {
        let mut packet = self.pool.packet(self.len_of(number))?;
        let mut at = 0..;
        let mut fill =
            |part: &mut [u8]| part.iter_mut().zip(&mut at).for_each(|(to, at)| *to = byte(number, at));
        fill(packet.data_mut());
        packet.frags_mut().iter_mut().for_each(|frag| fill(frag.data_mut()));
        Some(packet)
    }

    /// Every byte is as it was sent, and no packet comes twice or too late.
    fn check(&mut self, packet: &XdpBuff) {
        let number = number_of(packet);
        assert!((self.next..self.sent).contains(&number), "{number}: {} to {}", self.next, self.sent);
        assert_eq!(packet.len(), self.len_of(number), "the length of packet {number}");
        let bytes = packet.data().iter().chain(packet.frags().iter().flat_map(|frag| frag.data()));
        assert!(bytes.copied().eq((0..packet.len()).map(|at| byte(number, at))), "packet {number}");
        self.next = number + 1;
        self.received += 1;
    }

    /// One round, in which packets below this number are sent; returns whether something moved.
    pub fn round(&mut self, below: usize) -> bool {
        let mut moved = self.device.complete(&mut self.done, usize::MAX);
        self.done.flush();
        let mut packets = std::mem::take(&mut self.packets);
        moved += self.device.receive(&self.pool, &mut packets, 64);
        for packet in packets.drain(..) {
            self.check(&packet);
            if self.kept.len() < self.keep {
                self.kept.push(packet);
            }
        }
        self.packets = packets;
        while self.queue.len() < AHEAD && self.sent < below {
            let Some(packet) = self.packet(self.sent) else { break };
            self.queue.push(packet);
            self.sent += 1;
        }
        moved += self.device.transmit(&mut self.queue);
        self.adds_up();
        moved > 0
    }

    /// Each buffer that is out is on a ring, waits to be sent, or is kept.
    pub fn adds_up(&self) {
        let stats = self.device.stats();
        let kept: usize = self.kept.iter().map(|packet| 1 + packet.frags().len()).sum();
        let held = (self.queue.buffers() + kept) as u64;
        let out = self.pool.inflight().out;
        assert_eq!(out, stats.in_rx + stats.in_tx + held, "{held} buffers are held: {stats:?}");
    }

    /// Rounds in which packets below this number are sent, until it is so. Sleeps in between.
    pub fn run_until(&mut self, below: usize, is_so: impl Fn(&Self) -> bool) {
        let start = Instant::now();
        while !is_so(self) {
            assert!(start.elapsed() < LIMIT, "{} of {}: {:?}", self.received, self.sent, self.device.stats());
            if !self.round(below) {
                let woken = self.device.wait(&self.pool, Duration::from_millis(100));
                assert_ne!(woken, Wake::Gone, "a front end waits for another back end");
            }
        }
    }

    /// Runs until so many more packets came back.
    pub fn exchange(&mut self, more: usize) {
        let goal = self.received + more;
        self.run_until(usize::MAX, |host| host.received >= goal);
    }

    /// Closes the device: nothing is missing.
    pub fn end(mut self) {
        self.device.close();
        self.queue.clear();
        self.kept.clear();
        let stats = self.device.stats();
        assert_eq!((stats.in_rx, stats.in_tx, self.pool.inflight().out), (0, 0, 0), "{stats:?}");
        let errors = [stats.rx_bad_length, stats.rx_bad_descriptor, stats.tx_bad_descriptor, stats.faults];
        assert_eq!(errors, [0; 4], "{stats:?}");
        drop(self.device);
        assert!(self.pool.destroy().is_complete(), "all memory has returned");
    }
}
