//! The arena: the page allocator of user space.
//!
//! What   one range of addresses, committed in regions on demand, cut into pages of order 0 to 10 for pools
//!        of several orders. Linux: `alloc_pages_bulk_node`, `__free_pages`.
//! Who    any thread. Two locks: that of the free pages (short, no callback under it), and the growth lock,
//!        under which regions are committed, faulted in and mapped by domains. While it maps, a domain may
//!        drop buffers (`release` takes the first lock only), and request pages (it gets free ones, without
//!        growth). It must not wait for another thread that requests pages.
//! I6     a region's pages enter the free lists after every domain of the area has mapped it.
//! Cost   `reserve` and `release` of 64 pages: one lock and a copy of 256 bytes each; no system call, no
//!        allocation.
//! Fork   a child does not inherit the regions (`MADV_DONTFORK`), except with `inherit_on_fork`: it faults
//!        if it touches a page. It may not drop handles that were copied into it: let it `exec` or `_exit`.

// UNSAFETY: one constructor trusts the caller's memory; the arena is a provider, which pools trust.
#![expect(unsafe_code)]

pub(crate) mod backing;
pub(crate) mod buddy;
pub(crate) mod free_pages;
pub(crate) mod memory;
pub(crate) mod params;

use std::any::Any;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::Error;
use crate::mem::area::Area;
use crate::mem::arena::backing::Backing;
use crate::mem::arena::free_pages::{FreePages, Search};
use crate::mem::arena::memory::ArenaMemory;
use crate::mem::arena::params::{ArenaParams, Description, NodePolicy};
use crate::mem::page::{BasePage, MAX_ORDER, NodeId, PAGE_SIZE, PageIdx, system_page_size};
use crate::mem::provider::Provider;
use crate::mem::topology::Topology;
use crate::probes;
use crate::sys::memory::{Reservation, raise_memlock_limit};
use crate::sys::published_entry::{PublishedEntry, publish_entry};
use crate::sys::published_memory::PublishedMemory;
use crate::sys::sync::Lock;

/// The page allocator of user space: one range of addresses, committed in regions of 4 MiB on demand, cut
/// into pages of order 0 to 10. It is a [`Provider`] for one or more pools. Any thread.
///
/// Idle pages of one order can become pages of another: larger ones are split at once, smaller ones
/// coalesced if nothing else serves a request. Coalescing moves every idle page, so after it failed the
/// arena refuses such requests until a page returns. Then it coalesces again when a block's worth more pages
/// are free than before, or when refusals and returned pages have paid for it: one refusal, or 64 returned
/// pages, for each idle page to move. So at most about 2,000 requests miss memory that could be coalesced.
/// The last request before the arena grows, or before an owner sleeps in a pool with `wakeup`, misses none.
///
/// ```
/// use pagepool::{Arena, ArenaParams, PageIdx, Provider};
///
/// let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
/// let mut pages = [PageIdx(0); 8];
/// assert_eq!(arena.reserve(0, None, &mut pages), 8);
/// assert_eq!(arena.pages_out(), 8);
/// // SAFETY: they were reserved just now, and nobody uses them.
/// unsafe { arena.release(0, &pages) };
/// assert_eq!(arena.pages_out(), 0);
/// # Ok::<(), pagepool::Error>(())
/// ```
#[derive(Debug)]
pub struct Arena {
    area: Arc<Area>,
    free: FreePages,
    growth: Mutex<RegionGrowth>,
    /// Separate, so that `description` does not wait for growth.
    report: Lock<PlacementReport>,
    /// Uncommitted regions; read without the growth lock.
    uncommitted: AtomicU32,
    committed_bytes: AtomicU64,
    entry: Option<PublishedEntry>,
    /// For each node, the others by distance, nearest first.
    others: Box<[(NodeId, Vec<NodeId>)]>,
    /// Trims begun plus trims ended: odd while one holds regions that it may put back. Written under the
    /// growth lock.
    trims: AtomicU32,
    // After all fields that use it, so dropped after them.
    memory: ArenaMemory,
    /// The memory's owner, if given: dropped last, never used. In a lock, because the arena is `Sync` and
    /// the owner need not be.
    _owner: Option<Mutex<Box<dyn Any + Send>>>,
}

