//! Frames for a port that another thread polls.
//!
//! What   a bounded ring with one producer and one consumer: one per sending thread and port. The frame
//!        moves; its buffers stay where they are, and return by themselves from wherever they end.
//! Wake   the sender rings a [doorbell](Doorbell) once for all frames of a round, so that the other thread
//!        may sleep.
//! Cost   a slot of 48 bytes, one release store, no lock; a fence for each round. A ring without room gives
//!        the frame back.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use pagepool::{Error, XdpFrame};
use rtrb::{Consumer, Producer, PushError, RingBuffer};

use crate::device::doorbell::Doorbell;
use crate::error::within;

/// Most frames that a handoff holds.
const MOST: usize = 1 << 16;

/// A ring for at most `frames` frames to a port on another thread.
///
/// ```
/// let (outlet, inlet) = pagepool_net::handoff(512)?; // the outlet to the one thread, the inlet to the other
/// let refused = pagepool_net::handoff(0).unwrap_err();
/// assert_eq!(refused.to_string(), "frames is 0, but must be 1 to 65536");
/// # drop((outlet, inlet));
/// # Ok::<(), pagepool::Error>(())
/// ```
pub fn handoff(frames: usize) -> Result<(HandoffTx, HandoffRx), Error> {
    within("frames", frames, 1..=MOST)?;
    let (frames, into) = RingBuffer::new(frames);
    let bell = Arc::new(Doorbell::new()?);
    Ok((HandoffTx { frames, bell: bell.clone(), owes: false }, HandoffRx { frames: into, bell }))
}

/// The sending end of a [`handoff`]: a remote port of the forwarder that it is given to.
#[derive(Debug)]
pub struct HandoffTx {
    frames: Producer<XdpFrame>,
    bell: Arc<Doorbell>,
    /// Whether something was put in since it rang.
    owes: bool,
}

impl HandoffTx {
    /// Hands a frame over, or gives it back: there is no room, or nobody at the other end any more. Nobody is
    /// woken.
    #[inline]
    pub(crate) fn push(&mut self, frame: XdpFrame) -> Result<(), XdpFrame> {
        if self.frames.is_abandoned() {
            return Err(frame);
        }
        self.owes = true;
        self.frames.push(frame).map_err(|PushError::Full(frame)| frame)
    }

    /// Wakes the other end, if anything was put in since the last time.
    #[inline]
    pub(crate) fn ring(&mut self) {
        if std::mem::take(&mut self.owes) {
            self.bell.ring();
        }
    }
}

impl Drop for HandoffTx {
    /// Wakes the other end, for frames that a round handed over before its handler panicked.
    fn drop(&mut self) {
        self.ring();
    }
}

/// The receiving end of a [`handoff`], at a port of the forwarder that it is given to.
#[derive(Debug)]
pub struct HandoffRx {
    frames: Consumer<XdpFrame>,
    bell: Arc<Doorbell>,
}

impl HandoffRx {
    /// The next frame.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<XdpFrame> {
        self.frames.pop().ok()
    }

    /// Says what to sleep on until there is a frame, if there is none now. [`awake`](Self::awake) follows.
    pub(crate) fn sleep(&self) -> Option<BorrowedFd<'_>> {
        self.bell.sleep();
        self.frames.is_empty().then(|| self.bell.event())
    }

    pub(crate) fn awake(&self) {
        self.bell.awake();
    }
}

impl Drop for HandoffRx {
    /// Its frames return now. A frame that is put in meanwhile returns to its pool when the `HandoffTx` is
    /// dropped.
    fn drop(&mut self) {
        while self.pop().is_some() {}
    }
}
