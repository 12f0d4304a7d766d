//! An area: the numbered pages of one provider, their records, and the domains that map them.
//!
//! What   one range of pages in regions, some of them present. Per page: a record, the pool while it
//!        is out as a raw address, marks of its fragments that are, and a node. Per domain: a [`Mapping`].
//! Who    any thread. Attaching, detaching, adding and removing regions take the area's lock, which is no
//!        pool's; the rest takes none. Domains map under it and unmap without it.
//! End    the provider closes the area when it is dropped. Then the area has records but no regions.
//! I3     an area outlives every handle to its pages: pools and page references hold it by `Arc`.

// UNSAFETY: an area trusts its provider about the memory, and follows no address itself.
#![expect(unsafe_code)]

use std::fmt;
use std::ops::{DerefMut, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize};

use crate::error::Error;
use crate::mem::dma::{DmaDomain, DomainId, Mapping, Region};
use crate::mem::page::{
    BasePage, LEFT, MAX_ORDER, MAX_PAGES, NodeId, PAGE_SIZE, PageIdx, PageMeta, REF_COUNT,
};
use crate::mem::starved::StarvedPools;
use crate::sys::sync::{AtomicU32, AtomicU64, Backoff, Lock, Ordering};
use crate::sys::table::Table;

/// log2 of the default region size: 4 MiB, as large as the largest page or larger, so no page crosses a
/// region.
pub const REGION_SHIFT: u32 = 22;

/// log2 of the bytes whose marks are in one word of [`RawOut`].
pub(crate) const MARKED_SHIFT: u32 = 12;

const _: () = assert!(PAGE_SIZE << MAX_ORDER == 1 << REGION_SHIFT, "a page of MAX_ORDER fills a region");

/// The numbered pages of one [`Provider`](crate::Provider), with a record each.
pub struct Area {
    id: u64,
    /// Address of the first byte; 0 for memory that the CPU cannot read.
    pub(crate) base: usize,
    len_bytes: u64,
    region_shift: u32,
    base_page: BasePage,
    meta: Table<PageMeta>,
    /// Per page: the pool's id while a plain whole page of it is out as a raw address, else 0 (raw_line.rs).
    pub(crate) raw_pages: Table<AtomicU32>,
    /// The marks of all other raw addresses that are out.
    pub(crate) raw_out: RawOut,
    shared_frags: Table<AtomicU32>,
    nodes: Nodes,
    /// Per node, whether any page was ever on it, if nodes differ.
    on_nodes: [AtomicBool; 256],
    /// Mappings that fix the area; written under the lock of `regions`.
    fixing: AtomicUsize,
    pub(crate) starved: StarvedPools,
    regions: Lock<Regions>,
    /// The thread that calls domains under the lock of `regions`, by the address of its [`MARK`]; 0 = none.
    calling: AtomicUsize,
}

std::thread_local! {
    /// Its address identifies a thread.
    static MARK: u8 = const { 0 };
}

fn this_thread() -> usize {
    MARK.with(|mark| std::ptr::from_ref(mark) as usize)
}

/// Its thread calls domains under the area's lock.
struct Calling<'a>(&'a AtomicUsize);

impl Drop for Calling<'_> {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// Two bits per 64 bytes of page: where a raw address that is out begins, and where its fragment ends. For
/// fragments, and for whole pages whose record is needed, which end with their page and have no end mark.
pub(crate) struct RawOut {
    pub(crate) start: Table<AtomicU64>,
    pub(crate) last: Table<AtomicU64>,
}

enum Nodes {
    /// All pages are on this node.
    One(NodeId),
    Each(Table<AtomicU8>),
}

struct Regions {
    present: Box<[bool]>,
    mappings: Vec<Arc<Mapping>>,
    /// Off the list, not yet unmapped.
    going: Vec<Going>,
    /// The provider was dropped: no region is present, or will be.
    closed: bool,
}

struct Going {
    mapping: Arc<Mapping>,
    thread: usize,
}

impl Regions {
    /// Mappings that this thread unmaps (their domains called it), or those that other threads unmap.
    fn going(&self, on_this_thread: bool) -> impl Iterator<Item = &Arc<Mapping>> {
        let here = this_thread();
        let is_such = move |going: &&Going| (going.thread == here) == on_this_thread;
        self.going.iter().filter(is_such).map(|going| &going.mapping)
    }

    fn refuse_closed(&self) -> Result<(), Error> {
        if self.closed {
            let what =
                "the provider of this area was dropped with its memory: use an area of a live provider";
            return Err(Error::Unsupported { what: what.into() });
        }
        Ok(())
    }
}