/// Publishes an arena.
fn entry(of: &Description, area: u64) -> Option<PublishedEntry> {
    PublishedMemory::current()?;
    let (max_bytes, asked) = (of.max_bytes.to_string(), of.asked.to_string());
    let (got, node) = (of.got.to_string(), of.node.to_string());
    let mut params = vec![("max_bytes", &*max_bytes), ("backing", &asked), ("got", &got), ("node", &node)];
    params.extend(of.why.as_deref().map(|why| ("why", why)));
    let entry = publish_entry("arena", area, 0, &of.name, &params, &["committed_bytes"])?;
    entry.set(0, of.committed_bytes);
    Some(entry)
}

#[derive(Debug)]
struct RegionGrowth {
    /// Per region.
    committed: Box<[bool]>,
    /// Nodes for which a committed region brought no page. Not tried again before a trim; else each request
    /// for such a node would commit another region.
    barren: Vec<NodeId>,
}

#[derive(Debug, Default)]
struct PlacementReport {
    last_error: Option<Arc<Error>>,
    /// The kind of memory used instead of the requested one, and why.
    fell_back: Option<(Backing, String)>,
    notes: Vec<String>,
}

impl Arena {
    /// Reserves the addresses and commits the first region (all with `commit_all`), so missing memory is an
    /// error here, not later.
    ///
    /// Errors: [`Error::Parameter`] with field, value and range; [`Error::System`] with the call and the
    /// remedy.
    ///
    /// Cost: a few system calls; with `prefault` or `mlock`, the time to clear the memory.
    pub fn new(params: ArenaParams) -> Result<Arc<Self>, Error> {
        let is_own = params.backing != Backing::Caller;
        let must_be = "another backing: use Arena::over_caller_memory for the caller's memory";
        Error::require(is_own, "backing", "Caller", must_be)?;
        let base_page = params.check()?;
        // The kernel works in whole pages: regions, files and protections end at page bounds.
        let max_bytes = params.max_bytes.next_multiple_of(system_page_size() as u64);
        Self::build(ArenaMemory::reserve(ArenaParams { max_bytes, ..params })?, base_page, None)
    }

    /// An arena over the caller's memory: `len_bytes` at `addr`, both multiples of 4096, all of it
    /// committed. A UMEM, or another domain that maps for a device, may require whole pages of the
    /// [system](crate::system_page_size). The parameters `backing`, `max_bytes`, `node` and
    /// `inherit_on_fork` have no effect. Pages of order `k` are aligned to `page_size << k` from the start of
    /// the memory, so align it to 4 MiB if that matters.
    ///
    /// # Safety
    /// * The memory must be readable, writable and initialised (with any bytes, but not left undefined by an
    ///   allocator) until the arena is dropped: buffers are read as `&[u8]`.
    /// * Until then no other code may access it, except through this arena's pages.
    pub unsafe fn over_caller_memory(
        addr: *mut u8,
        len_bytes: usize,
        params: ArenaParams,
    ) -> Result<Arc<Self>, Error> {
        // SAFETY: the caller promises it until the arena is dropped; the owner is nothing.
        unsafe { Self::over_owned_memory((), addr, len_bytes, params) }
    }

    /// An arena over memory of `owner`, such as another crate's UMEM, a mapping or a `Vec`; otherwise
    /// [`over_caller_memory`](Self::over_caller_memory). The arena drops `owner` last, after the last buffer
    /// of its pools has returned. So the memory exists as long as any buffer, on any thread.
    ///
    /// # Safety
    /// * The memory must be readable, writable and initialised until `owner` is dropped; moving `owner` must
    ///   not move it.
    /// * Until then no other code may access it, except through this arena's pages.
    ///
    /// ```
    /// use pagepool::{Arena, ArenaParams, Pool, PoolParams};
    /// let mut memory = vec![0u8; 17 << 12];
    /// let aligned = memory.as_mut_ptr().map_addr(|addr| addr.next_multiple_of(4096));
    /// // SAFETY: 16 pages from there lie in the vector's allocation, which does not move, and which nobody
    /// // else touches.
    /// let arena = unsafe { Arena::over_owned_memory(memory, aligned, 16 << 12, ArenaParams::default()) }?;
    /// let pool = Pool::new(PoolParams::default(), arena)?.bind();
    /// let mut late = pool.alloc_page().unwrap();
    /// drop(pool);
    /// late.bytes_mut().unwrap().fill(7); // the vector goes with it
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    pub unsafe fn over_owned_memory(
        owner: impl Send + 'static,
        addr: *mut u8,
        len_bytes: usize,
        params: ArenaParams,
    ) -> Result<Arc<Self>, Error> {
        let is_whole = |number: usize| number > 0 && number.is_multiple_of(PAGE_SIZE);
        let must_be = "a multiple of 4096, and not 0";
        Error::require(is_whole(addr as usize), "addr", format_args!("{addr:p}"), must_be)?;
        Error::require(is_whole(len_bytes), "len_bytes", len_bytes, must_be)?;
        let params = ArenaParams {
            max_bytes: len_bytes as u64,
            backing: Backing::Caller,
            node: NodePolicy::Any,
            commit_all: true,
            ..params
        };
        let base_page = params.check()?;
        // SAFETY: the caller promises this.
        let space = unsafe { Reservation::over_caller_memory(addr as usize, len_bytes) };
        Self::build(ArenaMemory::over(space, params), base_page, Some(Mutex::new(Box::new(owner))))
    }

