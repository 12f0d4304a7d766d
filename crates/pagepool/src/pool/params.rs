//! The parameters of a pool, checked once.
//!
//! The rules are those of `page_pool_init` (net/core/page_pool.c, v7.3), plus what Linux does not check: an
//! offset and length beyond the page, sizes of 0, sizes that overflow.

use std::num::NonZeroU32;
use std::sync::Arc;

use crate::core::geometry::{COLOUR_SHIFT, Geometry, PoolSizes, colour_scale, head_mask};
use crate::core::registry::Registry;
use crate::error::Error;
use crate::holders::table::Recorded;
use crate::mem::area::Area;
use crate::mem::dma::DmaDomain;
use crate::mem::page::{MAX_ORDER, NodeId};
use crate::mem::provider::Provider;
use crate::recycle::cache::MAX_CACHE;
use crate::recycle::lane_list::MAX_LANES;
use crate::recycle::ring::MAX_RING;

/// The parameters of a [`Pool`](crate::Pool). `Default` has Linux's sizes: cache 128, refill 64, ring 1024.
///
/// ```
/// use pagepool::PoolParams;
/// let params = PoolParams { name: "rx0".into(), headroom: 256, max_len: 1514, ..Default::default() };
/// assert_eq!(params.order, 0);
/// ```
#[derive(Clone, Debug)]
pub struct PoolParams {
    /// The pool's name, for reports and errors.
    pub name: String,
    /// log2 of the base pages in a page, 0 to 10. A base page has 4 KiB, or the
    /// [`page_size`](crate::ArenaParams::page_size) of the arena.
    pub order: u8,
    /// Pages in the owner's cache, up to 1024; 0 is twice `refill`.
    pub cache_size: usize,
    /// Most pages of a refill, up to the cache size and 256. 0 depends on the page size: 64 below 16 KiB, 16
    /// below 64 KiB, else 4. Linux applies this rule to the machine's page: on x86, 64 for every order.
    pub refill: usize,
    /// Slots in the locked ring. 0 is 1024; more than 16384 becomes 16384. Linux: `pool_size`.
    pub ring_size: usize,
    /// Most threads that have a lane at the same time, up to 64; others return through the ring. 0: no lanes.
    pub max_lanes: usize,
    /// Slots in a lane, a power of two from 2 to 16384; 0 is 1024. A slot costs four bytes.
    pub lane_size: usize,
    /// The NUMA node to allocate from; `None` is the refilling thread's node, looked up each time.
    pub nid: Option<NodeId>,
    /// Reserve pages without a node, as Linux did before "net: page_pool: optimize page pool page allocation
    /// in NUMA scenario". To measure the cost of that.
    pub node_blind: bool,
    /// Free bytes before the packet in a whole page. Linux: `offset`.
    pub headroom: usize,
    /// Most bytes of a packet in a whole page, and most bytes synced for the device. 0 is all between
    /// headroom and tailroom. Bytes beyond it are for colours.
    pub max_len: usize,
    /// Free bytes after the packet in a whole page.
    pub tailroom: usize,
    /// Shift the start of packets from page to page, by up to 15 cache lines, within the bytes that `max_len`
    /// leaves free. Spreads packets over the sets of the CPU's caches. Not in pages of 2 KiB.
    pub colour: bool,
    /// Fragments begin at multiples of this, a power of two from 8 to 4096, at most a page. 8 gives Linux's
    /// offsets and sizes on x86.
    pub frag_align: usize,
    /// Address spaces in which every page is mapped. `dma_addr` is in the first.
    pub domains: Vec<Arc<dyn DmaDomain>>,
    /// Sync pages for the device when they join and when they return, in domains that are not coherent.
    /// Linux: `PP_FLAG_DMA_SYNC_DEV`.
    pub sync_for_device: bool,
    /// The pool is starved if fewer pages than this are available. 0: only after a failed allocation.
    pub low_water: usize,
    /// Create an eventfd that the first page after starvation signals: a buffer returned by another thread,
    /// or a page that comes back to the provider. [`Bound::wait_for`](crate::Bound::wait_for), for tasks,
    /// does not need it.
    pub wakeup: bool,
    /// Packets that may have further buffers at the same time, up to 2^20: chains of 17 in memory that no
    /// device can access. 0 is 1024. A chain costs 424 bytes on its first use.
    pub chains: usize,
    /// Record the tags of buffers, for the report of a destroyed pool.
    pub tagging: bool,
    /// Record which page is held by whom, and since when.
    pub holders: Holders,
    /// Capacity of the deferred queue (buffers whose users only answer "still in use?"), up to 65536; 0 is no
    /// queue. A buffer costs 32 bytes, and 40 more with [`OnBusy::Release`], allocated with the pool.
    pub defer_capacity: usize,
    /// What a poll does if the buffer at the head of the deferred queue is still in use.
    pub on_busy: OnBusy,
    /// The registry that lists the pool and assigns its memory id; `None` is the process's registry.
    pub registry: Option<Registry>,
}