/// Unmaps what was mapped if a domain refuses or panics; forgotten on success. Skips unmapped regions.
struct Undo<'a> {
    area: &'a Area,
    mappings: &'a [Arc<Mapping>],
    regions: Range<usize>,
}

impl Drop for Undo<'_> {
    fn drop(&mut self) {
        for region in self.regions.clone().map(|number| self.area.region(number)) {
            self.mappings.iter().for_each(|mapping| mapping.retract(&region));
        }
    }
}

/// Unmaps every region of a mapping, even if the domain panics.
struct Unmapping<'a> {
    area: &'a Area,
    mapping: &'a Arc<Mapping>,
    next: usize,
}

impl Unmapping<'_> {
    fn unmap_all(&mut self) {
        while self.next < self.area.regions() {
            self.next += 1;
            self.mapping.unmap(&self.area.region(self.next - 1));
        }
    }
}

impl Drop for Unmapping<'_> {
    fn drop(&mut self) {
        self.unmap_all();
        let here = this_thread();
        let is_this = |going: &Going| going.thread == here && Arc::ptr_eq(&going.mapping, self.mapping);
        let mut regions = self.area.regions.lock();
        let at = regions.going.iter().position(is_this);
        let going = at.map(|at| regions.going.swap_remove(at));
        drop(regions);
        drop(going); // may drop the domain, which is a callback
    }
}

impl Area {
    /// An area without a CPU address: device memory, in pages of 4 KiB.
    ///
    /// `len_bytes` is a multiple of 4096; `region_shift` is log2 of the region size, at least 22 (4 MiB).
    pub fn unreadable(len_bytes: u64, region_shift: u32, node: NodeId) -> Result<Arc<Self>, Error> {
        Self::new(0, len_bytes, region_shift, BasePage::DEFAULT, |_| Ok(Nodes::One(node)))
    }

    /// An area over memory at `base`, in pages of 4 KiB. All are on `node`; if that is `None`, each page has
    /// a node of its own ([`set_node`](Self::set_node)). The provider makes regions present with
    /// [`add_region`](Self::add_region).
    ///
    /// `base` is a multiple of 4096; of 4 MiB if pages of order 10 must be naturally aligned.
    ///
    /// # Safety
    /// `base..base + len_bytes` are addresses of the calling provider, and of no other area. From
    /// [`add_region`](Self::add_region) until [`remove_region`](Self::remove_region) or
    /// [`close`](Self::close), a region's memory exists, is readable, writable and initialised, and is used
    /// only by the holders of its pages, and by devices through domains.
    ///
    /// ```compile_fail,E0133
    /// let _ = pagepool::Area::readable(0x1000, 4096, pagepool::REGION_SHIFT, None);
    /// ```
    pub unsafe fn readable(
        base: usize,
        len_bytes: u64,
        region_shift: u32,
        node: Option<NodeId>,
    ) -> Result<Arc<Self>, Error> {
        // SAFETY: the caller's conditions are the same.
        unsafe { Self::readable_in(BasePage::DEFAULT, base, len_bytes, region_shift, node) }
    }

    /// [`readable`](Self::readable), in pages of another size.
    ///
    /// # Safety
    /// As for [`readable`](Self::readable).
    pub(crate) unsafe fn readable_in(
        base_page: BasePage,
        base: usize,
        len_bytes: u64,
        region_shift: u32,
        node: Option<NodeId>,
    ) -> Result<Arc<Self>, Error> {
        let is_page = base > 0 && base.is_multiple_of(PAGE_SIZE);
        Error::require(is_page, "base", format_args!("{base:#x}"), "a multiple of 4096, and not 0")?;
        Self::new(base, len_bytes, region_shift, base_page, |pages| match node {
            Some(node) => Ok(Nodes::One(node)),
            None => Table::new(pages).map(Nodes::Each),
        })
    }

