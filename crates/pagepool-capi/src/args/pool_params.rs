//! The parameters of a pool, as C passes them.

// UNSAFETY: reads a C caller's arrays and texts by address.
#![expect(unsafe_code)]

use std::ffi::{c_char, c_int};
use std::num::NonZeroU32;
use std::sync::Arc;

use ::pagepool::{DmaDomain, Holders, OnBusy, PoolParams};

use crate::args::out::array;
use crate::args::range::{flag, node_of_field, out_of_range};
use crate::args::sized::{Sized0, text};
use crate::error::CallResult;
use crate::handles::opaque::{ArenaHandle, DomainHandle};
use crate::handles::tables::DOMAINS;
use crate::handles::token::Token;

/// The parameters of a pool. Start from PAGEPOOL_PARAMS_INIT, or from zeroes with `size` set: in each field 0
/// selects the default.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PoolParamsC {
    /// sizeof(struct pagepool_params): fields can be added at the end.
    pub size: usize,
    /// The arena from which the pool takes pages. Required.
    pub arena: *mut ArenaHandle,
    /// The name of the pool in reports and errors; copied. NULL means "pool".
    pub name: *const c_char,
    /// The size of a page: the `page_size` of the arena (4096 by default) << order, with an order of 0 to 10.
    pub order: u32,
    /// Slots in the ring. 0 means 1024; values above 16384 mean 16384. Linux: pool_size.
    pub ring_size: u32,
    /// Pages that the owner's cache holds: 1 to 1024. 0 means twice `refill`.
    pub cache_size: u32,
    /// The most pages that one refill takes: 1 to 256, at most `cache_size`. 0 means 64 for pages below 16
    /// KiB, 16 for pages below 64 KiB, otherwise 4.
    pub refill: u32,
    /// The preferred NUMA node: PAGEPOOL_NODE(n) for node n. 0 or PAGEPOOL_NODE_ANY means the node of the
    /// thread that refills, read at each refill.
    pub nid: c_int,
    /// Alignment of fragments in bytes: a power of two from 8 to 4096. 0 means 64.
    pub frag_align: u32,
    /// 0 or 1: shift the start of packets by up to 15 cache lines from page to page, so that they spread over
    /// the sets of the CPU's caches. The shift uses only bytes that `max_len` leaves free. Not in pages of
    /// 2 KiB. PAGEPOOL_NO_COLOUR: no shift.
    pub colour: u32,
    /// The most threads that have a lane at the same time: 1 to 64. 0 means 16; PAGEPOOL_NO_LANES means none.
    /// Threads without a lane return buffers through the ring.
    pub max_lanes: u32,
    /// Slots in a lane: a power of two from 2 to 16384. 0 means 1024.
    pub lane_size: u32,
    /// Bytes to keep free before the packet in a whole page. Linux: offset.
    pub headroom: u32,
    /// The largest packet in a whole page, in bytes; a sync for the device covers no more. 0 means all bytes
    /// that headroom and tailroom leave.
    pub max_len: u32,
    /// Bytes to keep free after the packet in a whole page.
    pub tailroom: u32,
    /// An array of `n_domains` domains; every page is mapped in each. pagepool_buf_dma_addr uses the first.
    /// The pool keeps the domains: their handles may be released at once.
    pub domains: *const *mut DomainHandle,
    /// Number of `domains`: 0 to 64.
    pub n_domains: usize,
    /// 1: in domains that are not coherent, sync pages for the device when they join the pool and when they
    /// are returned. Linux: PP_FLAG_DMA_SYNC_DEV.
    pub sync_for_device: u32,
    /// With `wakeup`: a refill that leaves fewer available pages than this in cache and arena arms the event
    /// descriptor. 0: only a failed allocation does.
    pub low_water: u32,
    /// 1: create the event descriptor of pagepool_wake_fd.
    pub wakeup: u32,
    /// 1: record who holds each buffer (pagepool_buf_set_tag), for pagepool_shutdown_report.
    pub tagging: u32,
    /// 1: take pages from the arena without naming a node, to measure what naming one costs.
    pub node_blind: u32,
    /// The most buffers in the deferred queue (pagepool_defer): up to 65536. 0 means no queue.
    pub defer_capacity: u32,
    /// What a poll of the deferred queue does with a buffer in use at its head: PAGEPOOL_ON_BUSY_KEEP, _SKIP
    /// or _RELEASE.
    pub on_busy: u32,
    /// With PAGEPOOL_ON_BUSY_SKIP: the most buffers in use that one poll skips, 1 to 64; 0 means 16.
    /// Otherwise it must be 0.
    pub skip_ahead: u32,
    /// 1: no thread ever owns the pool. Any thread may call pagepool_alloc_addr_bulk and
    /// pagepool_put_addr_bulk; each call takes a lock, for a compare-and-swap and a store. Owner's calls fail
    /// with -EPERM. Requires a domain, and neither `wakeup` nor `defer_capacity`. For short-lived threads,
    /// and for a DPDK mempool. 0: one thread at a time owns it (pagepool_bind).
    pub no_owner: u32,
    /// What the pool records of each buffer that is out: PAGEPOOL_HOLDERS_OFF, _AGES, _SITES or _STACKS. It
    /// is for pagepool_shutdown_report, and for `pagepool show` if the process publishes, also after it was
    /// killed. Each allocation and each return is then a call on the slow path. If a function returns what it
    /// allocates, a compiler may turn the call into a jump, and the pool records the place of the function's
    /// caller; -fno-optimize-sibling-calls prevents that.
    pub holders: u32,
    /// With PAGEPOOL_HOLDERS_STACKS: record the call stack of one in this many allocations. 0 means 1000.
    /// Otherwise it must be 0.
    pub one_stack_in: u32,
    /// Must be 0.
    pub reserved: u32,
}

