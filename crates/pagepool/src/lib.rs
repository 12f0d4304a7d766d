//! A user-space page pool for packet buffers.
#![cfg_attr(loom, allow(dead_code))]

mod area;
mod buddy;
mod dma;
mod error;
mod free_pages;
mod page;
mod provider;
mod sync;
mod sys;
mod table;
mod topology;

pub use area::{Area, REGION_SHIFT};
pub use dma::{DeviceAddr, DmaDomain, DomainId, IdentityDomain, Mapping, OffsetDomain, Region};
pub use error::Error;
pub use page::{MAX_ORDER, NodeId, PAGE_SHIFT, PAGE_SIZE, PageIdx};
pub use provider::Provider;
pub use topology::Topology;