    fn build(
        memory: ArenaMemory,
        base_page: BasePage,
        owner: Option<Mutex<Box<dyn Any + Send>>>,
    ) -> Result<Arc<Self>, Error> {
        let params = &memory.params;
        let (base, shift, node) = (memory.base(), params.region_shift(), params.uniform_node());
        // SAFETY: the addresses are reserved, or the caller's; a region is added when its memory is
        // committed.
        let area = unsafe { Area::readable_in(base_page, base, params.max_bytes, shift, node) }?;
        let highest = params.topology.nodes().last().map_or(0, |node| usize::from(node.0));
        if params.mlock {
            // If the limit may not be raised, mlock's error says so.
            let _ = raise_memlock_limit(params.max_bytes);
        }
        let nodes = params.topology.nodes();
        let others = nodes.into_iter().map(|node| (node, params.topology.others_by_distance(node)));
        let mut this = Self {
            others: others.collect(),
            free: FreePages::new(&area, highest + 1)?,
            uncommitted: AtomicU32::new(area.regions() as u32),
            growth: Mutex::new(RegionGrowth {
                committed: vec![false; area.regions()].into(),
                barren: Vec::new(),
            }),
            report: Lock::new(PlacementReport::default()),
            area,
            committed_bytes: AtomicU64::new(0),
            entry: None,
            trims: AtomicU32::new(0),
            memory,
            _owner: owner,
        };
        let first = if this.params().commit_all { this.area.regions() } else { 1 };
        let mut growth = this.lock_growth();
        (0..first).try_for_each(|region| this.commit(&mut growth, region, None))?;
        drop(growth);
        // The kind of memory is known now.
        this.entry = entry(&this.description(), this.area.id());
        Ok(Arc::new(this))
    }

    fn params(&self) -> &ArenaParams {
        &self.memory.params
    }

    /// Adds to the committed bytes, or subtracts (wrapping).
    fn count_committed(&self, bytes: u64) {
        self.committed_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.entry.iter().for_each(|entry| entry.add(0, bytes));
    }

    /// Base pages that pools hold. Takes the lock of the free pages.
    pub fn pages_out(&self) -> u64 {
        self.free.out()
    }

    /// The NUMA nodes that this arena uses.
    pub fn topology(&self) -> &Topology {
        &self.params().topology
    }

