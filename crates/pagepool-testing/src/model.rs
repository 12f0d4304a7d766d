//! The oracle: what two pools over one memory must do, without threads, atomics or addresses.
//!
//! A page gets a new [`PageToken`] each time it joins a pool. The provider chooses the page, so the first
//! hand-out ties its number to the token. The model predicts counters and the place of every page.

mod shrink;

use std::collections::{HashMap, HashSet, VecDeque};

use pagepool::{DeferredStats, Holders, Inflight, OnBusy, PAGE_SIZE, Stats};

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

/// The counters that the model predicts and compares.
const PREDICTED: [&str; 14] = [
    "alloc_fast",
    "recycle_cached",
    "alloc_slow",
    "alloc_slow_high_order",
    "alloc_empty",
    "alloc_refill",
    "alloc_waive",
    "alloc_failed",
    "recycle_cache_full",
    "recycle_ring",
    "recycle_ring_full",
    "recycle_released_refcnt",
    "hold",
    "release",
];

/// The counters of a deferred queue that the model predicts and compares.
const PREDICTED_DEFERRED: [&str; 9] =
    ["queued", "reused", "kept", "skipped", "released", "freed_late", "full", "polls", "leaked"];

fn named(names: &[&'static str], counters: &[(&'static str, u64)]) -> Vec<(&'static str, u64)> {
    let value =
        |name| counters.iter().find(|(n, _)| *n == name).expect("a counter of this name is declared").1;
    names.iter().map(|&name| (name, value(name))).collect()
}