    fn new(
        base: usize,
        len_bytes: u64,
        region_shift: u32,
        base_page: BasePage,
        nodes: impl FnOnce(usize) -> Result<Nodes, Error>,
    ) -> Result<Arc<Self>, Error> {
        static NEXT: AtomicUsize = AtomicUsize::new(1);
        let most = (u64::from(MAX_PAGES - 1) * base_page.bytes()) & !(PAGE_SIZE as u64 - 1);
        let fits = (1..=most).contains(&len_bytes) && len_bytes.is_multiple_of(PAGE_SIZE as u64);
        let must_be = format!("a multiple of 4096 from 4096 to {most}");
        Error::require(fits, "max_bytes", len_bytes, must_be)?;
        let fits = (REGION_SHIFT..=40).contains(&region_shift);
        Error::require(fits, "region_shift", region_shift, "22 (4 MiB) to 40")?;
        let pages = base_page.pages_in(0..len_bytes).len();
        let marked = (len_bytes >> MARKED_SHIFT) as usize;
        let regions = len_bytes.div_ceil(1 << region_shift) as usize;
        Ok(Arc::new(Self {
            id: NEXT.fetch_add(1, Ordering::Relaxed) as u64,
            base,
            len_bytes,
            region_shift,
            base_page,
            meta: Table::new(pages)?,
            raw_pages: Table::new(pages)?,
            raw_out: RawOut { start: Table::new(marked)?, last: Table::new(marked)? },
            shared_frags: Table::new(pages)?,
            nodes: nodes(pages)?,
            on_nodes: [const { AtomicBool::new(false) }; 256],
            fixing: AtomicUsize::new(0),
            starved: StarvedPools::new(),
            regions: Lock::new(Regions {
                present: vec![false; regions].into(),
                mappings: Vec::new(),
                going: Vec::new(),
                closed: false,
            }),
            calling: AtomicUsize::new(0),
        }))
    }

    /// Identifies the area among all areas of this process.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Address of the first byte; `None` for memory that the CPU cannot read.
    pub fn base(&self) -> Option<usize> {
        (self.base != 0).then_some(self.base)
    }

    /// Base pages, present or not.
    pub fn pages(&self) -> u32 {
        self.meta.len() as u32
    }

    /// Bytes of all pages, present or not.
    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// Bytes of a base page: a page of order 0.
    pub fn page_size(&self) -> usize {
        self.base_page.bytes() as usize
    }

    /// The offset of a page's first byte in the area, in bytes.
    pub fn offset_of(&self, page: PageIdx) -> u64 {
        self.base_page.start_of(page)
    }

    pub(crate) fn base_page(&self) -> BasePage {
        self.base_page
    }

    /// The numbers of a region's pages.
    pub(crate) fn pages_of(&self, region: usize) -> Range<u32> {
        let Region { offset, len_bytes, .. } = self.region(region);
        self.base_page.pages_in(offset..offset + len_bytes)
    }

    /// log2 of the pages in a region.
    pub(crate) fn pages_shift(&self) -> u32 {
        self.region_shift - self.base_page.shift()
    }

    /// Regions, present or not.
    pub fn regions(&self) -> usize {
        self.len_bytes.div_ceil(1 << self.region_shift) as usize
    }

    /// log2 of the region size in bytes.
    pub fn region_shift(&self) -> u32 {
        self.region_shift
    }

    /// The region of this number; the last one may be shorter.
    pub(crate) fn region(&self, number: usize) -> Region {
        let offset = (number as u64) << self.region_shift;
        let len_bytes = (self.len_bytes - offset).min(1 << self.region_shift);
        let cpu_addr = self.base().map(|base| base + offset as usize);
        Region { offset, len_bytes, cpu_addr, area: self.id }
    }

    /// The node of a page. One load if pages differ, else none.
    #[inline]
    pub fn node_of(&self, page: PageIdx) -> NodeId {
        match &self.nodes {
            Nodes::One(node) => *node,
            Nodes::Each(nodes) => NodeId(nodes[page.0 as usize].load(Ordering::Relaxed)),
        }
    }

    /// The node of all pages, if they have one in common.
    pub fn only_node(&self) -> Option<NodeId> {
        match self.nodes {
            Nodes::One(node) => Some(node),
            Nodes::Each(_) => None,
        }
    }

    /// Whether the area may have pages of this node, now or later. `false` if it is fixed and never had any.
    pub(crate) fn may_have_pages_of(&self, node: NodeId) -> bool {
        let has = match self.nodes {
            Nodes::One(only) => only == node,
            Nodes::Each(_) => self.on_nodes[usize::from(node.0)].load(Ordering::Relaxed),
        };
        has || !self.is_fixed()
    }

