//! For the tests and benchmarks of this repository, behind the feature `testing`.

pub use crate::vhost::in_memory::{
    VirtioHalf, VirtioSizes, VirtioStep, virtio_domain, virtio_in_memory, virtio_with_offloads,
};
pub use crate::virtio::device::VirtioNet;
use crate::xsk::RxMetadataReader;
pub use crate::xsk::{LoadedMatch, TailAdjuster, XskKernelSide, umem_in_memory, xsk_in_memory};

/// The reader of the headers that virtio devices receive.
pub fn virtio_rx_metadata() -> RxMetadataReader {
    RxMetadataReader::VIRTIO
}
