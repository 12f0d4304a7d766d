//! The oracle: what two pools over one memory must do, without threads, atomics or addresses.
//!
//! A page gets a new [`PageToken`] each time it joins a pool. The provider chooses the page, so the first
//! hand-out ties its number to the token. The model predicts counters and the place of every page.

mod deferred;
mod frags;
mod returns;
mod shrink;

use std::collections::{HashMap, HashSet, VecDeque};

use pagepool::{DeferredStats, Holders, Inflight, Stats};

use crate::op::Setup;

/// A page from joining a pool to leaving it.
pub type PageToken = u32;

/// The thread that acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// The thread that runs the list and owns the pools.
    Main,
    /// The other thread.
    OtherThread,
}

/// Returns through the ring before a thread without a lane requests one from the pool again.
const RETRY: u32 = 256;

#[derive(Debug, Default)]
struct PageRecord {
    /// Fragments out.
    frags: u32,
    /// Fragments that returned when there was no room for a message.
    overflowed: u32,
    refs: u32,
    clones: u32,
    /// Fragments that are shared buffers.
    shared_frags: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ModelMessage {
    Page(PageToken),
    /// Several fragments of one page.
    Frags(PageToken, u32),
}

#[derive(Debug, Default)]
struct LaneModel {
    messages: VecDeque<ModelMessage>,
    claimed: bool,
    /// The owner checks it.
    listed: bool,
    /// It had a fragment at the last cut.
    busy: bool,
}

impl LaneModel {
    /// The owner stops checking an empty lane whose thread has ended.
    fn unlist_if_over(&mut self) {
        self.listed &= self.claimed || !self.messages.is_empty();
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct ThreadLane {
    lane: Option<usize>,
    wait: u32,
}

#[derive(Clone, Copy, Debug)]
struct OpenPage {
    token: PageToken,
    offset: usize,
}

#[derive(Debug, Default)]
struct PoolModel {
    stats: Stats,
    owner: Option<Who>,
    ended: bool,
    off_node: bool,
    cache: Vec<PageToken>,
    ring: VecDeque<ModelMessage>,
    lanes: Vec<LaneModel>,
    next_queue: usize,
    /// The next lane to check among those that had no fragment at the last cut.
    next_to_cut: usize,
    overflow: Vec<PageToken>,
    records: HashMap<PageToken, PageRecord>,
    open: Option<OpenPage>,
    thread_lanes: [ThreadLane; 2],
    /// Number of idle pages that the owner was requested to keep.
    asked: Option<usize>,
    queued: VecDeque<DeferredPage>,
    /// Buffers that left the queue while in use.
    released: VecDeque<DeferredPage>,
    deferred_stats: DeferredStats,
}

/// A deferred buffer, and the cookie by which its user knows it.
#[derive(Clone, Copy, Debug)]
struct DeferredPage {
    token: PageToken,
    frag: bool,
    cookie: u64,
}

/// Two pools over one memory.
#[derive(Debug)]
pub struct PoolsModel {
    setup: Setup,
    /// Bytes of a page of order 0.
    base_page: usize,
    free: usize,
    next: PageToken,
    pools: [PoolModel; 2],
    /// Pages that left their pool while a `PageRef` referred to them.
    referenced: HashMap<PageToken, u32>,
    /// Pages that returned to the provider since the last [`PoolsModel::take_gone`].
    gone: Vec<PageToken>,
    /// Cookies of buffers still in use.
    busy: HashSet<u64>,
}

impl PoolsModel {
    /// Creates two pools, bound to the main thread, over memory in base pages of this many bytes.
    pub fn new(setup: Setup, base_page: usize) -> Self {
        let pool = || PoolModel {
            owner: Some(Who::Main),
            lanes: (0..setup.lanes).map(|_| LaneModel::default()).collect(),
            ..Default::default()
        };
        Self {
            setup,
            base_page,
            free: setup.pages,
            next: 0,
            pools: [pool(), pool()],
            referenced: HashMap::new(),
            gone: Vec::new(),
            busy: HashSet::new(),
        }
    }

    /// Bytes per page.
    pub fn page_size(&self) -> usize {
        self.base_page << self.setup.order
    }

    /// Alignment of fragments.
    pub fn frag_align(&self) -> usize {
        self.setup.frag_align
    }

    /// Checks the counters of a pool.
    pub fn check_stats(&self, pool: usize, seen: &Stats, when: &str) {
        assert_eq!(*seen, self.pools[pool].stats, "counters of pool {pool} {when}");
    }

    /// The predicted places of a pool's pages.
    pub fn inflight(&self, pool: usize) -> Inflight {
        let p = &self.pools[pool];
        let pages = |q: &VecDeque<ModelMessage>| {
            q.iter().filter(|m| matches!(m, ModelMessage::Page(_))).count() as u64
        };
        let (cache, ring) = (p.cache.len() as u64, pages(&p.ring));
        let lanes = p.lanes.iter().map(|lane| pages(&lane.messages)).sum();
        let uncollected = self.complete_pages(pool);
        let frag = u64::from(p.open.is_some());
        let deferred = p.queued.iter().filter(|queued| !queued.frag).count() as u64;
        let total = p.stats.inflight();
        let mut at = Inflight::default();
        (at.total, at.cache, at.lanes, at.ring, at.frag) = (total, cache, lanes, ring, frag);
        (at.deferred, at.uncollected) = (deferred, uncollected);
        at.out = total as u64 - cache - lanes - ring - frag - deferred - uncollected;
        at
    }

    /// Number of pages whose fragments have all returned, the last ones as messages.
    fn complete_pages(&self, pool: usize) -> u64 {
        let p = &self.pools[pool];
        let messages = p.lanes.iter().flat_map(|lane| &lane.messages).chain(&p.ring);
        let mut returned: HashMap<PageToken, u32> =
            p.overflow.iter().map(|&token| (token, p.records[&token].overflowed)).collect();
        for message in messages {
            if let ModelMessage::Frags(token, n) = *message {
                *returned.entry(token).or_default() += n;
            }
        }
        let open = p.open.map(|open| open.token);
        let complete = |&(token, n): &(PageToken, u32)| Some(token) != open && p.records[&token].frags == n;
        returned.into_iter().filter(complete).count() as u64
    }

    /// Checks the counters of a pool's deferred queue.
    pub fn check_deferred_stats(&self, pool: usize, mut seen: DeferredStats, when: &str) {
        let predicted = &self.pools[pool].deferred_stats;
        if self.pools[pool].ended {
            // Each method of a `Shutdown` polls.
            (seen.polls, seen.skipped) = (predicted.polls, predicted.skipped);
        }
        assert_eq!(seen, *predicted, "deferred queue of pool {pool} {when}");
    }

    /// Whether a pool has ended, everything has returned, and its deferred queue is empty.
    pub fn is_complete(&self, pool: usize) -> bool {
        let p = &self.pools[pool];
        p.ended && p.stats.inflight() == 0 && p.released.is_empty()
    }

    /// Returns the tokens whose pages returned to the provider since the last call.
    pub fn take_gone(&mut self) -> Vec<PageToken> {
        std::mem::take(&mut self.gone)
    }

    /// Binds a pool to a thread, or to none.
    pub fn set_owner(&mut self, pool: usize, owner: Option<Who>) {
        self.pools[pool].owner = owner;
    }

    /// The other thread ends, and gives up its lanes.
    pub fn thread_ends(&mut self) {
        for pool in &mut self.pools {
            if let Some(lane) = std::mem::take(&mut pool.thread_lanes[Who::OtherThread as usize]).lane {
                pool.lanes[lane].claimed = false;
            }
        }
    }

    fn record(&mut self, pool: usize, token: PageToken) -> &mut PageRecord {
        self.pools[pool].records.get_mut(&token).expect("the page is in this pool")
    }

    /// Allocates a whole page.
    pub fn alloc_page(&mut self, pool: usize) -> Option<PageToken> {
        match self.pools[pool].cache.pop() {
            Some(token) => {
                self.pools[pool].stats.alloc_fast += 1;
                Some(token)
            }
            None => self.alloc_slow(pool),
        }
    }

    /// Allocates up to `n` whole pages, in order.
    pub fn alloc_bulk(&mut self, pool: usize, n: usize) -> Vec<PageToken> {
        let mut all = Vec::new();
        if self.setup.holders != Holders::Off {
            return (0..n).map_while(|_| self.alloc_page(pool)).collect(); // each is recorded
        }
        loop {
            let p = &mut self.pools[pool];
            let at = p.cache.len() - p.cache.len().min(n - all.len());
            let taken = p.cache.split_off(at);
            p.stats.alloc_fast += taken.len() as u64;
            all.extend(taken);
            if all.len() == n {
                return all;
            }
            let Some(token) = self.alloc_slow(pool) else { return all };
            all.push(token);
        }
    }

    fn alloc_slow(&mut self, pool: usize) -> Option<PageToken> {
        self.shrink_if_asked(pool);
        let found = self.refill(pool).or_else(|| self.reserve(pool)).or_else(|| self.whole_open_page(pool));
        self.pools[pool].stats.alloc_failed += u64::from(found.is_none());
        found
    }

    fn refill(&mut self, pool: usize) -> Option<PageToken> {
        self.poll_deferred(pool, self.setup.refill);
        let p = &mut self.pools[pool];
        let quiet = p.ring.is_empty()
            && p.lanes.iter_mut().all(|lane| {
                lane.unlist_if_over();
                lane.messages.is_empty()
            })
            && p.overflow.is_empty();
        let off_node = if quiet { None } else { self.drain(pool) };
        let p = &mut self.pools[pool];
        let page = p.cache.pop();
        match (page, off_node) {
            (Some(_), _) => p.stats.alloc_refill += 1,
            (None, None) => p.stats.alloc_empty += 1,
            (None, Some(_)) => {}
        }
        if let Some(token) = off_node {
            p.stats.alloc_waive += 1;
            self.leave(pool, token);
        }
        page
    }

    fn drain(&mut self, pool: usize) -> Option<PageToken> {
        let (lanes, first) = (self.setup.lanes, self.pools[pool].next_queue);
        for at in (first..=first + lanes).map(|at| at % (lanes + 1)) {
            if at < lanes && !self.pools[pool].lanes[at].listed {
                continue;
            }
            let overflow = if at == lanes { self.take_in_overflow(pool) } else { None };
            let off_node = overflow.or_else(|| self.drain_from(pool, (at < lanes).then_some(at)));
            if off_node.is_some() || self.pools[pool].cache.len() >= self.setup.refill {
                self.pools[pool].next_queue = at + 1;
                return off_node;
            }
        }
        None
    }

    fn drain_from(&mut self, pool: usize, lane: Option<usize>) -> Option<PageToken> {
        while self.pools[pool].cache.len() < self.setup.refill {
            let p = &mut self.pools[pool];
            let queue = lane.map_or(&mut p.ring, |at| &mut p.lanes[at].messages);
            match queue.pop_front() {
                None => break,
                Some(ModelMessage::Frags(token, n)) => {
                    if let Some(off_node) = self.frag_home(pool, token, n) {
                        return Some(off_node);
                    }
                }
                Some(ModelMessage::Page(token)) => {
                    if p.off_node {
                        return Some(token);
                    }
                    p.cache.push(token);
                }
            }
        }
        None
    }

    fn take_in_overflow(&mut self, pool: usize) -> Option<PageToken> {
        while let Some(token) = self.pools[pool].overflow.pop() {
            let n = std::mem::take(&mut self.record(pool, token).overflowed);
            if let Some(off_node) = self.frag_home(pool, token, n) {
                return Some(off_node);
            }
        }
        None
    }

    fn reserve(&mut self, pool: usize) -> Option<PageToken> {
        let want = if self.setup.order == 0 { self.setup.refill } else { 1 };
        let got = want.min(self.free) as u32;
        self.free -= got as usize;
        let p = &mut self.pools[pool];
        for token in self.next..self.next + got {
            p.records.insert(token, PageRecord::default());
            p.cache.push(token);
        }
        self.next += got;
        p.stats.hold += u64::from(got);
        let slow = u64::from(got > 0);
        let counter =
            if self.setup.order == 0 { &mut p.stats.alloc_slow } else { &mut p.stats.alloc_slow_high_order };
        *counter += slow;
        p.cache.pop()
    }

    /// The open page, if none of its fragments is out. With a `PageRef` it leaves the pool.
    fn whole_open_page(&mut self, pool: usize) -> Option<PageToken> {
        let token = self.pools[pool].open?.token;
        let record = self.record(pool, token);
        let (whole, refs) = (record.frags == 0, record.refs);
        if !whole {
            return None;
        }
        self.pools[pool].open = None;
        if refs > 0 {
            self.pools[pool].stats.recycle_released_refcnt += 1;
            self.leave(pool, token);
            return None;
        }
        self.pools[pool].stats.recycle_cached += 1;
        self.pools[pool].stats.alloc_fast += 1;
        Some(token)
    }

    /// Splits a buffer: one more fragment of a page in fragments, or the first two.
    pub fn split(&mut self, pool: usize, token: PageToken, frag: bool) {
        self.record(pool, token).frags += if frag { 1 } else { 2 };
    }

    /// Shares a fragment.
    pub fn share_frag(&mut self, pool: usize, token: PageToken) {
        self.record(pool, token).shared_frags += 1;
    }

    /// Requests a shared buffer for one of its holders; returns whether that one gets it.
    pub fn try_unique(&mut self, pool: usize, token: PageToken, frag: bool) -> bool {
        let record = self.record(pool, token);
        let alone = record.clones == 0 && (!frag || record.shared_frags == 1);
        record.shared_frags -= u32::from(alone && frag);
        alone
    }

    /// Clones a shared buffer.
    pub fn clone_shared(&mut self, pool: usize, token: PageToken) {
        self.record(pool, token).clones += 1;
    }

    /// Drops a shared buffer.
    pub fn drop_shared(&mut self, pool: usize, who: Who, token: PageToken, frag: bool) {
        let record = self.record(pool, token);
        if record.clones > 0 {
            record.clones -= 1;
        } else {
            record.shared_frags -= u32::from(frag);
            self.drop_buffer(pool, who, token, frag);
        }
    }

    /// Adds a `PageRef`.
    pub fn add_page_ref(&mut self, pool: usize, token: PageToken) {
        self.record(pool, token).refs += 1;
    }

    /// Drops a `PageRef` of a page that may have left the pool.
    pub fn drop_page_ref(&mut self, pool: usize, token: PageToken) {
        let Some(refs) = self.referenced.get_mut(&token) else {
            self.record(pool, token).refs -= 1;
            return;
        };
        *refs -= 1;
        if *refs == 0 {
            self.referenced.remove(&token);
            self.give_back(token);
        }
    }

    /// Whether a page in its pool has a `PageRef`.
    pub fn has_page_ref(&mut self, pool: usize, token: PageToken) -> bool {
        self.record(pool, token).refs > 0
    }

    /// Prefers another node; all pages are on node 0.
    pub fn update_nid(&mut self, pool: usize, node: u8) {
        self.pools[pool].off_node = node != 0;
        while let Some(token) = self.pools[pool].cache.pop() {
            self.leave(pool, token);
        }
    }

    /// Ends the pool: the pages in its cache, lanes and ring return to the provider.
    pub fn destroy(&mut self, pool: usize) {
        let p = &mut self.pools[pool];
        (p.owner, p.ended) = (None, true);
        let open = p.open.take();
        let mut pages = std::mem::take(&mut p.cache);
        let messages: Vec<_> = p.lanes.iter_mut().flat_map(|lane| lane.messages.drain(..)).collect();
        let ring: Vec<_> = p.ring.drain(..).collect();
        let overflow = std::mem::take(&mut p.overflow);
        for token in overflow {
            let n = std::mem::take(&mut self.record(pool, token).overflowed);
            pages.extend(self.frag_counted(pool, token, n).then_some(token));
        }
        for message in messages.into_iter().chain(ring) {
            match message {
                ModelMessage::Page(token) => pages.push(token),
                ModelMessage::Frags(token, n) => {
                    pages.extend(self.frag_counted(pool, token, n).then_some(token))
                }
            }
        }
        // The open page is complete now if its last fragment returned before.
        if let Some(open) = open.filter(|open| !pages.contains(&open.token)) {
            pages.extend((self.record(pool, open.token).frags == 0).then_some(open.token));
        }
        pages.into_iter().for_each(|token| self.leave(pool, token));
    }
}
