//! Creates a pool: checks parameters, attaches domains, assembles the parts.

mod published_row;

use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU32 as PlainU32;
use std::sync::{Arc, Weak};

use crate::buf::handle_bits::HandleBits;
use crate::core::end_watch::EndWatch;
use crate::core::geometry::{Geometry, PoolSizes};
use crate::core::pool_core::{NO_REQUEST, NO_REQUEST_BUT_TRACKS, OwnerState, PoolCore, PoolPtr, ReturnState};
use crate::core::raw_line::RawLine;
use crate::core::registry::Registry;
use crate::core::short_name::ShortName;
use crate::error::Error;
use crate::holders::table::HolderTable;
use crate::mem::area::Area;
use crate::mem::dma::Mapping;
use crate::mem::provider::Provider;
use crate::pool::deferred_queue::DeferredQueue;
use crate::pool::params::PoolParams;
use crate::pool::pool_ref;
use crate::pool::unbound::{Pool, RefillPolicy};
use crate::recycle::guard::Guard;
use crate::recycle::lane::Lane;
use crate::recycle::lane_list::LaneList;
use crate::recycle::lane_slots::LaneLines;
use crate::recycle::lane_table::place_of;
use crate::recycle::lives::LifeTable;
use crate::recycle::ring::ReturnRing;
use crate::recycle::thread;
use crate::stats::{Counter, Counters, DeferredCounts};
use crate::sys::call::eventfd;
use crate::sys::placed::Placed;
use crate::sys::published_memory::UnseenPool;
use crate::sys::slab::Slab;
use crate::sys::sync::{
    AtomicU32, AtomicU64, LastCell, Lock, Ordering, Padded, UnseenLock, fences_are_free, prepare_fences,
};
use crate::sys::wakeup::Wakeup;

impl Pool {
    /// Creates a pool over a provider's memory, and maps that memory in the pool's domains. Linux:
    /// `page_pool_create`.
    ///
    /// # Errors
    /// Name the parameter, its value and its range, or the domain that did not map, or `membarrier` if a
    /// filter that was installed after the first pool's creation refuses it. Nothing is left behind.
    ///
    /// ```
    /// use pagepool::{Arena, ArenaParams, Pool, PoolParams};
    /// let arena = Arena::new(ArenaParams { max_bytes: 16 << 20, ..Default::default() })?;
    /// let pool = Pool::new(PoolParams { name: "rx0".into(), ..Default::default() }, arena)?.bind();
    /// let buffer = pool.alloc_page().expect("16 MiB are free");
    /// drop(buffer); // returns into the cache
    /// assert_eq!(pool.stats().recycle_cached, 1);
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    #[doc(alias = "page_pool_create")]
    pub fn new(params: PoolParams, provider: Arc<dyn Provider>) -> Result<Self, Error> {
        Self::create(params, provider, None)
    }

    /// Creates a pool whose buffers may return as messages with lives of this table.
    pub(crate) fn create(
        params: PoolParams,
        provider: Arc<dyn Provider>,
        lives: Option<&'static LifeTable>,
    ) -> Result<Self, Error> {
        let (sizes, geometry) = params.check(&*provider)?;
        prepare_fences()?;
        let policy = RefillPolicy {
            refill: sizes.refill,
            nid: params.nid,
            node_blind: params.node_blind,
            low_water: params.low_water,
            ..RefillPolicy::default()
        };
        let on_busy = params.on_busy;
        let shown = published_row::text_of(&params, &sizes, &geometry);
        let shared = assemble(params, provider, &sizes, geometry, lives)?;
        pool_ref::show(&shared);
        published_row::enter(&shared, &shown);
        let deferred = DeferredQueue::new(sizes.deferred, on_busy, shared.deferred.clone());
        // The pool's own count; late::free drops it.
        let ptr = PoolPtr::new(NonNull::from(&***ManuallyDrop::new(shared)));
        let mut pool = Self { ptr, policy, deferred };
        // A callback: if it panics, the drop of the pool detaches its domains.
        pool.policy.low_water_mark = ptr.provider().available(geometry.order());
        Ok(pool)
    }
}

