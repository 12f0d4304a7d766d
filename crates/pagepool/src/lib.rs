//! A user-space page pool for packet buffers.
#![cfg_attr(loom, allow(dead_code))]

mod area;
mod arena;
mod arena_params;
mod backing;
mod buddy;
mod device_memory;
mod dma;
mod error;
mod free_pages;
mod page;
mod provider;
mod sync;
mod sys;
mod table;
#[cfg(all(any(test, feature = "testing"), not(loom)))]
pub mod testing;
mod topology;

pub use area::{Area, REGION_SHIFT};
pub use arena::Arena;
pub use arena_params::{ArenaParams, Description, NodePolicy};
pub use backing::{Backing, OnMissingHuge};
pub use device_memory::DeviceMemory;
pub use dma::{DeviceAddr, DmaDomain, DomainId, IdentityDomain, Mapping, OffsetDomain, Region};
pub use error::Error;
pub use page::{MAX_ORDER, NodeId, PAGE_SHIFT, PAGE_SIZE, PageIdx};
pub use provider::Provider;
pub use topology::Topology;