    /// The descriptor of a memfd arena, for a peer process. Offsets in file and area are equal.
    pub fn memfd(&self) -> Option<BorrowedFd<'_>> {
        self.memory.file()
    }

    /// Why the arena last failed to grow; `None` once it grows again. Reaching `max_bytes` is no error.
    pub fn last_growth_error(&self) -> Option<Arc<Error>> {
        self.report.lock().last_error.clone()
    }

    /// Frees regions whose pages are all free and which no domain maps; returns how many bytes. They are
    /// committed again on demand. An arena with `commit_all` keeps everything. Any thread.
    pub fn trim(&self) -> u64 {
        if self.params().commit_all || self.area.is_calling_here() {
            return 0;
        }
        let mut growth = self.lock_growth();
        self.trims.fetch_add(1, Ordering::Release); // pairs with take()
        let there = (0..growth.committed.len()).rev().filter(|&r| growth.committed[r]);
        let gone: Vec<_> = there.filter(|&region| self.give_back(region)).collect();
        gone.iter().for_each(|&region| growth.committed[region] = false);
        growth.barren.clear();
        self.uncommitted.fetch_add(gone.len() as u32, Ordering::Relaxed);
        let len_bytes: u64 = gone.iter().map(|&region| self.area.region(region).len_bytes()).sum();
        self.count_committed(len_bytes.wrapping_neg());
        let committed = self.committed_bytes.load(Ordering::Relaxed);
        self.trims.fetch_add(1, Ordering::Release); // pairs with grow_and_take()
        drop(growth);
        // Requests during the trim found neither its pages nor a region to grow by, even if no region was
        // freed.
        self.area.starved.wake_all();
        if len_bytes > 0 {
            probes::trim(self.area.id(), len_bytes, committed);
        }
        len_bytes
    }

    fn give_back(&self, region: usize) -> bool {
        if !self.free.withdraw(region) {
            return false;
        }
        // SAFETY: this is the provider; every page of the region was free, and is in no free list now.
        if !unsafe { self.area.remove_region(region) } {
            self.free.add_region(region);
            return false;
        }
        let done = self.memory.decommit(self.bytes_of(region));
        debug_assert!(done.is_ok(), "memory that was reserved can be reserved again: {done:?}");
        true
    }

    /// Describes this arena's memory, and which requests were not available.
    pub fn description(&self) -> Description {
        let report = self.report.lock();
        let ignored = self.params().topology.nodes_ignored().map(str::to_owned);
        let (got, why) = report.fell_back.clone().unzip();
        Description {
            name: self.params().name.clone(),
            asked: self.params().backing,
            got: got.unwrap_or(self.params().backing),
            why,
            node: self.params().node,
            ignored: ignored.into_iter().collect(),
            committed_bytes: self.committed_bytes.load(Ordering::Relaxed),
            max_bytes: self.params().max_bytes,
            notes: report.notes.clone(),
        }
    }

    fn bytes_of(&self, region: usize) -> Range<usize> {
        let region = self.area.region(region);
        region.offset() as usize..(region.offset() + region.len_bytes()) as usize
    }

    fn lock_growth(&self) -> MutexGuard<'_, RegionGrowth> {
        self.growth.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Commits a region, records its nodes, maps it in every domain, and adds its pages to the free lists.
    /// On error changes nothing.
    fn commit(&self, growth: &mut RegionGrowth, region: usize, node: Option<NodeId>) -> Result<(), Error> {
        let at = self.bytes_of(region);
        let len_bytes = at.len() as u64;
        self.area.growth_allowed()?;
        let fell_back = self.memory.commit(at.clone(), self.params().place(node))?;
        self.note_nodes(region);
        // SAFETY: this is the provider; the region was committed just now, as zeroes or as the caller's
        // memory.
        if let Err(error) = unsafe { self.area.add_region(region) } {
            let _ = self.memory.decommit(at); // report the domain's error
            return Err(error);
        }
        if let Some(fell_back) = fell_back {
            self.report.lock().fell_back.get_or_insert(fell_back);
        }
        growth.committed[region] = true;
        self.uncommitted.fetch_sub(1, Ordering::Relaxed);
        self.count_committed(len_bytes);
        self.free.add_region(region);
        Ok(())
    }

    /// Records the node of each page.
    fn note_nodes(&self, region: usize) {
        let numbers = self.area.pages_of(region);
        let (first, pages) = (numbers.start, numbers.len());
        if let Some(node_of) = self.params().topology.pretended(self.area.pages()) {
            numbers.map(PageIdx).for_each(|page| self.set_node(page, node_of(page)));
        } else if self.params().queries_nodes() {
            let here = self.current_node();
            let note = |i: usize, node: i32| {
                self.set_node(PageIdx(first + i as u32), u8::try_from(node).map_or(here, NodeId));
            };
            if let Err(error) = crate::sys::memory::query_nodes(
                self.memory.base() + self.bytes_of(region).start,
                pages,
                self.params().page_size,
                note,
            ) {
                (0..pages).for_each(|i| self.set_node(PageIdx(first + i as u32), here));
                self.report.lock().notes =
                    vec![format!("the nodes of pages are guesses: move_pages: {error}")];
            }
        }
    }

    fn set_node(&self, page: PageIdx, node: NodeId) {
        // SAFETY: this is the provider; the region's pages enter the free lists later.
        unsafe { self.area.set_node(page, node) };
    }

    /// A region that could bring pages of `order` on `node`.
    fn candidate(&self, growth: &RegionGrowth, order: u8, node: Option<NodeId>) -> Option<usize> {
        if node.is_some_and(|node| growth.barren.contains(&node)) {
            return None;
        }
        let fits =
            |&region: &usize| !growth.committed[region] && self.area.pages_of(region).len() >= 1 << order;
        let brings = |&region: &usize| node.is_none_or(|node| self.could_bring(region, node));
        (0..growth.committed.len()).filter(fits).find(brings)
    }

    fn could_bring(&self, region: usize, node: NodeId) -> bool {
        if let Some(only) = self.params().uniform_node() {
            return only == node;
        }
        match self.params().topology.pretended(self.area.pages()) {
            Some(node_of) => self.area.pages_of(region).any(|page| node_of(PageIdx(page)) == node),
            None => self.params().node == NodePolicy::Local || node == self.current_node(),
        }
    }

    /// Takes pages and commits regions until `out` is full or no more are available.
    #[cold]
    fn grow_and_take(&self, trims: u32, order: u8, node: Option<NodeId>, out: &mut [PageIdx]) -> usize {
        if self.area.is_calling_here() {
            return 0;
        }
        // A trim held pages when this thread found none: the growth lock waits for its end.
        let is_trimmed = trims % 2 == 1 || self.trims.load(Ordering::Acquire) != trims;
        if !is_trimmed && self.uncommitted.load(Ordering::Relaxed) == 0 {
            return 0;
        }
        if !is_trimmed && self.area.is_fixed() {
            self.note_that_it_is_fixed();
            return 0;
        }
        let mut growth = self.lock_growth();
        let before = self.committed_bytes.load(Ordering::Relaxed);
        let taken = self.take_growing(&mut growth, order, node, out);
        let now = self.committed_bytes.load(Ordering::Relaxed);
        drop(growth);
        if now != before {
            self.area.starved.wake_all(); // without the lock
            probes::grow(self.area.id(), now - before, now);
        }
        taken
    }

    fn take_growing(
        &self,
        growth: &mut RegionGrowth,
        order: u8,
        node: Option<NodeId>,
        out: &mut [PageIdx],
    ) -> usize {
        let mut taken = 0;
        let mut grown = false;
        loop {
            let region = self.candidate(growth, order, node);
            // Another thread may have grown the arena. Before this one does, free pages are merged.
            let search = if region.is_some() { Search::Thorough } else { Search::Usual };
            let more = self.free.take(order, node, &mut out[taken..], search);
            taken += more;
            if taken == out.len() {
                return taken;
            }
            if grown && more == 0 {
                growth.barren.extend(node.filter(|_| order == 0));
                return taken;
            }
            let Some(region) = region else { return taken };
            let done = self.commit(growth, region, node);
            grown = done.is_ok();
            self.report.lock().last_error = done.err().map(Arc::new);
            if !grown {
                return taken;
            }
        }
    }

    /// Records once why the arena cannot grow; every failing allocation comes here.
    fn note_that_it_is_fixed(&self) {
        let is_noted = matches!(self.report.lock().last_error.as_deref(), Some(Error::Fixed { .. }));
        if !is_noted {
            // Before the report's lock: a domain called under the area's lock may call `description`.
            let error = self.area.growth_allowed().err();
            self.report.lock().last_error = error.map(Arc::new);
        }
    }

    /// Takes pages of the nearest other node that has any or can grow, like the fallback list of Linux's
    /// bulk allocation (mm/page_alloc.c:alloc_pages_bulk_noprof).
    #[cold]
    fn take_off_node(&self, order: u8, node: NodeId, out: &mut [PageIdx]) -> usize {
        let mut others = self.others.iter().filter(|(of, _)| *of == node).flat_map(|(_, others)| others);
        let taken =
            others.find_map(|&other| Some(self.take(order, Some(other), out)).filter(|&taken| taken > 0));
        taken.unwrap_or_else(|| self.take(order, None, out)) // the topology does not list the node
    }

    fn take(&self, order: u8, node: Option<NodeId>, out: &mut [PageIdx]) -> usize {
        let trims = self.trims.load(Ordering::Acquire);
        let taken = self.free.take(order, node, out, Search::Usual);
        if taken == out.len() {
            return taken;
        }
        taken + self.grow_and_take(trims, order, node, &mut out[taken..])
    }
}

