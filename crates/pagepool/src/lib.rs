#![doc = include_str!("../../../README.md")]
#![cfg_attr(loom, allow(dead_code))]

mod buf;
mod error;
mod home;
mod mem;
mod packet;
mod pool;
mod sys;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use buf::batch::Batch;
pub use buf::bulk::{put_bulk, put_ring_bulk};
pub use buf::page_buf::{PageBuf, Tag};
pub use buf::page_ref::PageRef;
pub use buf::raw_buf::{RawBuf, RawError};
pub use buf::shared_buf::SharedBuf;
pub use error::Error;
pub use home::no_direct_recycle::NoDirectRecycle;
pub use home::params::{OnBusy, PoolParams};
pub use home::registry::{MemId, MemState, MemType, Registry, RegistryEntry};
pub use home::stats::{DeferredStats, Inflight, Stats};
pub use home::thread::prepare_thread;
pub use mem::area::{Area, REGION_SHIFT};
pub use mem::arena::Arena;
pub use mem::arena::backing::{Backing, OnMissingHuge};
pub use mem::arena::params::{ArenaParams, Description, NodePolicy};
pub use mem::device_memory::DeviceMemory;
pub use mem::dma::{DeviceAddr, DmaDomain, DomainId, IdentityDomain, Mapping, OffsetDomain, Region};
pub use mem::page::{MAX_ORDER, NodeId, PAGE_SHIFT, PAGE_SIZE, PageIdx};
pub use mem::provider::Provider;
pub use mem::topology::Topology;
pub use packet::chain::{Frag, MAX_FRAGS};
pub use packet::device_table::DeviceTable;
pub use packet::mem_model::MemModel;
pub use packet::memory::{Foreign, Memory, Page, SharedPage};
pub use packet::skb::{Coalesced, SkBuff, SkbCache, SkbError, SkbFrag, SkbMemory, SkbOwner};
pub use packet::xdp_buff::{AdjustError, ETH_HEADER, MAX_META, XdpBuff};
pub use packet::xdp_frame::{Segment, XdpFrame};
pub use packet::xdp_frame_bulk::{XdpFrameBulk, put_frames, put_packets};
pub use pool::bound::{Bound, Pool};
pub use pool::deferred::{DeferredUser, InUse};
pub use pool::ffi::{OwnerCache, fence_all_threads, fences_are_free};
pub use pool::pool_ref::PoolRef;
pub use pool::shutdown::{HeldPage, Shutdown, ShutdownReport};
pub use pool::use_counts::UseCounts;
