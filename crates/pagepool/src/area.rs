//! An area: the numbered pages of one provider, their records, and the domains that map them.
//!
//! What   one contiguous range of 4 KiB pages in regions, of which some are present. Per page a record, a bit per 64
//!        bytes that says "out as a raw address", a node. Per domain a [`Mapping`].
//! Who    anything from any thread. Attaching, detaching, adding and removing regions take the area's lock, which is no
//!        lock of a pool; the rest takes none.
//! I3     an area outlives every handle to a page of it: pools and holds keep it by `Arc`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize};

use crate::dma::{DmaDomain, DomainId, Mapping, Region};
use crate::error::Error;
use crate::page::{EMERGENCY, MAX_ORDER, MAX_PAGES, NodeId, PAGE_SHIFT, PAGE_SIZE, PageIdx, PageMeta};
use crate::sync::{AtomicU64, Lock, Ordering};
use crate::table::zeroed;

/// log2 of the default region: 4 MiB, the largest page, so that no page lies in two regions.
pub const REGION_SHIFT: u32 = PAGE_SHIFT + MAX_ORDER as u32;

/// The numbered pages of one [`Provider`](crate::Provider), and what is known of each.
#[derive(Debug)]
pub struct Area {
    id: u64,
    /// Address of the first byte; 0 for memory that the CPU cannot read.
    base: usize,
    len_bytes: u64,
    region_shift: u32,
    meta: Box<[PageMeta]>,
    raw_out: RawOut,
    nodes: Nodes,
    has_emergency: AtomicBool,
    regions: Lock<Regions>,
    /// The thread that calls domains under the lock of `regions`, by the address of its [`MARK`]; 0 = none.
    calling: AtomicUsize,
}

std::thread_local! {
    /// Its address tells threads apart.
    static MARK: u8 = const { 0 };
}

fn this_thread() -> usize {
    MARK.with(|mark| std::ptr::from_ref(mark) as usize)
}

/// While it lives, its thread calls domains under the area's lock.
struct Calling<'a>(&'a AtomicUsize);

impl Drop for Calling<'_> {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// Two bits per 64 bytes of page: where a raw address that is out begins, and where its piece ends. A whole page has
/// no end mark: it ends with its page.
#[derive(Debug)]
pub(crate) struct RawOut {
    pub(crate) start: Box<[AtomicU64]>,
    pub(crate) last: Box<[AtomicU64]>,
}

#[derive(Debug)]
enum Nodes {
    /// All pages are on this node.
    One(NodeId),
    /// A node per page.
    Each(Box<[AtomicU8]>),
}

#[derive(Debug)]
struct Regions {
    present: Box<[bool]>,
    mappings: Vec<Arc<Mapping>>,
}

impl Area {
    /// An area without a CPU address: device memory. Its pages have device addresses only.
    ///
    /// `len_bytes` is a multiple of 4096; `region_shift` is log2 of the region size, at least 22 (4 MiB).
    pub fn unreadable(len_bytes: u64, region_shift: u32, node: NodeId) -> Result<Arc<Self>, Error> {
        Self::new(0, len_bytes, region_shift, Nodes::One(node))
    }

    /// An area over memory at `base`, all on `node`, or with a node per page (set with
    /// [`set_node`](Self::set_node)) where that is `None`. The provider says with [`add_region`](Self::add_region)
    /// which regions are present.
    ///
    /// `base` is a multiple of 4096, and of 4 MiB if pages of order 10 are to be naturally aligned.
    pub fn readable(
        base: usize,
        len_bytes: u64,
        region_shift: u32,
        node: Option<NodeId>,
    ) -> Result<Arc<Self>, Error> {
        if base == 0 || !base.is_multiple_of(PAGE_SIZE) {
            return Err(Error::parameter("base", format!("{base:#x}"), "a multiple of 4096, and not 0"));
        }
        let pages = (len_bytes >> PAGE_SHIFT) as usize;
        let nodes = match node {
            Some(node) => Nodes::One(node),
            None => Nodes::Each(zeroed(pages.min(MAX_PAGES as usize))?),
        };
        Self::new(base, len_bytes, region_shift, nodes)
    }

    fn new(base: usize, len_bytes: u64, region_shift: u32, nodes: Nodes) -> Result<Arc<Self>, Error> {
        static NEXT: AtomicUsize = AtomicUsize::new(1);
        let pages = len_bytes >> PAGE_SHIFT;
        if len_bytes == 0 || !len_bytes.is_multiple_of(PAGE_SIZE as u64) || pages >= MAX_PAGES as u64 {
            let range = format!("a multiple of 4096 from 4096 to {}", (MAX_PAGES as u64 - 1) << PAGE_SHIFT);
            return Err(Error::parameter("max_bytes", len_bytes, range));
        }
        if !(REGION_SHIFT..=40).contains(&region_shift) {
            return Err(Error::parameter("region_shift", region_shift, "22 (4 MiB) to 40"));
        }
        let pages = pages as usize;
        let regions = len_bytes.div_ceil(1 << region_shift) as usize;
        Ok(Arc::new(Self {
            id: NEXT.fetch_add(1, Ordering::Relaxed) as u64,
            base,
            len_bytes,
            region_shift,
            meta: zeroed(pages)?,
            raw_out: RawOut { start: zeroed(pages)?, last: zeroed(pages)? },
            nodes,
            has_emergency: AtomicBool::new(false),
            regions: Lock::new(Regions { present: vec![false; regions].into(), mappings: Vec::new() }),
            calling: AtomicUsize::new(0),
        }))
    }