// SAFETY: one area; `FreePages` gives each page of the committed regions once and aligned; the memory is
// reserved or the caller's, and outlives the area's being closed in `drop`.
unsafe impl Provider for Arena {
    fn area(&self) -> &Arc<Area> {
        &self.area
    }

    fn reserve(&self, order: u8, node: Option<NodeId>, out: &mut [PageIdx]) -> usize {
        if order > MAX_ORDER || out.is_empty() {
            return 0;
        }
        let node = node.filter(|_| self.params().topology.nodes_ignored().is_none());
        let taken = self.take(order, node, out);
        match node {
            Some(node) if taken == 0 => self.take_off_node(order, node, out),
            _ => taken,
        }
    }

    unsafe fn release(&self, order: u8, pages: &[PageIdx]) {
        self.free.give(order, pages);
    }

    fn available(&self, order: u8) -> usize {
        if order > MAX_ORDER {
            return 0;
        }
        // Called by every failing allocation: no lock except the free pages', and no callback.
        let may_grow = !self.area.is_fixed() && !self.area.is_calling_here();
        let uncommitted = if may_grow { self.uncommitted.load(Ordering::Relaxed) as usize } else { 0 };
        let each = 1usize << self.area.pages_shift() >> order;
        let most = self.area.pages() as usize >> order;
        (self.free.count(order) + uncommitted * each).min(most)
    }

