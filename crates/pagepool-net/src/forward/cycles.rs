//! Where the time of a forwarder goes, by part of its loop.
//!
//! How    one time stamp at each border of two parts, which ends the one and begins the other. The time of a
//!        device's system calls, as it reports, is subtracted from the part that made them. A part that moved
//!        nothing is idling. Only the device that the loop asked for packets is asked for its calls.
//! Sample of the rounds in which packets move one in about so many is measured whole, at distances that vary,
//!        so that nothing which repeats is met always or never. From when one is due, idle rounds are
//!        measured, too. All figures are of measured rounds, so their ratios hold.
//! Cost   off, and in rounds that are not measured: a predicted branch at each border. In others: a stamp and
//!        a question to the device at each border: some 4 cycles a packet in full bursts of 64, which are in
//!        the figures.

use super::port::Port;
use crate::device::Calls;
use crate::device::counters::counters;
use crate::sys::clock::ticks;

counters! {
    /// Where the time of a forwarder went: ticks, as [`ticks`](crate::ticks) counts them, by part of its
    /// loop, and what they are to be divided by.
    PartCycles:
    /// Receiving bursts that brought packets: the device's ring, its tables, its new buffers from the pool.
    receive_ticks,
    /// The handler on those packets, and what became of each: dropped, queued, copied for another device.
    handler_ticks,
    /// Giving frames to devices, taking back those that were sent, and taking over those of other threads.
    transmit_ticks,
    /// Returning buffers that ended or were sent.
    return_ticks,
    /// System calls that devices made meanwhile: in none of the parts above.
    call_ticks,
    /// Parts that found nothing to do.
    idle_ticks,
    /// Bursts that brought packets.
    rx_bursts,
    /// Packets of them.
    rx_packets,
    /// Frames that devices took to be sent.
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
    /// One round in about so many is measured; 0: none.
    every: u32,
    /// Rounds in which packets move until the next one that is.
    left: u32,
    /// Where the distances come from.
    random: u32,
    /// Whether this round is measured.
    on: bool,
    /// When the last part ended.
    mark: u64,
    pub(super) cycles: PartCycles,
}

impl Meter {
    /// Measures one round in about so many, from the next on; 0: none.
    pub(super) fn sample(&mut self, every: u32) {
        (self.every, self.left, self.random, self.on) = (every, 0, 0x9E37_79B9, false);
    }

    /// A round begins. The devices' calls since the last one that was measured count in no part.
    #[inline(always)]
    pub(super) fn start(&mut self, ports: &mut [Port], asked: &[usize]) {
        if self.every > 0 {
            self.choose(ports, asked);
        }
    }

    fn choose(&mut self, ports: &mut [Port], asked: &[usize]) {
        self.on = self.left == 0;
        if self.on {
            for &at in asked {
                ports[at].new_calls();
            }
            self.mark = ticks();
        }
    }

    /// A round ends, in which so many packets moved.
    #[inline(always)]
    pub(super) fn end(&mut self, moved: usize) {
        if self.every > 0 && moved > 0 {
            self.left = if self.on { self.distance() } else { self.left - 1 };
        }
    }

    /// On average one less than `every`.
    fn distance(&mut self) -> u32 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 17;
        self.random ^= self.random << 5;
        self.random % (2 * self.every - 1)
    }

    /// Whether this round is measured.
    #[inline(always)]
    pub(super) fn is_on(&self) -> bool {
        self.on
    }

    /// A part ends, in which `moved` packets moved and no device was asked.
    #[inline(always)]
    pub(super) fn lap(&mut self, part: LoopPart, moved: usize) {
        if self.on {
            self.note(part, moved as u64, Calls::default);
        }
    }

    /// The same for a part that asked devices, which made these calls meanwhile.
    #[inline(always)]
    pub(super) fn lap_with_calls(&mut self, part: LoopPart, moved: usize, calls: impl FnOnce() -> Calls) {
        if self.on {
            self.note(part, moved as u64, calls);
        }
    }

    /// A burst brought packets.
    #[inline(always)]
    pub(super) fn received(&mut self, packets: usize) {
        if self.on {
            self.cycles.rx_bursts += 1;
            self.cycles.rx_packets += packets as u64;
        }
    }

    /// Devices took frames.
    #[inline(always)]
    pub(super) fn sent(&mut self, packets: usize) {
        if self.on {
            self.cycles.tx_packets += packets as u64;
        }
    }

    fn note(&mut self, part: LoopPart, moved: u64, calls: impl FnOnce() -> Calls) {
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