// SAFETY: plain integers and pointers, of which zeroes are values.
unsafe impl Sized0 for PoolParamsC {
    const LEAST: usize = std::mem::offset_of!(Self, max_lanes);
}

/// Upper bound in bytes for the 1024 chain blocks that every pool has.
const CHAINS: usize = 1024 * 512;
/// Bytes per deferred buffer, in the queue and after its release.
const DEFERRED: usize = 32 + 40;

/// Bytes for the texts of holders and of stacks, and per page.
const HOLDERS: usize = (48 + 128) << 10;
const RECORD: usize = 16;

impl PoolParamsC {
    /// Bytes that a pool of these sizes allocates: lanes, ring, chains, deferred queue, and with `holders`
    /// the records of its pages. `pages` is the number of base pages of its memory. Values out of range are
    /// refused later, by name.
    pub(crate) fn bytes(&self, pages: usize) -> usize {
        let lanes = if self.max_lanes == 0 { 16 } else { self.max_lanes.min(64) as usize };
        let lane_size = if self.lane_size == 0 { 1024 } else { self.lane_size.min(1 << 14) as usize };
        let deferred = self.defer_capacity.min(1 << 16) as usize * DEFERRED;
        let holders = if self.holders == 0 { 0 } else { HOLDERS + (pages >> self.order.min(10)) * RECORD };
        let slots = lanes * lane_size + self.ring_size.min(1 << 14) as usize;
        slots * size_of::<u32>() + CHAINS + deferred + holders
    }

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
            // SAFETY: the caller guarantees that `name` is NULL or ends with a zero byte.
            name: unsafe { text(self.name, "pool") },
            order,
            cache_size: self.cache_size as usize,
            refill: self.refill as usize,
            ring_size: self.ring_size as usize,
            max_lanes,
            lane_size: self.lane_size as usize,
            nid: node_of_field("nid", self.nid)?,
            node_blind: flag("node_blind", self.node_blind)?,
            headroom: self.headroom as usize,
            max_len: self.max_len as usize,
            tailroom: self.tailroom as usize,
            colour: self.colour()?,
            frag_align: if self.frag_align == 0 { 64 } else { self.frag_align as usize },
            // SAFETY: the caller guarantees that `domains` is readable for `n_domains` handles.
            domains: unsafe { self.domains() }?,
            sync_for_device: self.sync_for_device()?,
            low_water: self.low_water as usize,
            wakeup: flag("wakeup", self.wakeup)?,
            tagging: flag("tagging", self.tagging)?,
            holders: self.holders()?,
            defer_capacity: self.defer_capacity as usize,
            on_busy: self.on_busy()?,
            ..Default::default()
        })
    }

    /// Whether the pool has no owner. Refuses parameters that need one.
    pub(crate) fn no_owner(&self) -> CallResult<bool> {
        let no_owner = flag("no_owner", self.no_owner)?;
        let owners = [("wakeup", self.wakeup), ("defer_capacity", self.defer_capacity)];
        match owners.into_iter().find(|&(_, value)| no_owner && value != 0) {
            Some((field, value)) => Err(out_of_range(field, value, "0 with no_owner: only an owner uses it")),
            None if no_owner && self.n_domains == 0 => {
                Err(out_of_range("n_domains", 0_u32, "1 to 64 with no_owner, which has only addresses"))
            }
            None => Ok(no_owner),
        }
    }

    fn holders(&self) -> CallResult<Holders> {
        if self.reserved != 0 {
            return Err(out_of_range("reserved", self.reserved, "0"));
        }
        if self.holders != PAGEPOOL_HOLDERS_STACKS && self.one_stack_in != 0 {
            let must_be = "0 unless holders is PAGEPOOL_HOLDERS_STACKS";
            return Err(out_of_range("one_stack_in", self.one_stack_in, must_be));
        }
        match self.holders {
            PAGEPOOL_HOLDERS_OFF => Ok(Holders::Off),
            PAGEPOOL_HOLDERS_AGES => Ok(Holders::Ages),
            PAGEPOOL_HOLDERS_SITES => Ok(Holders::Sites { stacks: None }),
            PAGEPOOL_HOLDERS_STACKS => {
                let one_in = NonZeroU32::new(self.one_stack_in).or(NonZeroU32::new(1000));
                Ok(Holders::Sites { stacks: one_in })
            }
            other => {
                Err(out_of_range("holders", other, "one of PAGEPOOL_HOLDERS_OFF, _AGES, _SITES, _STACKS"))
            }
        }
    }

    fn colour(&self) -> CallResult<bool> {
        match self.colour {
            0 | 1 => Ok(true),
            PAGEPOOL_NO_COLOUR => Ok(false),
            other => Err(out_of_range("colour", other, "0 or 1, or PAGEPOOL_NO_COLOUR")),
        }
    }

    fn sync_for_device(&self) -> CallResult<bool> {
        if self.sync_for_device != 0 && self.n_domains == 0 {
            let must_be = "0 in a pool without domains";
            return Err(out_of_range("sync_for_device", self.sync_for_device, must_be));
        }
        Ok(self.sync_for_device != 0)
    }

    fn on_busy(&self) -> CallResult<OnBusy> {
        if self.on_busy != PAGEPOOL_ON_BUSY_KEEP && self.defer_capacity == 0 {
            let must_be = "PAGEPOOL_ON_BUSY_KEEP with defer_capacity 0, because no buffer can wait";
            return Err(out_of_range("on_busy", self.on_busy, must_be));
        }
        if self.on_busy != PAGEPOOL_ON_BUSY_SKIP && self.skip_ahead != 0 {
            return Err(out_of_range(
                "skip_ahead",
                self.skip_ahead,
                "0 unless on_busy is PAGEPOOL_ON_BUSY_SKIP",
            ));
        }
        match self.on_busy {
            PAGEPOOL_ON_BUSY_KEEP => Ok(OnBusy::Keep),
            PAGEPOOL_ON_BUSY_SKIP => {
                let ahead = if self.skip_ahead == 0 { 16 } else { self.skip_ahead as usize };
                Ok(OnBusy::Skip { ahead })
            }
            PAGEPOOL_ON_BUSY_RELEASE => Ok(OnBusy::Release),
            other => Err(out_of_range("on_busy", other, "one of PAGEPOOL_ON_BUSY_KEEP, _SKIP, _RELEASE")),
        }
    }

    /// # Safety
    /// `domains` is readable for `n_domains` handles.
    unsafe fn domains(&self) -> CallResult<Vec<Arc<dyn DmaDomain>>> {
        if self.n_domains > 64 {
            return Err(out_of_range("n_domains", self.n_domains, "0 to 64"));
        }
        // SAFETY: the caller's contract is that of `array`.
        let handles = unsafe { array(self.domains, self.n_domains) }?;
        handles.iter().map(|&handle| DOMAINS.get(Token::of(handle))).collect()
    }
}