/// A pool bound to no thread, with empty cache, lanes and ring.
fn assemble(
    params: PoolParams,
    provider: Arc<dyn Provider>,
    sizes: &PoolSizes,
    geometry: Geometry,
    lives: Option<&'static LifeTable>,
) -> Result<Arc<Placed<PoolCore>>, Error> {
    let event = params.wakeup.then(eventfd).transpose();
    let event =
        event.map_err(Error::of_call("eventfd", || "raise RLIMIT_NOFILE, or leave wakeup off".into()))?;
    let chains = Slab::new(sizes.chains)?;
    let registration = params.registry.clone().unwrap_or_else(Registry::process).register()?;
    let id = next_id()?;
    let lines = LaneLines::for_lanes(sizes.lanes, sizes.lane, lives.is_some())?;
    let area = provider.area().clone();
    let mappings = attach_all(&params, &area)?; // the last step that may fail: the pool detaches them
    let needs_sync = |mapping: &&Arc<Mapping>| params.sync_for_device && !mapping.coherent();
    let syncing: Box<[_]> = mappings.iter().filter(needs_sync).cloned().collect();
    let wakeup = Arc::new(Wakeup::new(id, event));
    let short_name = ShortName::take();
    let raw = Guard::new(RawLine::new(&area, mappings.first(), id, &geometry), 1);
    let recorded = params.holders.recorded();
    let holders = recorded
        .map(|recorded| Arc::new(HolderTable::new(recorded, area.pages(), geometry.order(), sizes.cache)));
    let needs_work_on_return = !syncing.is_empty() || holders.is_some();
    let message_is_all = !needs_work_on_return && (cfg!(loom) || fences_are_free());
    let message_only_id = if message_is_all { id } else { NO_POOL };
    let readable_below = if area.base().is_some() { HandleBits::WHOLE_BELOW } else { 0 };
    // One expression, because the core contains the cache, and each function on the way would copy it.
    let make = |count: &Weak<_>| PoolCore {
        owner: AtomicU64::new(thread::NOBODY),
        base: area.base,
        packet_base: area.base + geometry.headroom as usize,
        colourless_below: if geometry.colour_mask == 0 { readable_below } else { 0 },
        id,
        message_only_id,
        lane_place: place_of(short_name.name()),
        packet_len: geometry.max_len,
        geometry,
        meta: area.records(),
        readable_below,
        area_id: area.id(),
        short_name,
        overflowed: Default::default(),
        split_elsewhere: Default::default(),
        split_lines: Default::default(),
        shrink_request: AtomicU32::new(if holders.is_some() { NO_REQUEST_BUT_TRACKS } else { NO_REQUEST }),
        lanes: LaneList::new(lines.map(|lines| Lane::new(lines, wakeup.clone()))),
        own: Padded(OwnerState::new(sizes, !needs_work_on_return, raw)),
        returns: Padded(Lock::new(ReturnState::default())),
        returned: Counters::default(),
        late: Default::default(),
        late_ring: Default::default(),
        ring: ReturnRing::new(sizes.ring, lives.is_some()),
        ring_frags: Counter::default(),
        chains,
        name: params.name,
        area,
        provider: LastCell::new(provider),
        mem_id: registration.id(),
        registration: LastCell::new(registration),
        #[cfg(loom)]
        alive: LastCell::new(()),
        mappings,
        syncing,
        wakeup,
        watch: Arc::new(EndWatch::new()),
        deferred: (sizes.deferred > 0).then(|| DeferredCounts::default().into()),
        tagging: params.tagging || holders.is_some(),
        needs_work_on_return,
        cut_limit: if holders.is_some() { 0 } else { geometry.page_size() },
        lives,
        holders,
        row: UnseenLock::new(Err(UnseenPool::new())),
        count: count.clone(),
    };
    Ok(Arc::new_cyclic(|count| Placed::new(make(count))))
}

/// No pool has this id: the counter ends there.
const NO_POOL: u32 = u32::MAX;

fn next_id() -> Result<u32, Error> {
    static NEXT: PlainU32 = PlainU32::new(1);
    NEXT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |id| id.checked_add(1))
        .map_err(|_| Error::Busy { what: "all 4294967294 pool ids are used up: restart the process".into() })
}

/// Domains attached so far. Its drop detaches them.
struct Attached<'a> {
    area: &'a Area,
    mappings: Vec<Arc<Mapping>>,
}

impl Drop for Attached<'_> {
    fn drop(&mut self) {
        self.mappings.iter().for_each(|mapping| self.area.detach(mapping));
    }
}

/// Attaches all domains of a pool, or none and fails.
fn attach_all(params: &PoolParams, area: &Area) -> Result<Box<[Arc<Mapping>]>, Error> {
    let mut attached = Attached { area, mappings: Vec::new() };
    for domain in &params.domains {
        attached.mappings.push(area.attach(domain)?);
    }
    Ok(std::mem::take(&mut attached.mappings).into())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::{DeviceMemory, NodeId};

    #[test]
    fn the_balance_holds_while_the_counters_wrap() {
        for (returned, late) in [(0, 9), (5, 4), (9, 0)] {
            let memory = DeviceMemory::new("64 pages", 64 << 12, NodeId(0)).expect("small");
            let pool =
                Pool::new(PoolParams { refill: 1, ..Default::default() }, memory.clone()).expect("plain");
            // As if almost 2^64 pages had joined and left.
            pool.ptr.own.counts.hold.start_at(u64::MAX - 4);
            pool.ptr.returned.release.start_at(u64::MAX - 4);
            let (handle, pool) = (pool.handle(), pool.bind());
            let mut buffers: Vec<_> = (0..9).filter_map(|_| pool.alloc_page()).collect();
            assert_eq!((handle.stats().hold, handle.inflight().total, handle.inflight().out), (4, 9, 9));
            buffers.drain(..returned).for_each(drop);
            let shutdown = pool.destroy();
            let at_end = (handle.inflight().total, shutdown.is_complete());
            assert_eq!(at_end, (late, late == 0), "{}", shutdown.report());
            drop(buffers);
            assert!(shutdown.is_complete(), "{}", shutdown.report());
            assert_eq!((handle.stats().hold, handle.stats().release, memory.available(0)), (4, 4, 64));
        }
    }
}