    fn current_node(&self) -> NodeId {
        self.params().topology.current_node()
    }

    fn has_node(&self, node: NodeId) -> bool {
        let topology = &self.params().topology;
        topology.nodes_ignored().is_some() || topology.nodes().contains(&node)
    }

    fn describe(&self) -> String {
        self.description().to_string()
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: this is the provider, being dropped: every page out keeps it alive, so none is. I6: after
        // this no domain maps its addresses.
        unsafe { self.area.close() };
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_refused_lock_is_an_error_with_limit_and_remedy() {
        let refused = || {
            if !crate::sys::call::drop_privileges_of_this_thread() {
                return None;
            }
            Some(Arena::new(ArenaParams {
                max_bytes: 1 << 30,
                mlock: true,
                commit_all: true,
                ..Default::default()
            }))
        };
        let Some(made) = std::thread::spawn(refused).join().unwrap() else {
            return println!("SKIP: needs root, to become nobody");
        };
        let Err(error) = made else {
            return println!("SKIP: nobody may lock 1 GiB here");
        };
        assert!(matches!(error, Error::System { call: "mlock", .. }), "{error}");
        let text = error.to_string();
        assert!(
            text.contains("RLIMIT_MEMLOCK is ") && text.contains("this arena locks 1 GiB: raise it"),
            "{text}"
        );
        assert!(text.contains("ulimit -l 1048576") && text.contains("leave mlock off"), "{text}");
    }

    /// Two nodes, as if listed by the machine; all memory is on its real one.
    fn two_listed() -> Option<Topology> {
        let calls = crate::sys::memory::probe_numa_calls();
        calls.is_ok().then(|| Topology::from_probe(Ok(()), Ok("0-1".into()), |_| String::new()))
    }

    #[test]
    fn with_several_nodes_the_node_of_each_page_is_queried() {
        let Some(topology) = two_listed() else { return println!("SKIP: no NUMA calls") };
        for node in [NodePolicy::Any, NodePolicy::Local] {
            let arena =
                ArenaParams { node, topology: topology.clone(), max_bytes: 64 << 20, ..Default::default() };
            let arena = Arena::new(arena).unwrap();
            assert_eq!(arena.description().notes, [""; 0], "move_pages answers");
            let here = arena.current_node();
            let mut pages = [PageIdx(0); 64];
            assert_eq!(arena.reserve(0, Some(here), &mut pages), 64);
            assert_eq!(arena.area().node_of(pages[9]), here);
        }
    }

    #[test]
    fn a_node_that_has_no_memory_is_not_grown_for_again_and_again() {
        let Some(topology) = two_listed() else { return println!("SKIP: no NUMA calls") };
        let params =
            ArenaParams { topology: topology.with_current_node(Arc::new(1.into())), ..Default::default() };
        let arena = Arena::new(params).unwrap();
        let mut pages = [PageIdx(0); 8];
        if arena.area().node_of(PageIdx(0)) != NodeId(0) {
            return println!("SKIP: this machine has memory on node 1");
        }
        for got in pages.chunks_mut(2) {
            assert_eq!(arena.reserve(0, Some(NodeId(1)), got), got.len(), "pages of another node");
        }
        assert_eq!(arena.description().committed_bytes, 8 << 20, "one region at creation, one in vain");
    }

    #[test]
    fn binding_to_a_node_without_memory_is_refused_with_a_remedy() {
        let Some(topology) = two_listed() else { return println!("SKIP: no NUMA calls") };
        let params = ArenaParams { topology, node: NodePolicy::Bind(NodeId(1)), ..Default::default() };
        match Arena::new(params) {
            Err(error) => {
                assert!(error.to_string().starts_with("mbind failed: node 1 does not provide"), "{error}")
            }
            Ok(_) => println!("SKIP: this machine has a node 1"),
        }
    }
}
