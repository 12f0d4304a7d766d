//! The time of a forwarder, by part of its loop.
//!
//! How    one time stamp at each border of two parts ends one and begins the other. The reported time of a
//!        device's system calls is subtracted from the part that made them. A part that moved nothing counts
//!        as idle. Only devices that the loop polled are queried for their calls.
//! Sample about one in `every` of the rounds that move packets is measured whole. The distances vary, so no
//!        periodic event is always hit or missed. Once a round is due, idle rounds are measured, too. All
//!        figures are of measured rounds, so their ratios hold.
//! Cost   off, and in rounds that are not measured: a predicted branch at each border. Else a time stamp and
//!        a device query at each border: about 4 cycles per packet in full bursts of 64, included in the
//!        figures.

use super::port::Port;
use crate::device::Calls;
use crate::device::counters::counters;
use crate::sys::clock::ticks;

counters! {
    /// The time of a forwarder in [`ticks`](crate::ticks), by part of its loop, and the counts to divide it
    /// by.
    PartCycles:
    /// Receiving bursts of packets: the device's ring, its tables, its new buffers from the pool.
    receive_ticks,
    /// The handler on those packets, and carrying out its verdicts: drop, queue, copy for another device.
    handler_ticks,
    /// Giving frames to devices, taking back sent ones, and taking those of other threads.
    transmit_ticks,
    /// Returning buffers of dropped or sent packets.
    return_ticks,
    /// System calls of devices; not included in the parts above.
    call_ticks,
    /// Parts that found nothing to do.
    idle_ticks,
    /// Bursts of at least one packet.
    rx_bursts,
    /// Packets of those bursts.
    rx_packets,
    /// Frames that devices accepted to send.
    tx_packets,
    /// System calls.
    calls,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum LoopPart {
    Receive,
    Handle,
    Transmit,
    Return,
}

#[derive(Debug, Default)]
pub(super) struct Meter {
    /// About one in this many rounds is measured; 0: none.
    every: u32,
    /// Rounds that move packets before the next measured one.
    left: u32,
    /// State of the random distances.
    random: u32,
    /// Whether this round is measured.
    on: bool,
    /// The end of the last part.
    mark: u64,
    pub(super) cycles: PartCycles,
}

impl Meter {
    /// Measures about one in `every` rounds, from the next on; 0: none.
    pub(super) fn sample(&mut self, every: u32) {
        (self.every, self.left, self.random, self.on) = (every, 0, 0x9E37_79B9, false);
    }

    /// Begins a round. Calls of devices since the last measured round count in no part.
    #[inline(always)]
    pub(super) fn start(&mut self, ports: &mut [Port], polled: &[usize]) {
        if self.every > 0 {
            self.choose(ports, polled);
        }
    }

    fn choose(&mut self, ports: &mut [Port], polled: &[usize]) {
        self.on = self.left == 0;
        if self.on {
            for &at in polled {
                ports[at].new_calls();
            }
            self.mark = ticks();
        }
    }

    #[inline(always)]
    pub(super) fn end(&mut self, moved: usize) {
        if self.every > 0 && moved > 0 {
            self.left = if self.on { self.distance() } else { self.left - 1 };
        }
    }

    /// A random distance, on average one less than `every`.
    fn distance(&mut self) -> u32 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 17;
        self.random ^= self.random << 5;
        self.random % (2 * self.every - 1)
    }

    #[inline(always)]
    pub(super) fn is_on(&self) -> bool {
        self.on
    }

    /// Ends a part in which `moved` packets moved and no device was polled.
    #[inline(always)]
    pub(super) fn lap(&mut self, part: LoopPart, moved: usize) {
        self.lap_with_calls(part, moved, Calls::default);
    }

    /// Ends a part that polled devices, which made these calls.
    #[inline(always)]
    pub(super) fn lap_with_calls(&mut self, part: LoopPart, moved: usize, calls: impl FnOnce() -> Calls) {
        if self.on {
            self.record(part, moved as u64, calls);
        }
    }

    #[inline(always)]
    pub(super) fn received(&mut self, packets: usize) {
        if self.on {
            self.cycles.rx_bursts += 1;
            self.cycles.rx_packets += packets as u64;
        }
    }

    #[inline(always)]
    pub(super) fn sent(&mut self, packets: usize) {
        if self.on {
            self.cycles.tx_packets += packets as u64;
        }
    }

    fn record(&mut self, part: LoopPart, moved: u64, calls: impl FnOnce() -> Calls) {
        let now = ticks();
        let took = now.saturating_sub(self.mark); // another CPU's counter may be behind
        self.mark = now;
        let calls = calls();
        let in_calls = calls.ticks.min(took);
        let cycles = &mut self.cycles;
        cycles.calls += calls.count;
        cycles.call_ticks += in_calls;
        let ticks = match part {
            _ if moved == 0 => &mut cycles.idle_ticks,
            LoopPart::Receive => &mut cycles.receive_ticks,
            LoopPart::Handle => &mut cycles.handler_ticks,
            LoopPart::Transmit => &mut cycles.transmit_ticks,
            LoopPart::Return => &mut cycles.return_ticks,
        };
        *ticks += took - in_calls;
    }
}
