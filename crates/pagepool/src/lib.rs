//! Linux's `page_pool` for user space: an allocator of packet buffers in pages that stay mapped for a device.
//!
//! A pool belongs to one receive queue. The thread that polls the queue owns the pool and allocates from it
//! without a lock. A buffer that is dropped, on any thread, returns to its pool and is reused.
//!
//! This crate only allocates. It serves any packet path that takes buffers by address: AF_XDP, DPDK, VFIO,
//! vhost-user, io_uring. The crate `pagepool-net` has devices (AF_XDP and in-memory) and a forwarding loop.
//! `pagepool-skb` has packets for network stacks, with clones and fragments as in Linux.
//!
//! # Example
//!
//! ```
//! use pagepool::{Arena, ArenaParams, Pool, PoolParams};
//!
//! // Memory: an arena reserves 64 MiB of addresses and commits them in regions of 4 MiB as pools grow.
//! let arena = Arena::new(ArenaParams { max_bytes: 64 << 20, ..Default::default() })?;
//! // A pool: each packet has 256 bytes of headroom and 320 of tailroom.
//! let layout = PoolParams { headroom: 256, max_len: 1514, tailroom: 320, ..Default::default() };
//! let pool = Pool::new(layout, arena)?.bind(); // this thread is the owner: it alone allocates
//!
//! let mut buffer = pool.alloc_page().expect("64 MiB are free");
//! buffer.packet_mut().expect("an arena's memory is readable")[..5].copy_from_slice(b"hello");
//!
//! // Any thread may return a buffer. Here it travels through the lane that the thread has to the pool.
//! std::thread::spawn(move || drop(buffer)).join().expect("a drop does not panic");
//! drop(pool.alloc_page()); // on the owner's thread a buffer returns into the cache
//! let stats = pool.stats();
//! assert_eq!((stats.recycle_ring, stats.recycle_cached), (1, 1));
//!
//! // The end of a pool does not wait: the last buffer to return frees it. A report lists pages that are out.
//! let reader = pool.alloc_page().expect("pages are free").into_shared();
//! let shutdown = pool.destroy();
//! assert!(shutdown.report().to_string().starts_with("stalled pool shutdown: 1 buffer held for "));
//! drop(reader);
//! assert!(shutdown.is_complete());
//! # Ok::<(), pagepool::Error>(())
//! ```
//!
//! # The parts
//!
//! | to | use |
//! |---|---|
//! | provide memory | [`Arena`]; [`DeviceMemory`] if the CPU cannot read it; [`Provider`] for your own |
//! | map it for a device | a [`DmaDomain`]: [`OffsetDomain`] (UMEM offsets), [`IdentityDomain`], your own |
//! | allocate, on the owner's thread | [`Bound`], from [`Pool::bind`]: pages, batches, fragments |
//! | hold a buffer | [`PageBuf`]; [`SharedBuf`] for many readers; [`PageRef`] |
//! | hold many | [`Batch`]: 64 pages |
//! | split a buffer | [`PageBuf::split_off`]: header and payload, several packets of one buffer |
//! | put a buffer on a descriptor ring | [`PageBuf::into_raw`], [`PoolRef::from_raw`] |
//! | find a buffer that a device names | [`DeviceTable`] |
//! | handle packets | [`XdpBuff`] inside a poll, [`XdpFrame`] beyond it, [`XdpFrameBulk`] to return many |
//! | lend a buffer to a reader that does not return it | [`Bound::defer`] with an [`InUse`]: `MSG_ZEROCOPY` |
//! | observe | [`PoolRef`] from any thread: [`Stats`], [`Inflight`]; [`Registry`] for all pools |
//! | show pools to other processes | [`publish`]. The crate `pagepool-watch` reads, judges and exports them |
//! | end a pool | [`Pool::destroy`], then [`Shutdown`] |
//!
//! # Threads
//!
//! * A [`Bound`] is neither `Send` nor `Sync`: the compiler keeps allocation on the owner's thread.
//!   [`Bound::unbind`] returns a [`Pool`], which may move to another thread and be bound there.
//! * Every handle is `Send`: [`PageBuf`], [`XdpFrame`], [`SharedBuf`] and the others return from any thread
//!   that drops them. A return on another thread takes two stores into that thread's lane. It takes a lock
//!   only if the thread has no lane or its lane is full.
//! * Signal handlers must not touch buffers. A forked child must not drop handles that were copied into it.
//!
//! # What cannot happen
//!
//! Code that returns a buffer twice, or uses it or its bytes after its return, does not compile. A raw
//! address that was never handed out, or was already returned, is refused, even in release builds. Records
//! lie beside the memory, never in it: a device can overwrite every byte of a page, but no record.
//!
//! # What it costs
//!
//! Allocating and returning a page on the owner's thread takes 20 instructions, about 1.9 ns on a Xeon at 2.1
//! GHz. In a [`Batch`] of 64 it takes 2 instructions per page. These paths do not lock, format or log,
//! and only a thread's first return allocates. [`prepare_thread`] registers its exit hook earlier.
//!
//! # Features
//!
//! * `bytes`: buffers, frames and packets as `bytes::Bytes`, without a copy.
//! * `usdt`: at each [`PoolProbe`] a `nop` and an ELF note, for bpftrace, perf, gdb and SystemTap.
//! * `tracing`: at each [`PoolProbe`] an event of the crate `tracing`, with the target `pagepool`.
//!
//! To test your own providers and domains, `pagepool-testing` has a conformance suite and an IOMMU that
//! checks every access.
//!
//! Requires only Linux. Huge pages, NUMA and `membarrier` are used if available.
#![cfg_attr(loom, allow(dead_code))]