/// Keep the buffer in the queue, and end the poll. For users that finish in queue order.
pub const PAGEPOOL_ON_BUSY_KEEP: u32 = 0;
/// Keep the buffer in the queue, and check the buffers behind it. For users that keep single buffers long.
pub const PAGEPOOL_ON_BUSY_SKIP: u32 = 1;
/// Remove the buffer from the queue, at most one per poll, and its page from the pool. The memory returns to
/// the arena once the user is done.
pub const PAGEPOOL_ON_BUSY_RELEASE: u32 = 2;
/// Record nothing.
pub const PAGEPOOL_HOLDERS_OFF: u32 = 0;
/// Record since when each buffer is out, and its tag.
pub const PAGEPOOL_HOLDERS_AGES: u32 = 1;
/// Also record the thread and the place in the program that allocated it: file and line if the program has
/// debug information, otherwise the function or the address. The first allocation of each place looks that
/// up, which allocates, and takes up to milliseconds.
pub const PAGEPOOL_HOLDERS_SITES: u32 = 2;
/// Also record the call stack of some allocations. Taking a stack reads the program's debug information: it
/// allocates, and takes up to milliseconds.
pub const PAGEPOOL_HOLDERS_STACKS: u32 = 3;
/// For `max_lanes`: no thread has a lane.
pub const PAGEPOOL_NO_LANES: u32 = u32::MAX;
/// For `colour`: packets begin at the same offset in every page.
pub const PAGEPOOL_NO_COLOUR: u32 = u32::MAX;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeroes_are_the_defaults() {
        // SAFETY: zeroes are a valid value.
        let zeroes: PoolParamsC = unsafe { std::mem::zeroed() };
        // SAFETY: there is no text and no array.
        let params = unsafe { zeroes.to_rust() }.unwrap();
        assert_eq!(format!("{params:?}"), format!("{:?}", PoolParams::default()));
    }
}
