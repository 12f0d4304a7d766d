//! The parameters of a pool, as C writes them.

// UNSAFETY: a C caller's arrays and texts are read by address.
#![expect(unsafe_code)]

use std::ffi::{c_char, c_int};
use std::sync::Arc;

use ::pagepool::{DmaDomain, OnBusy, PoolParams};

use crate::args::range::{node, out_of_range};
use crate::args::sized::{Sized0, text};
use crate::error::{CallError, CallResult};
use crate::handles::opaque::{ArenaHandle, DomainHandle};
use crate::handles::tables;
use crate::handles::token::Token;

/// The parameters of a pool. Begin with PAGEPOOL_PARAMS_INIT, or with zeroes and `size`. 0 is the default,
/// except where 0 is a value of its own (`nid`, `colour`).
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PoolParamsC {
    /// sizeof(struct pagepool_params), so that the struct can grow.
    pub size: usize,
    /// The arena that the pages come from. Required.
    pub arena: *mut ArenaHandle,
    /// Names the pool in reports and errors; copied. NULL: "pool".
    pub name: *const c_char,
    /// Size of a page: log2 of its number of 4096-byte pages, 0 to 10.
    pub order: u32,
    /// Slots in the locked ring; 0: 1024. Values above 16384 count as 16384. Linux: pool_size.
    pub ring_size: u32,
    /// Pages in the owner's cache, 1 to 1024; 0: twice `refill`.
    pub cache_size: u32,
    /// Most pages that one refill brings: 1 to 256, not more than `cache_size`; 0: as Linux 64, 16 or 4, by
    /// order.
    pub refill: u32,
    /// The memory node that pages should be on; -1: the node of the thread that refills, asked each time.
    pub nid: c_int,
    /// Fragments begin at multiples of this, a power of two from 8 to 4096; 0: 64.
    pub frag_align: u32,
    /// 1: from page to page packets begin up to 15 cache lines later, within the space that a page has left.
    /// 0: they do not.
    pub colour: u32,
    /// Threads that may have a lane at once, 1 to 64; 0: 16. With PAGEPOOL_NO_LANES other threads return
    /// through the ring.
    pub max_lanes: u32,
    /// Slots in a lane, a power of two from 2 to 16384; 0: 1024.
    pub lane_size: u32,
    /// Bytes kept free before the packet in a whole page. Linux: offset.
    pub headroom: u32,
    /// Largest packet in a whole page, in bytes; so many at most are synced for the device. 0: all that is
    /// left.
    pub max_len: u32,
    /// Bytes kept free after the packet in a whole page.
    pub tailroom: u32,
    /// Address spaces in which every page is mapped, `n_domains` of them; pagepool_buf_dma_addr is about the
    /// first. The pool keeps them, so the handles may be put at once.
    pub domains: *const *mut DomainHandle,
    /// Number of `domains`, 0 to 64.
    pub n_domains: usize,
    /// 1: sync pages for the device when they join the pool and when they return, in domains that are not
    /// coherent. Linux: PP_FLAG_DMA_SYNC_DEV.
    pub sync_for_device: u32,
    /// The owner counts as starved when fewer pages than this are left. 0: only after a failed allocation.
    pub low_water: u32,
    /// 1: make the descriptor that pagepool_wake_fd gives.
    pub wakeup: u32,
    /// 1: record who has each buffer (pagepool_buf_set_tag), for the report of a destroyed pool.
    pub tagging: u32,
    /// 1: reserve pages without a node, to measure what the node costs.
    pub node_blind: u32,
    /// Buffers that can be in the deferred queue (pagepool_defer), up to 65536; 0: there is no queue.
    pub defer_capacity: u32,
    /// What a poll does with the oldest deferred buffer if it is in use: PAGEPOOL_ON_BUSY_KEEP, _SKIP or
    /// _RELEASE.
    pub on_busy: u32,
    /// With PAGEPOOL_ON_BUSY_SKIP: buffers in use that a poll may pass over, 1 to 64.
    pub skip_ahead: u32,
}

// SAFETY: plain integers and pointers, of which zeroes are values.
unsafe impl Sized0 for PoolParamsC {}

/// Every field up to `colour`: what the first users of the struct knew.
pub(crate) const LEAST: usize = std::mem::offset_of!(PoolParamsC, max_lanes);

/// Upper bound for the chain blocks of a pool, of which every pool has 1024.
const CHAINS: usize = 1024 * 512;
/// Bytes per deferred buffer, in the queue and after its release.
const WAIT: usize = 32 + 40;