/// Documents whose examples are tests of this crate. Those of README are tests of `pagepool-net`.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../../../docs/porting.md")]
    struct Porting;
}

mod buf;
mod core;
mod error;
mod holders;
#[doc(hidden)]
pub mod internal;
mod mem;
mod packet;
mod pool;
mod probes;
mod publication;
#[doc(hidden)]
pub mod published;
mod recycle;
mod remedy;
mod returns;
mod shown;
mod stats;
mod sys;

pub use buf::batch::Batch;
pub use buf::bulk::{put_bulk, put_ring_bulk};
pub use buf::page_buf::PageBuf;
pub use buf::page_ref::PageRef;
pub use buf::raw_buf::{RawBuf, RawError};
pub use buf::shared_buf::SharedBuf;
pub use buf::sink::Sink;
pub use buf::split::SplitError;
pub use core::registry::{MemId, Registry};
pub use error::Error;
pub use holders::tag::Tag;
pub use holders::view::{
    AGE_EDGES, HolderGroup, HolderView, HoldersView, MOST_GROUPS, MOST_OLDEST, ThreadView,
};
pub use mem::area::{Area, REGION_SHIFT};
pub use mem::arena::backing::{Backing, OnMissingHuge};
pub use mem::arena::params::{ArenaParams, Description, NodePolicy};
pub use mem::dma::{DeviceAddr, DmaDomain, DomainId, IdentityDomain, Mapping, OffsetDomain, Region};
pub use mem::page::{MAX_ORDER, NodeId, PAGE_SIZE, PageIdx, system_page_size};
pub use mem::provider::Provider;
pub use mem::topology::Topology;
pub use mem::*; // the providers
pub use packet::chain::{Frag, MAX_FRAGS};
pub use packet::device_table::DeviceTable;
pub use packet::xdp_buff::{AdjustError, ETH_HEADER, MAX_META, XdpBuff};
pub use packet::xdp_frame::{Segment, XdpFrame};
pub use packet::xdp_frame_bulk::{XdpFrameBulk, put_packets};
pub use pool::alloc_addr::CachedAddrs;
pub use pool::bound::Bound;
pub use pool::bound::waiting::Waiting;
pub use pool::deferred_queue::{DeferredUser, InUse};
#[cfg(not(loom))]
pub use pool::ffi::LanePlaces;
pub use pool::ffi::{CacheHead, LifeLane, Sent, lasting_zeroes};
pub use pool::params::{Holders, OnBusy, PoolParams};
pub use pool::pool_ref::PoolRef;
pub use pool::shutdown::{Shutdown, ShutdownReport};
pub use pool::unbound::Pool;
pub use pool::use_counts::UseCounts;
pub use probes::PoolProbe;
pub use publication::{Publication, publish, sign_of_life};
pub use recycle::guard::Guard;
pub use recycle::lives::{LifeTable, LifeWords, MayHaveRefs, NEXT_LIFE, PageLife, next_life, with_refs};
pub use recycle::no_direct_recycle::NoDirectRecycle;
pub use recycle::thread::prepare_thread;
pub use remedy::remedy;
pub use stats::{DeferredStats, Inflight, Stats};
pub use sys::call::uncancelled::uncancelled;
pub use sys::published_entry::{PublishedEntry, check_entry, publish_entry};
pub use sys::sync::{Backoff, fences_are_free, heavy_fence as fence_all_threads};
#[cfg(not(loom))]
pub use sys::thread_end::EndHook;