/// Two pools over one memory.
#[derive(Debug)]
pub struct PoolsModel {
    setup: Setup,
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
    /// Creates two pools, bound to the main thread.
    pub fn new(setup: Setup) -> Self {
        let pool = || PoolModel {
            owner: Some(Who::Main),
            lanes: (0..setup.lanes).map(|_| LaneModel::default()).collect(),
            ..Default::default()
        };
        Self {
            setup,
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
        PAGE_SIZE << self.setup.order
    }

    /// Alignment of fragments.
    pub fn frag_align(&self) -> usize {
        self.setup.frag_align
    }

    /// Checks the counters of a pool.
    pub fn check_stats(&self, pool: usize, seen: &Stats, when: &str) {
        let told = named(&PREDICTED, &self.pools[pool].stats.fields());
        assert_eq!(named(&PREDICTED, &seen.fields()), told, "counters of pool {pool} {when}");
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
        let told = &self.pools[pool].deferred_stats;
        if self.pools[pool].ended {
            // Each method of a `Shutdown` polls.
            (seen.polls, seen.skipped) = (told.polls, told.skipped);
        }
        let told = named(&PREDICTED_DEFERRED, &told.fields());
        assert_eq!(named(&PREDICTED_DEFERRED, &seen.fields()), told, "deferred queue of pool {pool} {when}");
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

    // ---- Allocation -----------------------------------------------------------------------------

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

    // ---- Fragments ------------------------------------------------------------------------------

    /// Allocates a fragment of `size` bytes: page, offset, true size.
    pub fn alloc_frag(&mut self, pool: usize, size: usize) -> Option<(PageToken, usize, usize)> {
        let (token, offset) = self.cut(pool, size)?;
        Some((token, offset, size))
    }

    /// Allocates a whole page (offset 0, the page's size) or a fragment.
    pub fn alloc(&mut self, pool: usize, size: usize) -> Option<(PageToken, usize, usize)> {
        let page_size = self.page_size();
        if size > page_size {
            self.pools[pool].stats.alloc_failed += 1;
            return None;
        }
        if 2 * size > page_size {
            return self.alloc_page(pool).map(|token| (token, 0, page_size));
        }
        let (token, offset) = self.cut(pool, size)?;
        let open = self.pools[pool].open.as_mut().expect("a fragment was just cut");
        if open.offset + size <= page_size {
            return Some((token, offset, size));
        }
        open.offset = page_size;
        Some((token, offset, page_size - offset))
    }

    fn cut(&mut self, pool: usize, size: usize) -> Option<(PageToken, usize)> {
        let page_size = self.page_size();
        if size == 0 || size > page_size {
            self.pools[pool].stats.alloc_failed += 1;
            return None;
        }
        let len = size.next_multiple_of(self.setup.frag_align);
        if self.pools[pool].open.is_none_or(|open| open.offset + len > page_size) {
            self.open_next(pool)?;
        }
        let open = self.pools[pool].open.as_mut().expect("just opened");
        let (token, offset) = (open.token, open.offset);
        open.offset += len;
        self.record(pool, token).frags += 1;
        Some((token, offset))
    }

    /// Closes the open page, and reopens it if all its fragments have returned; otherwise opens another.
    fn open_next(&mut self, pool: usize) -> Option<()> {
        self.take_in_leading_frags(pool);
        let closed = self.pools[pool].open.take().map(|open| open.token);
        let home = closed.filter(|&token| self.record(pool, token).frags == 0);
        let token = match home {
            Some(token) if self.record(pool, token).refs == 0 => {
                self.pools[pool].stats.recycle_cached += 1;
                self.pools[pool].stats.alloc_fast += 1;
                token
            }
            gone => {
                if let Some(token) = gone {
                    self.pools[pool].stats.recycle_released_refcnt += 1;
                    self.leave(pool, token);
                }
                self.alloc_page(pool)?
            }
        };
        self.pools[pool].open = Some(OpenPage { token, offset: 0 });
        Some(())
    }

    fn take_in_leading_frags(&mut self, pool: usize) {
        if !self.pools[pool].lanes.iter().any(|lane| lane.listed) {
            return; // lanes that were busy at the last cut stay so
        }
        let turn = self.turn_of_an_idle_lane(pool);
        for at in 0..self.setup.lanes {
            let lane = &mut self.pools[pool].lanes[at];
            let looked_at = lane.listed && (lane.busy || turn == Some(at));
            lane.busy = false;
            if !looked_at {
                continue;
            }
            while let Some(&ModelMessage::Frags(token, n)) = self.pools[pool].lanes[at].messages.front() {
                self.pools[pool].lanes[at].messages.pop_front();
                self.pools[pool].lanes[at].busy = true;
                self.frags_here(pool, token, n, true);
            }
            self.pools[pool].lanes[at].unlist_if_over();
        }
    }

    /// A cut checks one of the lanes that had no fragment at the last cut.
    fn turn_of_an_idle_lane(&mut self, pool: usize) -> Option<usize> {
        let (lanes, p) = (self.setup.lanes, &mut self.pools[pool]);
        if p.lanes.iter().filter(|lane| lane.listed).count() == 1 {
            return p.lanes.iter().position(|lane| lane.listed); // only one lane is listed: no turn passes
        }
        let mut turns = (p.next_to_cut..p.next_to_cut + lanes).map(|at| at % lanes);
        let turn = turns.find(|&at| p.lanes[at].listed && !p.lanes[at].busy)?;
        p.next_to_cut = turn + 1;
        Some(turn)
    }

    /// Counts returned fragments; true if the page is now complete.
    fn frag_counted(&mut self, pool: usize, token: PageToken, n: u32) -> bool {
        let open = self.pools[pool].open.is_some_and(|open| open.token == token);
        let record = self.record(pool, token);
        record.frags -= n;
        record.frags == 0 && !open
    }

    /// Handles fragments that returned as messages; returns their page if it is now complete and off-node.
    fn frag_home(&mut self, pool: usize, token: PageToken, n: u32) -> Option<PageToken> {
        if !self.frag_counted(pool, token, n) {
            return None;
        }
        if self.record(pool, token).refs > 0 {
            self.pools[pool].stats.recycle_released_refcnt += 1;
            self.leave(pool, token);
            return None;
        }
        let p = &mut self.pools[pool];
        if p.off_node || p.cache.len() < self.setup.cache {
            p.stats.recycle_ring += 1;
            if p.off_node {
                return Some(token);
            }
            p.cache.push(token);
        } else {
            self.ring_or_out(pool, token);
        }
        None
    }

    fn frag_here(&mut self, pool: usize, token: PageToken, to_ring: bool) {
        self.frags_here(pool, token, 1, to_ring);
    }

    fn frags_here(&mut self, pool: usize, token: PageToken, n: u32, to_ring: bool) {
        if !self.frag_counted(pool, token, n) {
            return;
        }
        if self.record(pool, token).refs > 0 {
            self.pools[pool].stats.recycle_released_refcnt += 1;
            return self.leave(pool, token);
        }
        if to_ring { self.ring_or_out(pool, token) } else { self.cache_or_ring(pool, token) }
    }

    fn frags_without_lane(&mut self, pool: usize, token: PageToken, n: u32) {
        if self.pools[pool].ended {
            return (0..n).for_each(|_| self.frag_late(pool, token));
        }
        if self.pools[pool].ring.len() < self.setup.ring {
            return self.pools[pool].ring.push_back(ModelMessage::Frags(token, n));
        }
        let record = self.record(pool, token);
        record.overflowed += n;
        if record.overflowed == n {
            self.pools[pool].overflow.push(token);
        }
    }

    fn frag_late(&mut self, pool: usize, token: PageToken) {
        if self.frag_counted(pool, token, 1) {
            self.leave(pool, token);
        }
    }

    // ---- Returns ----------------------------------------------------------------------------

    /// Drops a buffer: a fragment, or a whole page.
    pub fn drop_buffer(&mut self, pool: usize, who: Who, token: PageToken, frag: bool) {
        if frag { self.drop_frag(pool, who, token) } else { self.drop_page(pool, who, token) }
    }

    fn drop_frag(&mut self, pool: usize, who: Who, token: PageToken) {
        if self.pools[pool].owner == Some(who) {
            return self.frag_here(pool, token, false);
        }
        match self.lane_with_room(pool, who) {
            Some(_) if self.pools[pool].ended => self.frag_late(pool, token),
            Some(lane) => self.pools[pool].lanes[lane].messages.push_back(ModelMessage::Frags(token, 1)),
            None => self.frags_without_lane(pool, token, 1),
        }
    }

    /// Drops a whole page, or returns it through the ring.
    pub fn drop_page(&mut self, pool: usize, who: Who, token: PageToken) {
        if self.record(pool, token).refs > 0 {
            self.pools[pool].stats.recycle_released_refcnt += 1;
            return self.leave(pool, token);
        }
        if self.pools[pool].owner == Some(who) {
            return self.cache_or_ring(pool, token);
        }
        match self.lane_with_room(pool, who) {
            Some(lane) => self.push_lane(pool, lane, token),
            None => self.ring_or_out(pool, token),
        }
    }

    /// Drops fragments, or whole pages without a `PageRef`, together.
    pub fn drop_run(&mut self, pool: usize, who: Who, tokens: &[PageToken], frags: bool) {
        if self.pools[pool].owner == Some(who) {
            return tokens.iter().for_each(|&token| match frags {
                true => self.frag_here(pool, token, false),
                false => self.cache_or_ring(pool, token),
            });
        }
        // One lookup of the lane for all. A return to an ended pool empties the lane only afterwards.
        let lane = self.lane_of(pool, who);
        if frags && self.pools[pool].ended {
            return tokens.iter().for_each(|&token| self.frag_late(pool, token));
        }
        let room = lane.map_or(0, |at| self.setup.lane - self.pools[pool].lanes[at].messages.len());
        if frags {
            let messages = self.messages_of(tokens);
            let (fit, rest) = messages.split_at(room.min(messages.len()));
            for &(token, n) in fit {
                let lane = lane.expect("it has room");
                self.pools[pool].lanes[lane].messages.push_back(ModelMessage::Frags(token, n));
            }
            return rest.iter().for_each(|&(token, n)| self.frags_without_lane(pool, token, n));
        }
        let (fit, rest) = tokens.split_at(room.min(tokens.len()));
        fit.iter().for_each(|&token| self.push_lane(pool, lane.expect("it has room"), token));
        rest.iter().for_each(|&token| self.ring_or_out(pool, token));
    }

    /// Consecutive fragments of one page share a message, up to the page's number of base pages.
    fn messages_of(&self, frags: &[PageToken]) -> Vec<(PageToken, u32)> {
        let of_one_page = frags.chunk_by(|one, next| one == next);
        let messages = of_one_page.flat_map(|run| run.chunks(1 << self.setup.order));
        messages.map(|run| (run[0], run.len() as u32)).collect()
    }

    /// `put_ring` of a fragment or a whole page.
    pub fn put_ring(&mut self, pool: usize, who: Who, token: PageToken, frag: bool) {
        match (frag, self.pools[pool].owner == Some(who)) {
            (true, true) => self.frag_here(pool, token, true),
            (true, false) => self.frags_without_lane(pool, token, 1),
            (false, _) if self.record(pool, token).refs > 0 => self.drop_page(pool, who, token),
            (false, _) => self.ring_or_out(pool, token),
        }
    }

    fn cache_or_ring(&mut self, pool: usize, token: PageToken) {
        let p = &mut self.pools[pool];
        if p.cache.len() < self.setup.cache {
            p.cache.push(token);
            p.stats.recycle_cached += 1;
        } else {
            p.stats.recycle_cache_full += 1;
            self.ring_or_out(pool, token);
        }
    }

    /// Puts a page into a lane with room. In an ended pool the thread that returned it takes it out again.
    fn push_lane(&mut self, pool: usize, lane: usize, token: PageToken) {
        self.pools[pool].stats.recycle_ring += 1;
        if self.pools[pool].ended {
            return self.leave(pool, token);
        }
        self.pools[pool].lanes[lane].messages.push_back(ModelMessage::Page(token));
    }

    /// Puts a page into the ring, or out of the pool.
    pub fn ring_or_out(&mut self, pool: usize, token: PageToken) {
        let p = &mut self.pools[pool];
        if !p.ended && p.ring.len() < self.setup.ring {
            p.stats.recycle_ring += 1;
            return p.ring.push_back(ModelMessage::Page(token));
        }
        let counter = if p.ended { &mut p.stats.recycle_ring } else { &mut p.stats.recycle_ring_full };
        *counter += 1;
        self.leave(pool, token);
    }

    fn lane_with_room(&mut self, pool: usize, who: Who) -> Option<usize> {
        let lane = self.lane_of(pool, who)?;
        (self.pools[pool].lanes[lane].messages.len() < self.setup.lane).then_some(lane)
    }

    fn lane_of(&mut self, pool: usize, who: Who) -> Option<usize> {
        let p = &mut self.pools[pool];
        let thread_lane = &mut p.thread_lanes[who as usize];
        if thread_lane.lane.is_some() {
            return thread_lane.lane;
        }
        if thread_lane.wait > 0 {
            thread_lane.wait -= 1;
            return None;
        }
        thread_lane.lane = p.lanes.iter().position(|lane| !lane.claimed);
        match thread_lane.lane {
            Some(at) => {
                p.lanes[at].claimed = true;
                p.lanes[at].listed = true;
            }
            None => thread_lane.wait = RETRY,
        }
        thread_lane.lane
    }

    /// Removes a page from its pool: to the provider, or to the holders of its `PageRef`s.
    fn leave(&mut self, pool: usize, token: PageToken) {
        self.pools[pool].stats.release += 1;
        let record = self.pools[pool].records.remove(&token).expect("the page is in this pool");
        if record.refs > 0 {
            self.referenced.insert(token, record.refs);
        } else {
            self.give_back(token);
        }
    }

    fn give_back(&mut self, token: PageToken) {
        self.free += 1;
        self.gone.push(token);
    }

    // ---- Deferred -------------------------------------------------------------------------------

    /// Queues a buffer, in use or not; returns whether there was room.
    pub fn defer(&mut self, pool: usize, token: PageToken, frag: bool, cookie: u64, busy: bool) -> bool {
        let p = &mut self.pools[pool];
        if p.queued.len() == self.setup.defer_capacity {
            p.deferred_stats.full += u64::from(self.setup.defer_capacity > 0);
            return false;
        }
        p.deferred_stats.queued += 1;
        p.queued.push_back(DeferredPage { token, frag, cookie });
        if busy {
            self.busy.insert(cookie);
        }
        true
    }

    /// Ends a user's use of a buffer.
    pub fn user_done(&mut self, cookie: u64) {
        self.busy.remove(&cookie);
    }

    /// `poll_deferred`: returns how many buffers were returned.
    pub fn poll(&mut self, pool: usize) -> usize {
        let home = self.poll_deferred(pool, usize::MAX);
        self.shrink_if_asked(pool);
        home
    }

    /// One poll of at most `most` buffers, by the owner. Returns how many buffers were returned.
    fn poll_deferred(&mut self, pool: usize, most: usize) -> usize {
        let p = &mut self.pools[pool];
        if p.queued.is_empty() && p.released.is_empty() {
            return 0;
        }
        p.deferred_stats.polls += 1;
        let home = self.ask_in_order(pool, most);
        self.ask_released(pool, most);
        home
    }

    fn ask_in_order(&mut self, pool: usize, most: usize) -> usize {
        let who = self.pools[pool].owner.expect("it is being polled");
        let (mut home, mut past, mut released) = (0, 0, false);
        for _ in 0..most.min(self.pools[pool].queued.len()) {
            let p = &mut self.pools[pool];
            let asked = p.queued[past];
            if !self.busy.contains(&asked.cookie) {
                p.queued.remove(past);
                p.deferred_stats.reused += 1;
                home += 1;
                self.drop_buffer(pool, who, asked.token, asked.frag);
                continue;
            }
            match self.setup.on_busy {
                OnBusy::Skip { ahead } if past < ahead => {
                    p.deferred_stats.skipped += 1;
                    past += 1;
                }
                OnBusy::Release if !released && p.released.len() < self.setup.defer_capacity => {
                    p.deferred_stats.released += 1;
                    p.queued.pop_front();
                    p.released.push_back(asked);
                    released = true;
                    self.add_page_ref(pool, asked.token);
                    self.drop_buffer(pool, who, asked.token, asked.frag);
                }
                _ => {
                    p.deferred_stats.kept += 1;
                    break;
                }
            }
        }
        home
    }

    fn ask_released(&mut self, pool: usize, most: usize) {
        for _ in 0..most.min(self.pools[pool].released.len()) {
            let asked = self.pools[pool].released.pop_front().expect("the model has as many");
            if self.busy.contains(&asked.cookie) {
                self.pools[pool].released.push_back(asked);
            } else {
                self.pools[pool].deferred_stats.freed_late += 1;
                self.drop_page_ref(pool, asked.token);
            }
        }
    }

    /// The `Shutdown` of a pool polls its whole deferred queue.
    pub fn poll_ended(&mut self, pool: usize, who: Who) {
        if !self.pools[pool].ended {
            return;
        }
        for asked in std::mem::take(&mut self.pools[pool].queued) {
            if self.busy.contains(&asked.cookie) {
                self.pools[pool].queued.push_back(asked);
            } else {
                self.pools[pool].deferred_stats.reused += 1;
                self.drop_buffer(pool, who, asked.token, asked.frag);
            }
        }
        self.ask_released(pool, usize::MAX);
    }

    // ---- Split, shared, page references, the rest --------------------------------------------------

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