/// What a poll does if the buffer at the head of the deferred queue is still in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnBusy {
    /// Keep it, and end the round. For users that finish in the order of queueing.
    #[default]
    Keep,
    /// Keep it, and look past it. For buffers that may be in use for long, such as a packet kept for
    /// retransmission, while later ones are done.
    Skip {
        /// Most buffers in use that a round passes, 1 to 64.
        ahead: usize,
    },
    /// Release it: it leaves the queue, at most one a round, and its page leaves the pool, which may take
    /// another page instead. The memory goes back to the provider once the user is done. It stays mapped,
    /// because mappings are by region. At most `defer_capacity` released buffers are tracked; after that the
    /// head is kept.
    Release,
}

/// What a pool records of each page that is out. [`PoolRef::holders`](crate::PoolRef::holders) and
/// [`Shutdown::report`](crate::Shutdown::report) show it, and so do readers of what the process
/// [publishes](crate::publish), even after a kill. Includes [`tagging`](PoolParams::tagging).
///
/// Costs 24 bytes per page of the area and up to 56 KiB, 128 KiB more with stacks. Each allocation and each
/// return takes the slow path. [`Off`](Self::Off) costs nothing on the fast paths.
///
/// ```
/// # use pagepool::{Arena, ArenaParams, Holders, Pool, PoolParams};
/// # let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
/// let holders = Holders::Sites { stacks: None };
/// let pool = Pool::new(PoolParams { holders, ..Default::default() }, arena)?.bind();
/// pool.set_tag(Some(pool.tag("rx")));
/// let buffer = pool.alloc_page();
/// let view = pool.handle().holders().unwrap();
/// assert_eq!((view.held, view.groups[0].tag.as_deref()), (1, Some("rx")));
/// assert!(view.groups[0].site.is_some(), "the place of the call of alloc_page");
/// drop(buffer);
/// assert_eq!(pool.handle().holders().unwrap().held, 0);
/// # Ok::<(), pagepool::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Holders {
    /// Nothing.
    #[default]
    Off,
    /// Since when each page is out, and its tag.
    Ages,
    /// Also the allocating thread and place in the program, for the first 64 threads and 256 places.
    Sites {
        /// The stack of one in so many allocations; `None`: of none. Taking a stack reads the program's debug
        /// information: it allocates, and takes up to milliseconds. The first 64 different ones are kept,
        /// then no more are taken.
        stacks: Option<NonZeroU32>,
    },
}

impl Holders {
    /// What to record, if anything.
    pub(crate) fn recorded(self) -> Option<Recorded> {
        match self {
            Self::Off => None,
            Self::Ages => Some(Recorded { sites: false, one_stack_in: 0 }),
            Self::Sites { stacks } => {
                Some(Recorded { sites: true, one_stack_in: stacks.map_or(0, NonZeroU32::get) })
            }
        }
    }
}

impl Default for PoolParams {
    fn default() -> Self {
        Self {
            name: "pool".into(),
            order: 0,
            cache_size: 0,
            refill: 0,
            ring_size: 0,
            max_lanes: 16,
            lane_size: 0,
            nid: None,
            node_blind: false,
            headroom: 0,
            max_len: 0,
            tailroom: 0,
            colour: true,
            frag_align: 64,
            domains: Vec::new(),
            sync_for_device: false,
            low_water: 0,
            wakeup: false,
            chains: 0,
            tagging: false,
            holders: Holders::Off,
            defer_capacity: 0,
            on_busy: OnBusy::Keep,
            registry: None,
        }
    }
}

/// Most pages of a refill.
pub(crate) const MAX_REFILL: usize = 256;
/// Most chains of a pool.
const MAX_CHAINS: usize = 1 << 20;
/// Few under loom, whose models visit each.
const DEFAULT_CHAINS: usize = if cfg!(loom) { 2 } else { 1024 };
/// Most colours. More gain nothing (reference measurement: 8 colours 3.9, 16 colours 3.7 core cycles).
const MAX_COLOURS: usize = 16;
/// The smallest pages with colours. In pages of 2 KiB colours gained nothing on one core. Across cores, touched
/// packets took 16 to 26 % longer with them (note 0006).
const COLOURED_PAGE: usize = 4096;
/// Limits of the deferred queue, and of how many buffers per round passes.
const MAX_DEFERRED: usize = 65536;
const MAX_AHEAD: usize = 64;

impl PoolParams {
    /// Checks all that needs no system call.
    pub(crate) fn check(&self, provider: &dyn Provider) -> Result<(PoolSizes, Geometry), Error> {
        let geometry = self.geometry(provider.area())?;
        check_node(provider, self.nid)?;
        self.check_deferred()?;
        Ok((self.sizes(geometry.page_size())?, geometry))
    }

