//! Requests of packets that are being sent: what the socket serves, and the times that came back.
//!
//! Who    the thread that polls the device.
//! Bound  as many times as the transmit ring has slots; the oldest go first, and are counted. Nothing is
//!        allocated while packets are sent.
//! Trust  none: what the kernel and the driver write is a number for the caller.
//! I4     in copy mode the kernel writes a time when it frees the packet, which a queue below the interface
//!        may hold for long after the socket was closed. So the frames that ask for one are counted, and the
//!        device gives none back before the kernel has completed it.

use std::collections::VecDeque;

use pagepool::XdpFrame;

use super::{Asked, TxFeatures, TxTimestamp};
use crate::device::tx_slots::TxFit;
use crate::xsk::sys::socket::WITH_METADATA;

#[derive(Debug)]
pub(in crate::xsk) struct Requests {
    features: TxFeatures,
    served: u64,
    times: VecDeque<TxTimestamp>,
    most: usize,
    lost: u64,
    /// Frames that were put on the ring, ask for a time, and are not completed.
    awaited: usize,
}

impl Requests {
    pub(in crate::xsk) fn new(features: TxFeatures, slots: usize) -> Self {
        let (served, times) = (features.flags(), VecDeque::with_capacity(slots));
        Self { features, served, times, most: slots, lost: 0, awaited: 0 }
    }

    pub(in crate::xsk) fn features(&self) -> TxFeatures {
        self.features
    }

    /// `options` of the first descriptor, if the socket supports the request. Otherwise the kernel ignores
    /// the request, or refuses the descriptor and stalls the ring behind it.
    #[inline]
    pub(in crate::xsk) fn option(&self, frame: &XdpFrame) -> Result<u32, TxFit> {
        let Some(asked) = Asked::read(frame.meta()) else { return Ok(0) };
        match asked.flags() {
            0 => Ok(0),
            flags if flags & !self.served == 0 && asked.fits(frame.data().len()) => Ok(WITH_METADATA),
            _ => Err(TxFit::BadMetadata),
        }
    }

    /// Frames that the kernel may write a time to.
    pub(in crate::xsk) fn awaited(&self) -> usize {
        self.awaited
    }

    /// Counts a frame that is put on the ring.
    #[inline]
    pub(in crate::xsk) fn sent(&mut self, frame: &XdpFrame) {
        self.awaited += usize::from(Asked::read(frame.meta()).is_some_and(Asked::wants_time));
    }

    /// Notes the time at which a frame left that is completed.
    #[inline]
    pub(in crate::xsk) fn note(&mut self, frame: &XdpFrame) {
        let Some(asked) = Asked::read(frame.meta()).filter(|asked| asked.wants_time()) else { return };
        self.awaited = self.awaited.saturating_sub(1);
        let Some(time) = asked.timestamp() else { return };
        if self.times.len() == self.most {
            self.times.pop_front();
            self.lost += 1;
        }
        self.times.push_back(time);
    }

    /// Moves the times into the vector; says how many were lost since the last call.
    pub(in crate::xsk) fn take(&mut self, into: &mut Vec<TxTimestamp>) -> u64 {
        into.extend(self.times.drain(..));
        std::mem::take(&mut self.lost)
    }
}
