//! Requests of sent packets: those that the socket serves, and the times in answer.
//!
//! Who    the thread that polls the device.
//! Bound  as many times as the transmit ring has slots; the oldest are lost first, and counted. No
//!        allocation.
//! Trust  none: what the kernel and the driver write is only a number for the caller.
//! I4     in copy mode the kernel writes a time when it frees the packet, which a queue below the interface
//!        may hold long after the close. So frames that request one are counted, and none returns before its
//!        completion.

use std::collections::VecDeque;

use pagepool::{Error, XdpFrame};
use pagepool_link::XdpFeatures;

use super::{TxFeatures, TxMetadataMode, TxTimestamp};
use crate::device::tx_metadata::Requested;
use crate::device::tx_slots::TxFit;
use crate::error::parameter;
use crate::interface::lookup::{self, DriverOf};
use crate::xsk::sys::socket::WITH_METADATA;

#[derive(Debug)]
pub(in crate::xsk) struct Requests {
    features: TxFeatures,
    served: u64,
    times: VecDeque<TxTimestamp>,
    most: usize,
    lost: u64,
    /// Frames on the ring that request a time and are not completed.
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

    /// The options of the first descriptor, if the socket serves the request. Otherwise the kernel would
    /// ignore it, or refuse the descriptor and stall the ring behind it.
    #[inline]
    pub(in crate::xsk) fn option(&self, frame: &XdpFrame) -> Result<u32, TxFit> {
        let Some(requested) = Requested::read(frame.meta()) else { return Ok(0) };
        match requested.flags() {
            0 => Ok(0),
            flags if flags & !self.served == 0 && requested.fits(frame.data().len()) => Ok(WITH_METADATA),
            _ => Err(TxFit::BadMetadata),
        }
    }

    pub(in crate::xsk) fn awaited(&self) -> usize {
        self.awaited
    }

    /// Counts a frame on the ring.
    #[inline]
    pub(in crate::xsk) fn sent(&mut self, frame: &XdpFrame) {
        self.awaited += usize::from(Requested::read(frame.meta()).is_some_and(Requested::wants_time));
    }

    /// Stores the time of a completed frame.
    #[inline]
    pub(in crate::xsk) fn completed(&mut self, frame: &XdpFrame) {
        let Some(requested) = Requested::read(frame.meta()).filter(|requested| requested.wants_time()) else {
            return;
        };
        self.awaited = self.awaited.saturating_sub(1);
        let Some((number, at)) = requested.timestamp() else { return };
        if self.times.len() == self.most {
            self.times.pop_front();
            self.lost += 1;
        }
        self.times.push_back(TxTimestamp { number, at });
    }

    /// Moves the times into the vector. Returns how many were lost since the last call.
    pub(in crate::xsk) fn take(&mut self, into: &mut Vec<TxTimestamp>) -> u64 {
        into.extend(self.times.drain(..));
        std::mem::take(&mut self.lost)
    }
}

/// Takes packets of copy mode in fragments; before this kernel, without their metadata
/// (xsk_build_skb_zerocopy, v6.18). The kernel computes no checksums of such packets: a request for one would
/// drop the packet, or block the ring.
const TAKES_FRAGMENTS: (&str, (u32, u32)) = ("virtio_net", (6, 18));

/// The requests that an interface serves.
pub(in crate::xsk) fn features_of(
    index: u32,
    mode: TxMetadataMode,
    zero_copy: bool,
) -> Result<TxFeatures, Error> {
    // The kernel may not report them.
    let bits = XdpFeatures::query(index).map_or(0, |features| features.sending);
    // Linux: enum netdev_xsk_flags
    let of_driver =
        TxFeatures { timestamp: bits & 1 != 0, checksum: bits & 2 != 0, launch_time: bits & 4 != 0 };
    if zero_copy {
        return Ok(of_driver);
    }
    let driver = lookup::driver_of(index);
    features_of_copies(of_driver, &driver, mode, || lookup::computes_checksums(index))
}

fn features_of_copies(
    of_driver: TxFeatures,
    driver: &DriverOf,
    mode: TxMetadataMode,
    computes_checksums: impl FnOnce() -> bool,
) -> Result<TxFeatures, Error> {
    let whole = TxFeatures { checksum: true, timestamp: true, ..of_driver };
    if driver.name != TAKES_FRAGMENTS.0 {
        return Ok(whole);
    }
    if driver.kernel < TAKES_FRAGMENTS.1 {
        return Ok(TxFeatures::default());
    }
    if mode == TxMetadataMode::SoftwareChecksum {
        let must_be = format!(
            "On with {}: it receives packets in fragments, and the kernel computes no checksums of those",
            driver.name
        );
        return Err(parameter("tx_metadata", "SoftwareChecksum", must_be));
    }
    Ok(TxFeatures { checksum: computes_checksums(), ..whole })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_with_fragments_has_only_checksums_it_computes() {
        let has = |name: &str, kernel, mode, computes| {
            let driver = DriverOf { name: name.into(), queues: 1, kernel };
            features_of_copies(TxFeatures::default(), &driver, mode, || computes)
                .map(|features| (features.checksum, features.timestamp))
        };
        use TxMetadataMode::{On, SoftwareChecksum};
        for mode in [On, SoftwareChecksum] {
            assert_eq!(has("veth", (6, 18), mode, false).unwrap(), (true, true));
            assert_eq!(has("virtio_net", (6, 12), mode, true).unwrap(), (false, false));
        }
        assert_eq!(has("virtio_net", (6, 18), On, true).unwrap(), (true, true));
        assert_eq!(has("virtio_net", (7, 3), On, false).unwrap(), (false, true));
        let refused = has("virtio_net", (6, 18), SoftwareChecksum, true).unwrap_err().to_string();
        assert!(refused.contains("must be On with virtio_net"), "{refused}");
    }
}