    /// Sets the node of a page; call it for every page, also those on node 0. No effect if all pages have
    /// one node.
    ///
    /// # Safety
    /// Only for the area's provider, while the page is neither out nor in its free lists, which may be per
    /// node.
    ///
    /// ```compile_fail,E0133
    /// # use pagepool::{Arena, ArenaParams, NodeId, PageIdx, Provider};
    /// # let arena = Arena::new(ArenaParams::default()).unwrap();
    /// arena.area().set_node(PageIdx(0), NodeId(1));
    /// ```
    pub unsafe fn set_node(&self, page: PageIdx, node: NodeId) {
        if let Nodes::Each(nodes) = &self.nodes {
            self.on_nodes[usize::from(node.0)].store(true, Ordering::Relaxed);
            nodes[page.0 as usize].store(node.0, Ordering::Relaxed);
        }
    }

    /// The first page's record; the others follow.
    pub(crate) fn records(&self) -> *const PageMeta {
        self.meta.as_ptr()
    }

    #[inline(always)]
    pub(crate) fn meta(&self, page: PageIdx) -> &PageMeta {
        &self.meta[page.0 as usize]
    }

    /// Clears the record of a page that leaves a pool; returns whether its memory is free. If a
    /// [`PageRef`](crate::PageRef) lives, the last reference frees it.
    pub(crate) fn clear_record(&self, page: PageIdx) -> bool {
        let meta = self.meta(page);
        meta.frags.store(0, Ordering::Relaxed);
        meta.overflow.store(0, Ordering::Relaxed);
        meta.parts.store(0, Ordering::Relaxed);
        meta.tag.store(0, Ordering::Relaxed);
        meta.pool.store(0, Ordering::Relaxed);
        if meta.refs.load(Ordering::Acquire) & REF_COUNT == 0 {
            return true; // with no reference and no handle, none can be made
        }
        // The one that makes "left, and no reference" true frees the page: this call, or the drop of the
        // last reference.
        let before = meta.refs.fetch_or(LEFT, Ordering::AcqRel);
        if before & REF_COUNT != 0 {
            return false;
        }
        meta.refs.store(0, Ordering::Relaxed); // no other thread changes it now
        true
    }

    /// The number of a page's fragments that are shared buffers (shared_buf.rs).
    pub(crate) fn shared_frags(&self, page: PageIdx) -> &AtomicU32 {
        &self.shared_frags[page.0 as usize]
    }

    /// Pages of present regions, in order; for reports.
    pub(crate) fn present_pages(&self) -> Vec<Range<u32>> {
        let present = self.regions.lock().present.clone();
        (0..present.len()).filter(|&r| present[r]).map(|r| self.pages_of(r)).collect()
    }

