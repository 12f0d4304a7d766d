//! A user-space page pool for packet buffers.
#![cfg_attr(loom, allow(dead_code))]

mod area;
mod arena;
mod arena_params;
mod backing;
mod batch;
mod buddy;
mod buf;
mod cache;
mod device_memory;
mod dma;
mod error;
mod frag;
mod free_pages;
mod hold;
mod lane;
mod page;
mod params;
mod pool;
mod provider;
mod raw;
mod ring;
mod shared;
mod shared_buf;
mod shutdown;
mod stats;
mod sync;
mod sys;
mod table;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod thread;
mod token;
mod topology;
mod wake;

pub use area::{Area, REGION_SHIFT};
pub use arena::Arena;
pub use arena_params::{ArenaParams, Description, NodePolicy};
pub use backing::{Backing, OnMissingHuge};
pub use batch::{Batch, put_bulk, put_ring_bulk};
pub use buf::{PageBuf, Tag};
pub use device_memory::DeviceMemory;
pub use dma::{DeviceAddr, DmaDomain, DomainId, IdentityDomain, Mapping, OffsetDomain, Region};
pub use error::Error;
pub use hold::PageHold;
pub use page::{MAX_ORDER, NodeId, PAGE_SHIFT, PAGE_SIZE, PageIdx};
pub use params::PoolParams;
pub use pool::{Bound, Pool, PoolRef};
pub use provider::Provider;
pub use raw::{RawBuf, RawError};
pub use shared_buf::SharedBuf;
pub use shutdown::{HeldPage, Shutdown, ShutdownReport};
pub use stats::{Inflight, Stats};
pub use thread::prepare_thread;
pub use token::{OwnerCache, OwnerParts, fence_all_threads, fences_are_free};
pub use topology::Topology;
