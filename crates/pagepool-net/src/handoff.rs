//! Frames for a port that another thread polls.
//!
//! What   a bounded ring with one producer and one consumer: one per sending thread and port. The frame moves; its
//!        buffers stay where they are, and go home by themselves from wherever they end.
//! Cost   a slot of 48 bytes, one release store, no lock. A ring without room gives the frame back.

use pagepool::{Error, Frame};
use rtrb::{Consumer, Producer, PushError, RingBuffer};

/// Most frames that a handoff holds.
const MOST: usize = 1 << 16;

/// A way for at most `frames` frames at a time to a port on another thread.
///
/// ```
/// let (outlet, inlet) = pagepool_net::handoff(512)?; // the outlet to the one thread, the inlet to the other
/// let refused = pagepool_net::handoff(0).unwrap_err();
/// assert_eq!(refused.to_string(), "frames is 0, but must be 1 to 65536");
/// # drop((outlet, inlet));
/// # Ok::<(), pagepool::Error>(())
/// ```
pub fn handoff(frames: usize) -> Result<(Outlet, Inlet), Error> {
    if !(1..=MOST).contains(&frames) {
        let must_be = format!("1 to {MOST}");
        return Err(Error::Parameter { field: "frames", value: frames.to_string(), must_be });
    }
    let (producer, consumer) = RingBuffer::new(frames);
    Ok((Outlet(producer), Inlet(consumer)))
}

/// The end that frames are put into: a remote port of the forwarder that it is given to.
#[derive(Debug)]
pub struct Outlet(Producer<Frame>);

impl Outlet {
    /// Hands a frame over, or gives it back: there is no room, or nobody at the other end any more.
    #[inline]
    pub(crate) fn push(&mut self, frame: Frame) -> Result<(), Frame> {
        if self.0.is_abandoned() {
            return Err(frame);
        }
        self.0.push(frame).map_err(|PushError::Full(frame)| frame)
    }
}

/// The end that frames come out of, at a port of the forwarder that it is given to.
#[derive(Debug)]
pub struct Inlet(Consumer<Frame>);

impl Inlet {
    /// The next frame.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Frame> {
        self.0.pop().ok()
    }

    /// Whether there is none now.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Drop for Inlet {
    /// What is in it goes home now. A frame that is put in meanwhile does so when the outlet goes.
    fn drop(&mut self) {
        while self.pop().is_some() {}
    }
}