    /// Records that this thread calls domains. Requires the lock of `regions`; dropped before it.
    fn calling(&self) -> Calling<'_> {
        self.calling.store(this_thread(), Ordering::Relaxed);
        Calling(&self.calling)
    }

    /// Whether this thread is in a domain's callback from this area, and so holds the area's lock: then a
    /// provider must not add or remove regions.
    pub(crate) fn is_calling_here(&self) -> bool {
        self.calling.load(Ordering::Relaxed) == this_thread()
    }

    /// Makes a region present: maps it in every domain, or in none and fails. For a provider, before it
    /// gives out the region's first page. Fails if a domain fixes the area, or if the area is closed.
    ///
    /// # Safety
    /// Only for the area's provider. The region's memory is as [`readable`](Self::readable) requires.
    ///
    /// ```compile_fail,E0133
    /// # use pagepool::{Arena, ArenaParams, Provider};
    /// # let arena = Arena::new(ArenaParams::default()).unwrap();
    /// arena.area().add_region(3);
    /// ```
    pub unsafe fn add_region(&self, number: usize) -> Result<(), Error> {
        let region = self.region(number);
        let mut regions = self.regions.lock();
        regions.refuse_closed()?;
        if regions.present[number] {
            return Ok(());
        }
        self.refuse_fixed(&regions)?;
        let _calling = self.calling();
        let undo = Undo { area: self, mappings: &regions.mappings, regions: number..number + 1 };
        regions.mappings.iter().try_for_each(|mapping| mapping.map(&region))?;
        std::mem::forget(undo);
        regions.present[number] = true;
        Ok(())
    }

    /// Whether a domain fixes the area: it cannot grow. Takes no lock.
    pub(crate) fn is_fixed(&self) -> bool {
        self.fixing.load(Ordering::Relaxed) != 0
    }

    /// Fails, with the domain's name, if one fixes the area. For a provider, before it tries to grow.
    pub(crate) fn growth_allowed(&self) -> Result<(), Error> {
        self.refuse_fixed(&self.regions.lock())
    }

    fn refuse_fixed(&self, regions: &Regions) -> Result<(), Error> {
        match regions.mappings.iter().find(|m| m.fixes_area) {
            None => Ok(()),
            Some(fixing) => Err(Error::Fixed {
                domain: fixing.domain().name(),
                committed_bytes: self.bytes_present(&regions.present),
            }),
        }
    }

    /// Makes a region absent, unless a domain maps the area; returns whether it did. If not, its memory must
    /// stay.
    ///
    /// # Safety
    /// Only for the area's provider. No page of the region is out, or will be before the region is added
    /// again.
    ///
    /// ```compile_fail,E0133
    /// # use pagepool::{Arena, ArenaParams, Provider};
    /// # let arena = Arena::new(ArenaParams::default()).unwrap();
    /// arena.area().remove_region(0);
    /// ```
    pub unsafe fn remove_region(&self, number: usize) -> bool {
        let mut regions = self.regions.lock();
        if !regions.mappings.is_empty() || !regions.going.is_empty() {
            return false;
        }
        std::mem::replace(&mut regions.present[number], false)
    }

    /// Bytes in present regions.
    pub fn present_bytes(&self) -> u64 {
        self.bytes_present(&self.regions.lock().present)
    }

    fn bytes_present(&self, present: &[bool]) -> u64 {
        (0..present.len()).filter(|&r| present[r]).map(|r| self.region(r).len_bytes()).sum()
    }

    /// Maps the area in a domain: every present region, or none and fails. Adds a user if the domain is
    /// attached already. Fails if the provider was dropped.
    pub fn attach(&self, domain: &Arc<dyn DmaDomain>) -> Result<Arc<Mapping>, Error> {
        let id = domain.id();
        let mut regions = self.lock_when(|regions| regions.going(false).all(|m| m.id() != id));
        regions.refuse_closed()?;
        if regions.going(true).any(|m| m.id() == id) {
            return Err(Error::Busy { what: "this thread is unmapping the same domain".into() });
        }
        if let Some(mapping) = regions.mappings.iter().find(|m| m.id() == domain.id()) {
            mapping.users.fetch_add(1, Ordering::Relaxed);
            return Ok(mapping.clone());
        }
        let _calling = self.calling();
        let mapping = Arc::new(Mapping::new(domain.clone(), self.id, self.regions(), self.region_shift));
        let undo =
            Undo { area: self, mappings: std::slice::from_ref(&mapping), regions: 0..regions.present.len() };
        let mut present = (0..regions.present.len()).filter(|&r| regions.present[r]);
        present.try_for_each(|r| mapping.map(&self.region(r)))?;
        std::mem::forget(undo);
        self.fixing.fetch_add(usize::from(mapping.fixes_area), Ordering::Relaxed);
        regions.mappings.push(mapping.clone());
        Ok(mapping)
    }

    /// Removes a user of a domain; the last one unmaps every region.
    pub fn detach(&self, mapping: &Arc<Mapping>) {
        let last = || mapping.users.fetch_sub(1, Ordering::AcqRel) == 1;
        self.forget(|m| Arc::ptr_eq(m, mapping), last);
    }

    /// Unmaps every region from the domain of a removed device, even if pools use it. Buffers that are out
    /// stay valid for the CPU, have no address in that domain, and are not unmapped again when they return.
    /// Returns whether the domain was attached.
    pub fn device_gone(&self, id: DomainId) -> bool {
        self.forget(|m| m.id() == id, || true)
    }

    /// Unmaps every region from every domain, and waits for threads that are unmapping. From then on no
    /// region is present, and attaching fails. The memory may be freed when this returns.
    ///
    /// # Safety
    /// Only for the area's provider, when it is dropped: no page is out.
    ///
    /// ```compile_fail,E0133
    /// # use pagepool::{Arena, ArenaParams, Provider};
    /// # let arena = Arena::new(ArenaParams::default()).unwrap();
    /// arena.area().close();
    /// ```
    pub unsafe fn close(&self) {
        let mut regions = self.regions.lock();
        regions.closed = true;
        regions.present.fill(false);
        drop(regions);
        while self.forget(|_| true, || true) {}
        // A domain that this thread is unmapping may have dropped the provider: unmaps the rest of it.
        let left: Vec<_> = self.regions.lock().going(true).cloned().collect();
        left.iter().for_each(|m| (0..self.regions()).for_each(|r| m.unmap(&self.region(r))));
        drop(self.lock_when(|regions| regions.going(false).next().is_none()));
    }

    /// Removes a mapping if `may` returns true under the lock, and unmaps it without the lock: its domain
    /// may drop the last reference to the provider, which closes the area.
    fn forget(&self, which: impl Fn(&Arc<Mapping>) -> bool, may: impl FnOnce() -> bool) -> bool {
        let mapping = {
            let mut regions = self.regions.lock();
            let at = regions.mappings.iter().position(which);
            let Some(at) = may().then_some(at).flatten() else { return false };
            let mapping = regions.mappings.swap_remove(at);
            self.fixing.fetch_sub(usize::from(mapping.fixes_area), Ordering::Relaxed);
            regions.going.push(Going { mapping: mapping.clone(), thread: this_thread() });
            mapping
        };
        Unmapping { area: self, mapping: &mapping, next: 0 }.unmap_all();
        self.starved.wake_all(); // it may have prevented growth
        true
    }

    /// Takes the lock when `ready`; waits while other threads' domains unmap.
    fn lock_when(&self, ready: impl Fn(&Regions) -> bool) -> impl DerefMut<Target = Regions> + '_ {
        let mut backoff = Backoff::default();
        loop {
            let regions = self.regions.lock();
            if ready(&regions) {
                return regions;
            }
            drop(regions);
            backoff.pause();
        }
    }

    /// The area's mapping in a domain. Takes the area's lock: call once, keep the result.
    pub fn mapping(&self, id: DomainId) -> Option<Arc<Mapping>> {
        self.regions.lock().mappings.iter().find(|m| m.id() == id).cloned()
    }

    /// Names of the domains that map the area.
    pub fn domains(&self) -> Vec<String> {
        let mappings = self.regions.lock().mappings.clone();
        mappings.iter().map(|m| m.domain().name()).collect()
    }
}