    /// Identifies the area among all areas of this process.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Address of the first byte, `None` for memory that the CPU cannot read.
    pub fn base(&self) -> Option<usize> {
        (self.base != 0).then_some(self.base)
    }

    /// The same as a number, 0 for memory that the CPU cannot read.
    pub(crate) fn base_or_zero(&self) -> usize {
        self.base
    }

    /// Base pages, present or not.
    pub fn pages(&self) -> u32 {
        self.meta.len() as u32
    }

    /// Regions, present or not.
    pub fn regions(&self) -> usize {
        self.len_bytes.div_ceil(1 << self.region_shift) as usize
    }

    /// log2 of the bytes in a region.
    pub fn region_shift(&self) -> u32 {
        self.region_shift
    }

    /// The region with this number; the last one may be shorter.
    pub fn region(&self, number: usize) -> Region {
        let offset = (number as u64) << self.region_shift;
        let len_bytes = (self.len_bytes - offset).min(1 << self.region_shift);
        Region { offset, len_bytes, cpu_addr: self.base().map(|b| b + offset as usize), area: self.id }
    }

    /// The node of a page. One load where pages differ, none where they do not.
    #[inline]
    pub fn node_of(&self, page: PageIdx) -> NodeId {
        match &self.nodes {
            Nodes::One(node) => *node,
            Nodes::Each(nodes) => NodeId(nodes[page.0 as usize].load(Ordering::Relaxed)),
        }
    }

    /// The node of all pages, where they have one in common.
    pub fn only_node(&self) -> Option<NodeId> {
        match self.nodes {
            Nodes::One(node) => Some(node),
            Nodes::Each(_) => None,
        }
    }

    /// Says on which node a page lies; for a provider, before it first hands the page out. Without effect where all
    /// pages have one node.
    pub fn set_node(&self, page: PageIdx, node: NodeId) {
        if let Nodes::Each(nodes) = &self.nodes {
            nodes[page.0 as usize].store(node.0, Ordering::Relaxed);
        }
    }

    /// Marks or unmarks a page as emergency memory; for a provider, before it hands the page out and after it got it
    /// back. Such pages are not recycled: `recycle_released_refcnt` counts them. Linux: `page_is_pfmemalloc`.
    pub fn set_emergency(&self, page: PageIdx, yes: bool) {
        if yes {
            self.meta(page).holds.fetch_or(EMERGENCY, Ordering::Relaxed);
            self.has_emergency.store(true, Ordering::Relaxed);
        } else {
            self.meta(page).holds.fetch_and(!EMERGENCY, Ordering::Relaxed);
        }
    }

    /// Whether any page was ever marked.
    pub(crate) fn has_emergency(&self) -> bool {
        self.has_emergency.load(Ordering::Relaxed)
    }

    /// The records of all pages, the first one's address.
    pub(crate) fn records(&self) -> *const PageMeta {
        self.meta.as_ptr()
    }

    /// The record of a page.
    #[inline(always)]
    pub(crate) fn meta(&self, page: PageIdx) -> &PageMeta {
        &self.meta[page.0 as usize]
    }

    /// The marks of raw addresses that are out.
    pub(crate) fn raw_out(&self) -> &RawOut {
        &self.raw_out
    }

    /// Pages of the regions that are present, in order; for reports and for the end of a pool.
    pub(crate) fn present_pages(&self) -> Vec<std::ops::Range<u32>> {
        let present = self.regions.lock().present.clone();
        let pages =
            |r: Region| (r.offset >> PAGE_SHIFT) as u32..((r.offset + r.len_bytes) >> PAGE_SHIFT) as u32;
        (0..present.len()).filter(|&r| present[r]).map(|r| pages(self.region(r))).collect()
    }

