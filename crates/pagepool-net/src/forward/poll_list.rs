//! Chooses the ports of each round: a busy port among many idle ones costs no more than alone.
//!
//! Rest   a port that moved nothing for some rounds, and has nothing to send, is left out of rounds while
//!        others are busy. The next sweep polls it again.
//! Sweep  a round that polls every port: after 32 rounds, after 1,536 moves (a forwarded packet makes three:
//!        received, sent, taken back), after a round that moved nothing, and after a sleep. No packet waits
//!        longer before it is seen, and an idle forwarder polls every port.
//! Queued the ports with frames that wait for their transmit ring; only these send.
//! Cost   a round: a few instructions for each polled port, none for one that rests.

use super::port::Port;

/// Rounds, and moves of packets, after which every port is polled.
const SWEEP_ROUNDS: u32 = 32;
const SWEEP_MOVES: usize = 1536;

#[derive(Debug, Default)]
pub(super) struct PollList {
    /// The indices of the ports that are polled.
    awake: Vec<usize>,
    /// The ports with waiting frames.
    queued: Vec<usize>,
    /// The last round moved nothing, or a sleep followed it.
    idle: bool,
    /// Rounds since the last sweep.
    rounds: u32,
    /// Moves so far.
    moves: usize,
    /// The number of moves at which the next sweep is due.
    sweep_at: usize,
}

impl PollList {
    /// Adds a port, at the last index. Allocates now, so that no round does.
    pub(super) fn add(&mut self, port: &mut Port, at: usize) {
        for list in [&mut self.awake, &mut self.queued] {
            list.reserve((at + 1).saturating_sub(list.len()));
        }
        (port.is_awake, port.is_queued) = (true, false);
        self.awake.push(at);
    }

    /// Whether the next round must poll every port.
    #[inline]
    pub(super) fn is_sweep_due(&self) -> bool {
        self.idle || self.rounds >= SWEEP_ROUNDS || self.moves >= self.sweep_at
    }

    pub(super) fn moves(&self) -> usize {
        self.moves
    }

    /// Polls every port from now on.
    pub(super) fn wake_all(&mut self, ports: &mut [Port]) {
        (self.rounds, self.sweep_at) = (0, self.moves.wrapping_add(SWEEP_MOVES));
        if self.awake.len() < ports.len() {
            self.awake.clear();
            self.awake.extend(0..ports.len());
            ports.iter_mut().for_each(|port| port.is_awake = true);
        }
    }

    /// Ends a round with `moved` moves: ports with nothing to do rest from now on.
    #[inline]
    pub(super) fn end(&mut self, ports: &mut [Port], moved: usize) {
        self.idle = moved == 0;
        self.rounds += 1;
        self.moves = self.moves.wrapping_add(moved);
        self.awake.retain(|&at| {
            let port = &mut ports[at];
            port.is_awake = !port.rests();
            if !port.is_awake {
                port.new_calls(); // a port that wakes in a measured round has made no calls before it
            }
            port.is_awake
        });
    }

    pub(super) fn sweep_next(&mut self) {
        self.idle = true;
    }

    /// The port that is polled as the `number`th.
    #[inline]
    pub(super) fn polled(&self, number: usize) -> Option<usize> {
        self.awake.get(number).copied()
    }

    #[inline]
    pub(super) fn all_polled(&self) -> &[usize] {
        &self.awake
    }

    /// Frames were given to a port: it is polled from now on, and sends if frames wait.
    #[inline]
    pub(super) fn activate(&mut self, port: &mut Port, at: usize) {
        if !port.is_awake {
            port.is_awake = true;
            self.awake.push(at);
        }
        if !port.is_queued && !port.waiting.is_empty() {
            port.is_queued = true;
            self.queued.push(at);
        }
    }

    /// Lets each port with waiting frames send them.
    #[inline]
    pub(super) fn send_queued(&mut self, ports: &mut [Port], mut send: impl FnMut(&mut Port)) {
        self.queued.retain(|&at| {
            let port = &mut ports[at];
            send(port);
            port.is_queued = !port.waiting.is_empty();
            port.is_queued
        });
    }
}