    fn sizes(&self, page_size: usize) -> Result<PoolSizes, Error> {
        let refill = match self.refill {
            0 if self.cache_size == 0 => default_refill(page_size),
            0 => default_refill(page_size).min(self.cache_size),
            n => n,
        };
        within("cache_size", self.cache_size, 0, MAX_CACHE)?;
        let most = if self.cache_size == 0 { MAX_REFILL } else { MAX_REFILL.min(self.cache_size) };
        within("refill", refill, 1, most)?;
        let cache = if self.cache_size == 0 { 2 * refill } else { self.cache_size };
        let is_seen = self.low_water == 0 || self.wakeup;
        let must_be = "0 without wakeup, because no thread is woken";
        Error::require(is_seen, "low_water", self.low_water, must_be)?;
        within("max_lanes", self.max_lanes, 0, MAX_LANES)?;
        let lane = if self.lane_size == 0 { 1024 } else { self.lane_size };
        power_of_two("lane_size", lane, 2, MAX_RING)?;
        let ring = if self.ring_size == 0 { 1024 } else { self.ring_size.min(MAX_RING) };
        within("chains", self.chains, 0, MAX_CHAINS)?;
        let chains = if self.chains == 0 { DEFAULT_CHAINS } else { self.chains };
        Ok(PoolSizes {
            cache,
            refill,
            ring,
            lanes: self.max_lanes,
            lane,
            chains,
            deferred: self.defer_capacity,
        })
    }

    fn check_deferred(&self) -> Result<(), Error> {
        within("defer_capacity", self.defer_capacity, 0, MAX_DEFERRED)?;
        let (can_wait, on_busy) = (self.defer_capacity > 0 || self.on_busy == OnBusy::Keep, self.on_busy);
        let must_be = "Keep with defer_capacity 0, because no buffer can wait";
        Error::require(can_wait, "on_busy", format_args!("{on_busy:?}"), must_be)?;
        match self.on_busy {
            OnBusy::Skip { ahead } => within("on_busy.ahead", ahead, 1, MAX_AHEAD),
            OnBusy::Keep | OnBusy::Release => Ok(()),
        }
    }

    fn geometry(&self, area: &Area) -> Result<Geometry, Error> {
        within("order", self.order as usize, 0, MAX_ORDER as usize)?;
        let bytes = area.len_bytes();
        let must_be = format!("an order whose pages fit the provider's {bytes} bytes");
        Error::require(area.pages() >= 1 << self.order, "order", self.order, must_be)?;
        let syncs_some = !self.sync_for_device || !self.domains.is_empty();
        Error::require(syncs_some, "sync_for_device", true, "false in a pool without domains")?;
        let page = area.page_size() << self.order;
        power_of_two("frag_align", self.frag_align, 8, page.min(4096))?;
        within("headroom", self.headroom, 0, page - 1)?;
        within("tailroom", self.tailroom, 0, page - 1 - self.headroom)?;
        let room = page - self.headroom - self.tailroom;
        let max_len = if self.max_len == 0 { room } else { self.max_len };
        let (head, tail) = (self.headroom, self.tailroom);
        let must_be = format!("1 to {room}: a page of {page} bytes less headroom {head} and tailroom {tail}");
        Error::require(max_len <= room, "max_len", max_len, must_be)?;
        let fits = (room - max_len) / 64 + 1;
        let coloured = self.colour && page >= COLOURED_PAGE;
        let colours = if coloured { (1 << fits.min(MAX_COLOURS).ilog2()) as u32 } else { 1 };
        Ok(Geometry {
            head_mask: head_mask(self.order),
            base_page: area.base_page(),
            page_size: page as u32,
            headroom: self.headroom as u32,
            max_len: max_len as u32,
            tailroom: self.tailroom as u32,
            colour_mask: (colours - 1) << COLOUR_SHIFT,
            colour_scale: colour_scale(self.order),
            frag_mask: (self.frag_align as u32).wrapping_neg(),
        })
    }
}

/// Checks that the provider knows the preferred node.
pub(crate) fn check_node(provider: &dyn Provider, nid: Option<NodeId>) -> Result<(), Error> {
    match nid {
        Some(node) if !provider.has_node(node) => {
            Err(Error::parameter("nid", node.0, format!("a node of the provider: {}", provider.describe())))
        }
        _ => Ok(()),
    }
}

/// `PP_ALLOC_CACHE_REFILL` of Linux v7.3, by the pool's page instead of the machine's: a cache keeps little
/// memory idle for every order (docs/notes/0004).
fn default_refill(page_size: usize) -> usize {
    match page_size {
        0..16384 => 64,
        16384..65536 => 16,
        _ => 4,
    }
}

fn within(field: &'static str, value: usize, from: usize, to: usize) -> Result<(), Error> {
    Error::require((from..=to).contains(&value), field, value, format_args!("{from} to {to}"))
}

fn power_of_two(field: &'static str, value: usize, from: usize, to: usize) -> Result<(), Error> {
    let ok = value.is_power_of_two() && (from..=to).contains(&value);
    Error::require(ok, field, value, format_args!("a power of two from {from} to {to}"))
}
