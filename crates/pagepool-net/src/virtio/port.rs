//! What the queue pairs of one back end share: the connection, its memory, and the features.
//!
//! Who    each pair's thread. A lock guards the connection; each call reads only its number, an atomic.
//! Loss   the pair that notices the loss asks a back end that still lives to stop, closes the connection, and
//!        sets the number to 0. Each pair then takes back its buffers on its own thread, or leaks them if the
//!        back end did not answer. One pair reconnects, and each restarts its queues.
//! Cost   a call: one load. Nothing is shared that a packet changes.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use pagepool::{Arena, Error, Provider};

use super::back_end::{BackEnd, QueueSetup, SharedRegion, Wanted};
use super::sys::RingMemory;

/// The first and the longest pause between attempts to connect. It doubles while the back end accepts and then
/// fails: such an attempt may block for a second.
pub(super) const PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(5)];

/// The memory that a back end gets.
#[derive(Debug)]
pub(crate) struct PortMemory {
    pub(crate) rings: Arc<RingMemory>,
    /// The device's address of the rings.
    pub(crate) rings_at: u64,
    /// The packets' memory, and the device's address of it.
    pub(crate) arena: Arc<Arena>,
    pub(crate) arena_at: u64,
}

#[derive(Debug)]
pub(crate) struct Port {
    /// The number of the connection; 0 while there is none.
    connection: AtomicU32,
    state: Mutex<State>,
    pub(super) memory: PortMemory,
}

#[derive(Debug)]
struct State {
    back_end: Box<dyn BackEnd>,
    wanted: Wanted,
    features: u64,
    /// Connections ever made.
    connections: u32,
    /// When the last attempt began, when the next may, and the pause between them.
    began: Instant,
    next_try: Instant,
    pause: Duration,
    /// Pairs that run over the connection.
    started: Vec<u16>,
    /// Lost connections whose back end still lives and did not stop: it may access buffers.
    stuck: Vec<u32>,
}

/// A connection, and the features that both sides have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Connected {
    pub(super) number: u32,
    pub(super) features: u64,
}

impl Port {
    /// A port that is not connected.
    pub(crate) fn new(back_end: Box<dyn BackEnd>, wanted: Wanted, memory: PortMemory) -> Arc<Self> {
        let (now, pause) = (Instant::now(), PAUSES[0]);
        let state = State {
            back_end,
            wanted,
            features: 0,
            connections: 0,
            began: now,
            next_try: now,
            pause,
            started: Vec::new(),
            stuck: Vec::new(),
        };
        Arc::new(Self { connection: AtomicU32::new(0), state: Mutex::new(state), memory })
    }

    /// The number of the connection; 0 while there is none.
    #[inline(always)]
    pub(super) fn connection(&self) -> u32 {
        self.connection.load(Ordering::Relaxed) // the lock orders what belongs to it
    }

    /// The connection, made if there is none. An error says why it cannot be made now.
    pub(super) fn connect(&self) -> Result<Connected, Error> {
        self.connected(&mut self.lock())
    }

    /// The connection. Tries to make it, at most once in each pause. `None` without waiting if another pair
    /// does that.
    pub(super) fn reconnect(&self) -> Option<Connected> {
        let mut state = match self.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(state)) => state.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        if self.connection() == 0 && Instant::now() < state.next_try {
            return None;
        }
        self.connected(&mut state).ok()
    }

    fn connected(&self, state: &mut State) -> Result<Connected, Error> {
        if self.connection() == 0 {
            state.began = Instant::now();
            let done = state.back_end.connect(state.wanted, &self.memory.regions());
            state.tried(done.is_ok());
            state.features = done?;
            state.connections = state.connections.wrapping_add(1).max(1);
            self.connection.store(state.connections, Ordering::Relaxed);
        }
        Ok(Connected { number: self.connection(), features: state.features })
    }

    /// Starts a pair of queues, whose rings are empty, over this connection.
    pub(super) fn start(&self, pair: u16, number: u32, queues: [QueueSetup<'_>; 2]) -> Result<(), Error> {
        let mut state = self.lock();
        if self.connection() != number {
            return Err(Error::Busy { what: format!("{} closed the connection", state.back_end.name()) });
        }
        state.started.push(pair); // even if it starts in part
        let done = state.back_end.start(pair, queues);
        if done.is_err() {
            self.lose(&mut state);
            state.tried(false);
        }
        done
    }

    /// Closes this connection, whose back end has exited or breaks the rules.
    pub(super) fn lost(&self, number: u32) {
        let mut state = self.lock();
        if self.connection() == number {
            self.lose(&mut state);
        }
    }

    /// Looks whether the back end of this connection is still there, unless another pair does.
    pub(super) fn look(&self, number: u32) {
        if let Ok(mut state) = self.state.try_lock()
            && self.connection() == number
            && state.back_end.is_gone()
        {
            self.lose(&mut state);
        }
    }

    /// Closes the connection. A back end that still lives is asked to stop first.
    fn lose(&self, state: &mut State) {
        let State { back_end, started, stuck, .. } = state;
        let stopped = back_end.is_gone() || started.iter().all(|&pair| back_end.stop(pair));
        if !stopped {
            stuck.push(self.connection());
        }
        started.clear();
        back_end.disconnect();
        self.connection.store(0, Ordering::Relaxed);
    }

    /// Whether the back end of a lost connection may still access buffers.
    pub(super) fn is_stuck(&self, number: u32) -> bool {
        self.lock().stuck.contains(&number)
    }

    /// Stops a pair, which ends. False if the back end may still access its buffers.
    pub(super) fn stop(&self, pair: u16, number: u32) -> bool {
        let mut state = self.lock();
        let stopped = match self.connection() == number {
            true => state.back_end.is_gone() || state.back_end.stop(pair),
            false => !state.stuck.contains(&number),
        };
        state.started.retain(|&started| started != pair);
        state.back_end.closed(pair);
        stopped
    }

    /// Packets to a pair that the back end dropped; `None` while another pair uses it.
    pub(super) fn dropped(&self, pair: u16) -> Option<u64> {
        Some(self.state.try_lock().ok()?.back_end.dropped(pair))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Notes whether the last attempt succeeded.
    fn tried(&mut self, connected: bool) {
        let [least, most] = PAUSES;
        let blocked = self.began.elapsed() >= least;
        self.pause = if connected || !blocked { least } else { (2 * self.pause).min(most) };
        self.next_try = Instant::now() + self.pause;
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if self.connection.load(Ordering::Relaxed) != 0 {
            state.back_end.disconnect();
        }
    }
}

impl PortMemory {
    /// The memory of the rings, then that of packets: some back ends require ascending addresses.
    fn regions(&self) -> Vec<SharedRegion<'_>> {
        let rings = SharedRegion {
            device: self.rings_at,
            len: self.rings.len() as u64,
            address: self.rings.address(),
            file: Some(self.rings.file()),
        };
        let area = self.arena.area();
        let arena = area.base().map(|base| SharedRegion {
            device: self.arena_at,
            len: area.len_bytes(),
            address: base as u64,
            file: self.arena.memfd(),
        });
        [rings].into_iter().chain(arena).collect()
    }
}