/// Prints no tables: they have an entry per page.
impl fmt::Debug for Area {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut f = f.debug_struct("Area");
        f.field("id", &self.id).field("len_bytes", &self.len_bytes).field("regions", &self.regions());
        if self.is_calling_here() {
            return f.finish_non_exhaustive(); // this thread holds the lock
        }
        let present = self.regions.lock().present.iter().filter(|&&present| present).count();
        f.field("regions_present", &present).field("domains", &self.domains()).finish_non_exhaustive()
    }
}

// SAFETY: a record consists of atomic integers only.
#[cfg(not(loom))]
unsafe impl crate::sys::table::Zeroable for PageMeta {}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::mem::dma::DeviceAddr;
    use std::sync::Mutex;

    /// Returns the addresses of the test's list, then refuses.
    #[derive(Debug)]
    struct Scripted(DomainId, Mutex<Vec<u64>>);

    impl Scripted {
        fn domain(addresses: &[u64]) -> Arc<dyn DmaDomain> {
            Arc::new(Self(DomainId::unique(), Mutex::new(addresses.iter().rev().copied().collect())))
        }
    }

    impl DmaDomain for Scripted {
        fn id(&self) -> DomainId {
            self.0
        }
        fn name(&self) -> String {
            "scripted".into()
        }
        fn map(&self, _region: &Region) -> Result<DeviceAddr, String> {
            let next = self.1.lock().expect("no map panics").pop();
            next.map(DeviceAddr).ok_or_else(|| "no address left".into())
        }
        fn unmap(&self, _region: &Region, _at: DeviceAddr) {}
        fn sync_for_device(&self, _at: DeviceAddr, _len_bytes: usize) {}
        fn sync_for_cpu(&self, _at: DeviceAddr, _len_bytes: usize) {}
    }

    #[test]
    fn an_address_of_a_mapping_that_was_rolled_back_is_forgotten() {
        let area = Area::unreadable(3 << REGION_SHIFT, REGION_SHIFT, NodeId(0)).unwrap();
        let twice = 0x7000_0000;
        // SAFETY: the test is the provider, and device memory is not touched; likewise below.
        let add = |number| unsafe { area.add_region(number) };
        add(0).unwrap();
        let mapping = area.attach(&Scripted::domain(&[0x1000_0000, twice, twice])).unwrap();
        let refusing = area.attach(&Scripted::domain(&[0])).unwrap();
        assert!(add(1).is_err(), "the second domain has no address left");
        area.detach(&refusing);
        add(2).unwrap();
        assert_eq!(mapping.addr_of(2 << REGION_SHIFT), Some(DeviceAddr(twice)));
        assert_eq!(mapping.offset_of(DeviceAddr(twice)), Some(2 << REGION_SHIFT), "not that of region 1");
    }
}
