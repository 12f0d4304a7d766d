//! Which ports a round asks, so that one busy port among many costs what it would cost alone.
//!
//! Rest   a port that moved nothing for some rounds, and has nothing to send, is left out of rounds while
//!        others are busy. It is asked again in the next sweep.
//! Sweep  a round that asks every port: the next after 32 rounds or 1,536 moves (a packet that is forwarded
//!        has three: received, sent, taken back), and every one after a round in which nothing moved or a
//!        sleep. So no packet waits longer than that for its first look, and a forwarder that has nothing to
//!        do looks everywhere.
//! Queued the ports with frames that wait for their transmit ring: a port without any is not asked to send.
//! Cost   a round: a few instructions for each port that is asked, none for one that rests.

use super::port::Port;

/// Rounds, and moves of packets, after which every port is asked.
const SWEEP_ROUNDS: u32 = 32;
const SWEEP_MOVES: usize = 1536;

#[derive(Debug, Default)]
pub(super) struct Rota {
    /// The ports that are asked, by place.
    awake: Vec<usize>,
    /// Those with frames that wait.
    queued: Vec<usize>,
    /// The last round was fruitless, or a sleep came after it.
    idle: bool,
    /// Since the last sweep.
    rounds: u32,
    /// So far.
    moves: usize,
    /// The next sweep comes when there were so many.
    sweep_at: usize,
}

impl Rota {
    /// One more port, the last. Allocates, so that no round does.
    pub(super) fn add(&mut self, port: &mut Port, at: usize) {
        for list in [&mut self.awake, &mut self.queued] {
            list.reserve((at + 1).saturating_sub(list.len()));
        }
        (port.is_awake, port.is_queued) = (true, false);
        self.awake.push(at);
    }

    /// Whether the round that begins is to ask every port.
    #[inline]
    pub(super) fn is_sweep_due(&self) -> bool {
        self.idle || self.rounds >= SWEEP_ROUNDS || self.moves >= self.sweep_at
    }

    /// Moves of packets so far.
    pub(super) fn moves(&self) -> usize {
        self.moves
    }

    /// Every port is asked from here on.
    pub(super) fn wake_all(&mut self, ports: &mut [Port]) {
        (self.rounds, self.sweep_at) = (0, self.moves.wrapping_add(SWEEP_MOVES));
        if self.awake.len() < ports.len() {
            self.awake.clear();
            self.awake.extend(0..ports.len());
            ports.iter_mut().for_each(|port| port.is_awake = true);
        }
    }

    /// A round ends, with `moved` moves: who has nothing to do rests from here on.
    #[inline]
    pub(super) fn end(&mut self, ports: &mut [Port], moved: usize) {
        self.idle = moved == 0;
        self.rounds += 1;
        self.moves = self.moves.wrapping_add(moved);
        self.awake.retain(|&at| {
            let port = &mut ports[at];
            port.is_awake = !port.rests();
            if !port.is_awake {
                port.new_calls(); // who is roused in a round that is measured made none before it
            }
            port.is_awake
        });
    }

    /// The next round asks every port.
    pub(super) fn sweep_next(&mut self) {
        self.idle = true;
    }

    /// The port that is asked as the `number`th.
    #[inline]
    pub(super) fn asked(&self, number: usize) -> Option<usize> {
        self.awake.get(number).copied()
    }

    /// The ports that are asked.
    #[inline]
    pub(super) fn all_asked(&self) -> &[usize] {
        &self.awake
    }

    /// Frames were given to a port: it is asked from here on, and also to send if they wait.
    #[inline]
    pub(super) fn rouse(&mut self, port: &mut Port, at: usize) {
        if !port.is_awake {
            port.is_awake = true;
            self.awake.push(at);
        }
        if !port.is_queued && !port.waiting().is_empty() {
            port.is_queued = true;
            self.queued.push(at);
        }
    }

    /// Has each port with frames that wait send them.
    #[inline]
    pub(super) fn send_queued(&mut self, ports: &mut [Port], mut send: impl FnMut(&mut Port)) {
        self.queued.retain(|&at| {
            let port = &mut ports[at];
            send(port);
            port.is_queued = !port.waiting().is_empty();
            port.is_queued
        });
    }
}