    /// Marks this thread as one that calls domains; only with the lock of `regions` held, and dropped before it.
    fn calling(&self) -> Calling<'_> {
        self.calling.store(this_thread(), Ordering::Relaxed);
        Calling(&self.calling)
    }

    /// Whether this thread is inside a domain's callback that this area made, and so holds the area's lock. A provider
    /// that is called from in there must not add or remove regions.
    pub(crate) fn is_calling_here(&self) -> bool {
        self.calling.load(Ordering::Relaxed) == this_thread()
    }

    /// Makes a region present: maps it in every domain of the area, or in none and fails. For a provider, before it
    /// hands out the first page of the region. A domain that fixes the area refuses.
    pub fn add_region(&self, number: usize) -> Result<(), Error> {
        let region = self.region(number);
        let mut regions = self.regions.lock();
        if regions.present[number] {
            return Ok(());
        }
        if let Some(fixing) = regions.mappings.iter().find(|m| m.domain().fixes_area()) {
            return Err(Error::Fixed {
                domain: fixing.domain().name(),
                committed_bytes: self.bytes_present(&regions.present),
            });
        }
        let _calling = self.calling();
        for (done, mapping) in regions.mappings.iter().enumerate() {
            if let Err(error) = mapping.map(&region) {
                regions.mappings[..done].iter().for_each(|m| m.unmap(&region));
                return Err(error);
            }
        }
        regions.present[number] = true;
        Ok(())
    }

    /// Refuses, with the name of the domain, if one fixes the area; for a provider, before it makes an effort to grow.
    pub(crate) fn growth_allowed(&self) -> Result<(), Error> {
        let regions = self.regions.lock();
        match regions.mappings.iter().find(|m| m.domain().fixes_area()) {
            None => Ok(()),
            Some(fixing) => Err(Error::Fixed {
                domain: fixing.domain().name(),
                committed_bytes: self.bytes_present(&regions.present),
            }),
        }
    }

    /// Makes a region absent, unless a domain maps the area; says whether it did. For a provider, when no page of the
    /// region is out.
    pub fn remove_region(&self, number: usize) -> bool {
        let mut regions = self.regions.lock();
        if !regions.mappings.is_empty() {
            return false;
        }
        std::mem::replace(&mut regions.present[number], false)
    }

    /// Bytes in regions that are present.
    pub fn present_bytes(&self) -> u64 {
        self.bytes_present(&self.regions.lock().present)
    }

    fn bytes_present(&self, present: &[bool]) -> u64 {
        (0..present.len()).filter(|&r| present[r]).map(|r| self.region(r).len_bytes).sum()
    }

    /// Maps the area in a domain: every region that is present, or none and fails. A domain that is attached already
    /// gets one more user.
    pub fn attach(&self, domain: &Arc<dyn DmaDomain>) -> Result<Arc<Mapping>, Error> {
        let mut regions = self.regions.lock();
        if let Some(mapping) = regions.mappings.iter().find(|m| m.id() == domain.id()) {
            mapping.users().fetch_add(1, Ordering::Relaxed);
            return Ok(mapping.clone());
        }
        let _calling = self.calling();
        let mapping = Arc::new(Mapping::new(domain.clone(), self.regions(), self.region_shift));
        for number in (0..regions.present.len()).filter(|&r| regions.present[r]) {
            if let Err(error) = mapping.map(&self.region(number)) {
                (0..number).for_each(|r| mapping.unmap(&self.region(r)));
                return Err(error);
            }
        }
        regions.mappings.push(mapping.clone());
        Ok(mapping)
    }

    /// Takes one user of a domain away; the last one unmaps every region.
    pub fn detach(&self, mapping: &Arc<Mapping>) {
        let mut regions = self.regions.lock();
        if mapping.users().fetch_sub(1, Ordering::AcqRel) == 1 {
            self.forget(&mut regions, |m| Arc::ptr_eq(m, mapping));
        }
    }

    /// The device is gone: unmaps every region from its domain now, whoever still uses it. Buffers that are out stay
    /// valid for the CPU, have no address in that domain any more, and are not unmapped a second time when they come
    /// home. Says whether the domain was attached.
    pub fn device_gone(&self, id: DomainId) -> bool {
        self.forget(&mut self.regions.lock(), |m| m.id() == id)
    }

    /// The provider goes: unmaps every region from every domain that is still attached.
    pub(crate) fn detach_all(&self) {
        let mut regions = self.regions.lock();
        while self.forget(&mut regions, |_| true) {}
    }

    fn forget(&self, regions: &mut Regions, which: impl Fn(&Arc<Mapping>) -> bool) -> bool {
        let Some(at) = regions.mappings.iter().position(which) else { return false };
        let mapping = regions.mappings.swap_remove(at);
        let _calling = self.calling();
        (0..self.regions()).for_each(|r| mapping.unmap(&self.region(r)));
        true
    }

    /// The area's mapping in a domain. Takes the area's lock: ask once, keep the answer.
    pub fn mapping(&self, id: DomainId) -> Option<Arc<Mapping>> {
        self.regions.lock().mappings.iter().find(|m| m.id() == id).cloned()
    }

    /// Names of the domains that map the area.
    pub fn domains(&self) -> Vec<String> {
        self.regions.lock().mappings.iter().map(|m| m.domain().name()).collect()
    }
}
