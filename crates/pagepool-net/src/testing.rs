//! For the tests and benchmarks of this repository, behind the feature `testing`.

pub use crate::vhost::in_memory::{VirtioHalf, VirtioSizes, VirtioStep, virtio_domain, virtio_in_memory};
pub use crate::virtio::device::VirtioNet;
pub use crate::xsk::{LoadedMatch, TailAdjuster, XskKernelSide, umem_in_memory, xsk_in_memory};
