//! The sending half: writes frames, and keeps them until they are completed.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, IoSlice, Write};

use pagepool::{ETH_HEADER, MAX_FRAGS, XdpFrame, XdpFrameBulk};

use crate::device::tx_slots::{TxFit, TxLimits, TxRing, send};
use crate::device::{Calls, DeviceStats, TxQueue};
use crate::sys::errno;

#[derive(Debug)]
pub(super) struct Sender {
    sent: VecDeque<XdpFrame>,
    /// Buffers of all sent frames, and the most of them.
    held: usize,
    slots: usize,
    limits: TxLimits,
    /// Whether the kernel refused the last frame that was tried, and why not for good.
    refused: bool,
}

impl Sender {
    pub(super) fn new(slots: usize, limits: TxLimits) -> Self {
        Self { sent: VecDeque::with_capacity(slots), held: 0, slots, limits, refused: false }
    }

    /// Sends frames from the queue's front while there is room; returns how many, and whether the interface
    /// is gone.
    #[inline]
    pub(super) fn transmit(
        &mut self,
        file: &File,
        queue: &mut TxQueue,
        calls: &mut Calls,
        stats: &mut DeviceStats,
    ) -> (usize, bool) {
        self.refused = false;
        let mut sending = TapSending { sender: self, file, calls, gone: false };
        let sent = send(&mut sending, queue, stats);
        (sent, sending.gone)
    }

    #[inline]
    pub(super) fn complete(&mut self, done: &mut XdpFrameBulk, budget: usize) -> usize {
        let n = budget.min(self.sent.len());
        for frame in self.sent.drain(..n) {
            self.held -= frame.segment_count();
            done.push(frame);
        }
        n
    }

    pub(super) fn room(&self) -> usize {
        self.slots - self.held
    }

    pub(super) fn held(&self) -> usize {
        self.held
    }

    /// Whether the kernel refused a frame that is to be tried again.
    pub(super) fn was_refused(&self) -> bool {
        self.refused
    }

    /// Returns all frames; returns how many buffers they had.
    pub(super) fn clear(&mut self) -> usize {
        self.sent.clear();
        std::mem::take(&mut self.held)
    }
}

struct TapSending<'a> {
    sender: &'a mut Sender,
    file: &'a File,
    calls: &'a mut Calls,
    gone: bool,
}

impl TapSending<'_> {
    /// What to do with a frame that the kernel refused.
    #[cold]
    fn refused(&mut self, error: &io::Error) -> TxFit {
        match error.raw_os_error() {
            Some(errno::EBADFD) => self.gone = true,
            Some(errno::EIO) => self.calls.refused += 1, // the interface is down
            Some(errno::EAGAIN | errno::EINTR | errno::ENOBUFS | errno::ENOMEM) => {}
            _ => return TxFit::TooLong,
        }
        self.sender.refused = true;
        TxFit::Later
    }
}

/// A frame that can be sent is sent at once, from the memory where it is.
impl TxRing for TapSending<'_> {
    #[inline]
    fn fit(&mut self, frame: &XdpFrame) -> TxFit {
        let buffers = match self.sender.limits.buffers_of(frame) {
            Ok(_) if frame.len() < ETH_HEADER => return TxFit::TooLong,
            Ok(buffers) if buffers > self.sender.room() => return TxFit::Later,
            Ok(buffers) => buffers,
            Err(never) => return never,
        };
        let mut segments = frame.segments();
        let parts: [_; MAX_FRAGS + 1] =
            std::array::from_fn(|_| IoSlice::new(segments.next().map_or(&[], |segment| segment.data())));
        let parts = &parts[..buffers];
        if parts.iter().map(|part| part.len()).sum::<usize>() != frame.len() {
            return TxFit::Unmapped; // the CPU cannot read all of it
        }
        let mut file = self.file;
        match self.calls.make(|| file.write_vectored(parts)) {
            Ok(_) => TxFit::Now(buffers),
            Err(error) => self.refused(&error),
        }
    }

    #[inline]
    fn post(&mut self, frame: Option<XdpFrame>, buffers: usize) {
        self.sender.sent.extend(frame);
        self.sender.held += buffers;
    }
}