impl PoolParamsC {
    /// Bytes that a pool of these sizes allocates: lanes, ring, chains and deferred queue. A later check
    /// refuses what is out of range, by name.
    pub(crate) fn bytes(&self) -> usize {
        let lanes = if self.max_lanes == 0 { 16 } else { self.max_lanes.min(64) as usize };
        let lane_size = if self.lane_size == 0 { 1024 } else { self.lane_size.min(1 << 14) as usize };
        let waits = self.defer_capacity.min(1 << 16) as usize * WAIT;
        (lanes * lane_size + self.ring_size.min(1 << 14) as usize) * size_of::<u32>() + CHAINS + waits
    }

    /// The parameters in Rust.
    ///
    /// # Safety
    /// `name` and `domains` are NULL or readable as the fields say.
    pub(crate) unsafe fn to_rust(self) -> CallResult<PoolParams> {
        let order = u8::try_from(self.order).map_err(|_| out_of_range("order", self.order, "0 to 10"))?;
        let max_lanes = match self.max_lanes {
            0 => 16,
            PAGEPOOL_NO_LANES => 0,
            n => n as usize,
        };
        Ok(PoolParams {
            // SAFETY: the caller says that it ends with a zero byte.
            name: unsafe { text(self.name, "pool") },
            order,
            cache_size: self.cache_size as usize,
            refill: self.refill as usize,
            ring_size: self.ring_size as usize,
            max_lanes,
            lane_size: self.lane_size as usize,
            nid: node("nid", self.nid)?,
            node_blind: self.node_blind != 0,
            headroom: self.headroom as usize,
            max_len: self.max_len as usize,
            tailroom: self.tailroom as usize,
            colour: self.colour != 0,
            frag_align: if self.frag_align == 0 { 64 } else { self.frag_align as usize },
            // SAFETY: the caller says that there are as many.
            domains: unsafe { self.domains() }?,
            sync_for_device: self.sync_for_device != 0,
            low_water: self.low_water as usize,
            wakeup: self.wakeup != 0,
            tagging: self.tagging != 0,
            defer_capacity: self.defer_capacity as usize,
            on_busy: self.on_busy()?,
            ..Default::default()
        })
    }

    fn on_busy(&self) -> CallResult<OnBusy> {
        if self.on_busy != PAGEPOOL_ON_BUSY_SKIP && self.skip_ahead != 0 {
            return Err(out_of_range(
                "skip_ahead",
                self.skip_ahead,
                "0 unless on_busy is PAGEPOOL_ON_BUSY_SKIP",
            ));
        }
        match self.on_busy {
            PAGEPOOL_ON_BUSY_KEEP => Ok(OnBusy::Keep),
            PAGEPOOL_ON_BUSY_SKIP => Ok(OnBusy::Skip { ahead: self.skip_ahead as usize }),
            PAGEPOOL_ON_BUSY_RELEASE => Ok(OnBusy::Release),
            other => Err(out_of_range("on_busy", other, "one of PAGEPOOL_ON_BUSY_KEEP, _SKIP, _RELEASE")),
        }
    }

    /// # Safety
    /// `domains` is readable for `n_domains` handles.
    unsafe fn domains(&self) -> CallResult<Vec<Arc<dyn DmaDomain>>> {
        if self.n_domains == 0 {
            return Ok(Vec::new());
        }
        if self.n_domains > 64 {
            return Err(out_of_range("n_domains", self.n_domains, "0 to 64"));
        }
        if self.domains.is_null() {
            return Err(CallError::null());
        }
        // SAFETY: the caller says so.
        let handles = unsafe { std::slice::from_raw_parts(self.domains, self.n_domains) };
        handles.iter().map(|&handle| tables::domain(Token::of(handle))).collect()
    }
}

/// The buffer stays and the poll ends: for users that finish in the order of the queue.
pub const PAGEPOOL_ON_BUSY_KEEP: u32 = 0;
/// The buffer stays and the poll looks at those behind: for users that keep one buffer long.
pub const PAGEPOOL_ON_BUSY_SKIP: u32 = 1;
/// The buffer leaves the queue, one per poll, and its page leaves the pool. The memory returns to the arena
/// once the user is done.
pub const PAGEPOOL_ON_BUSY_RELEASE: u32 = 2;
/// No thread has a lane.
pub const PAGEPOOL_NO_LANES: u32 = u32::MAX;
