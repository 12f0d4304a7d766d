//! The packets that a device is to send, in order.
//!
//! What   frames, and behind them one burst of received packets that are not yet frames. A device that sends
//!        whole pages takes those from the burst unchanged ([`TxQueue::burst`]). In all other cases the burst
//!        becomes frames when it reaches the front ([`TxQueue::front`]).
//! Order  first in, first out.
//! Cost   to push a burst, two vectors are swapped. Nothing is allocated while the queue keeps within its
//!        capacity.

use std::collections::VecDeque;

use pagepool::{XdpBuff, XdpFrame};

/// Frames and packets that wait for a device's transmit ring, in order.
///
/// ```
/// # use pagepool::{Arena, ArenaParams, XdpBuff, Pool, PoolParams};
/// use pagepool_net::TxQueue;
/// # let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
/// # let pool = Pool::new(PoolParams::default(), arena)?.bind();
/// # let packet = |len| XdpBuff::received(pool.alloc_page().unwrap(), len).unwrap();
/// let mut queue = TxQueue::new();
/// queue.push(packet(60));
/// let mut burst = vec![packet(61), packet(62)];
/// queue.push_burst(&mut burst);
/// assert_eq!((queue.len(), burst.len()), (3, 0));
///
/// // What a device does with it:
/// assert!(queue.burst().is_none(), "a frame is before it");
/// assert_eq!(queue.pop().map(|frame| frame.len()), Some(60));
/// assert_eq!(queue.front().map(|frame| frame.len()), Some(61));
/// queue.refuse();
/// assert_eq!((queue.len(), queue.refused()), (1, 1));
/// # Ok::<(), pagepool::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct TxQueue {
    frames: VecDeque<XdpFrame>,
    /// Behind the frames.
    burst: Vec<XdpBuff>,
    refused: u64,
}

impl TxQueue {
    /// An empty queue, which allocates as it grows.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty queue that does not allocate for `len` frames and packets, of which at most `burst` are
    /// packets.
    pub fn with_capacity(len: usize, burst: usize) -> Self {
        let frames = VecDeque::with_capacity(len);
        Self { frames, burst: Vec::with_capacity(burst), refused: 0 }
    }

    /// Makes room for `len` frames and packets, of which at most `burst` are packets.
    pub fn reserve(&mut self, len: usize, burst: usize) {
        self.frames.reserve_exact(len.saturating_sub(self.frames.len()));
        self.burst.reserve_exact(burst.saturating_sub(self.burst.len()));
    }

    /// Appends a frame, or a packet as a frame.
    #[inline]
    pub fn push(&mut self, frame: impl Into<XdpFrame>) {
        self.make_frames();
        self.frames.push_back(frame.into());
    }

    /// Appends all packets, and leaves the vector empty. Swaps the two vectors, whatever their length; a
    /// burst that still waits becomes frames first.
    #[inline]
    pub fn push_burst(&mut self, packets: &mut Vec<XdpBuff>) {
        self.make_frames();
        std::mem::swap(&mut self.burst, packets);
    }

    /// The number of frames and packets that wait.
    #[inline]
    pub fn len(&self) -> usize {
        self.frames.len() + self.burst.len()
    }

    /// Whether the queue is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty() && self.burst.is_empty()
    }

    /// Frames [refused](Self::refuse) so far, by all devices.
    #[inline]
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Returns all waiting frames and packets to their pools.
    pub fn clear(&mut self) {
        self.frames.clear();
        self.burst.clear();
    }

    /// Buffers of all waiting frames and packets: one or more each.
    pub fn buffers(&self) -> usize {
        let packets = self.burst.iter().map(|packet| 1 + packet.frags().len());
        self.frames.iter().map(XdpFrame::segment_count).chain(packets).sum()
    }

    /// For devices: the packets at the front, if no frame is before them. Take packets from the front only.
    #[inline]
    pub fn burst(&mut self) -> Option<&mut Vec<XdpBuff>> {
        (self.frames.is_empty() && !self.burst.is_empty()).then_some(&mut self.burst)
    }

    /// For devices: the next frame.
    #[inline]
    pub fn front(&mut self) -> Option<&XdpFrame> {
        if self.frames.is_empty() {
            self.make_frames();
        }
        self.frames.front()
    }

    /// For devices: takes the next frame, which then belongs to the device.
    #[inline]
    pub fn pop(&mut self) -> Option<XdpFrame> {
        if self.frames.is_empty() {
            self.make_frames();
        }
        self.frames.pop_front()
    }

    /// Takes the frame that [`front`](Self::front) returned.
    #[inline(always)]
    pub(crate) fn pop_shown(&mut self) -> Option<XdpFrame> {
        self.frames.pop_front()
    }

    /// For devices: drops the next frame, which can never be sent, and counts it in
    /// [`refused`](Self::refused).
    #[inline]
    pub fn refuse(&mut self) {
        self.refused += u64::from(self.pop().is_some());
    }

    /// Turns the burst, if there is one, into frames behind the present ones.
    #[inline]
    fn make_frames(&mut self) {
        if !self.burst.is_empty() {
            self.make_frames_of_burst();
        }
    }

    /// Not inlined, to keep loops over the front short.
    #[inline(never)]
    fn make_frames_of_burst(&mut self) {
        self.frames.extend(self.burst.drain(..).map(XdpFrame::from));
    }
}

impl<F: Into<XdpFrame>> Extend<F> for TxQueue {
    #[inline]
    fn extend<I: IntoIterator<Item = F>>(&mut self, frames: I) {
        self.make_frames();
        self.frames.extend(frames.into_iter().map(Into::into));
    }
}

impl<F: Into<XdpFrame>> FromIterator<F> for TxQueue {
    fn from_iter<I: IntoIterator<Item = F>>(frames: I) -> Self {
        let mut queue = Self::new();
        queue.extend(frames);
        queue
    }
}

impl<F: Into<XdpFrame>, const N: usize> From<[F; N]> for TxQueue {
    fn from(frames: [F; N]) -> Self {
        frames.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagepool::{Arena, ArenaParams, Pool, PoolParams};

    #[test]
    fn packets_and_frames_keep_their_order() {
        let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() }).unwrap();
        let pool = Pool::new(PoolParams::default(), arena).unwrap().bind();
        let packet = |len| XdpBuff::received(pool.alloc_page().unwrap(), len).unwrap();
        let mut queue = TxQueue::with_capacity(16, 4);
        let mut burst = Vec::from([packet(60), packet(61)]);
        queue.push_burst(&mut burst);
        burst.push(packet(62));
        queue.push_burst(&mut burst); // the first burst is frames now
        assert!(queue.burst().is_none() && burst.is_empty());
        queue.push(packet(63));
        queue.extend([packet(64)]);
        burst.extend([packet(65), packet(66)]);
        queue.push_burst(&mut burst);
        assert_eq!((queue.len(), pool.inflight().out), (7, 7));
        let lens: Vec<_> = std::iter::from_fn(|| queue.pop()).take(5).map(|frame| frame.len()).collect();
        assert_eq!(lens, [60, 61, 62, 63, 64]);
        drop(queue.burst().unwrap().remove(0));
        queue.refuse();
        queue.refuse();
        assert_eq!((queue.refused(), queue.is_empty(), pool.inflight().out), (1, true, 0), "nothing is none");
    }
}
