//! Where the time of a forwarder goes, by part of its loop.
//!
//! How    one time stamp at each border of two parts, which ends the one and begins the other. The time of a
//!        device's system calls, as it reports, is subtracted from the part that made them. A part that moved
//!        nothing is idling.
//! Cost   off: a predicted branch at each border. On: a stamp, and a question to each device, at each border:
//!        some 4 cycles a packet in full bursts of 64, which are in the figures.

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
    pub(super) on: bool,
    /// When the last part ended.
    mark: u64,
    /// What all devices said then.
    called: Calls,
    pub(super) cycles: PartCycles,
}

impl Meter {
    /// A round begins. The devices' calls since the last one count in no part.
    #[inline(always)]
    pub(super) fn start(&mut self, ports: &[Port]) {
        if self.on {
            self.called = called(ports);
            self.mark = ticks();
        }
    }

    /// A part ends, in which `moved` packets moved.
    #[inline(always)]
    pub(super) fn lap(&mut self, part: LoopPart, moved: usize, ports: &[Port]) {
        if self.on {
            self.note(part, moved as u64, ports);
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

    fn note(&mut self, part: LoopPart, moved: u64, ports: &[Port]) {
        let now = ticks();
        let mut took = now.saturating_sub(self.mark); // another CPU's counter may be behind
        self.mark = now;
        if let LoopPart::Receive | LoopPart::Transmit = part {
            took -= self.note_calls(took, ports); // the other parts make no call to a device
        }
        let cycles = &mut self.cycles;
        let ticks = match part {
            _ if moved == 0 => &mut cycles.idle_ticks,
            LoopPart::Receive => &mut cycles.receive_ticks,
            LoopPart::Handle => &mut cycles.handler_ticks,
            LoopPart::Transmit => &mut cycles.transmit_ticks,
            LoopPart::Return => &mut cycles.return_ticks,
        };
        *ticks += took;
    }

    /// Says how much of the time system calls took.
    fn note_calls(&mut self, took: u64, ports: &[Port]) -> u64 {
        let (calls, before) = (called(ports), self.called);
        if calls == before {
            return 0;
        }
        self.called = calls;
        let in_calls = calls.ticks.saturating_sub(before.ticks).min(took);
        self.cycles.calls += calls.count.saturating_sub(before.count);
        self.cycles.call_ticks += in_calls;
        in_calls
    }
}

fn called(ports: &[Port]) -> Calls {
    let calls = ports.iter().map(|port| port.device.state().calls);
    calls.fold(Calls::default(), |sum, of| Calls { count: sum.count + of.count, ticks: sum.ticks + of.ticks })
}
