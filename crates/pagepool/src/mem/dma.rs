//! Device address spaces: a device sees an area at its own addresses, one mapping per region.
//!
//! A [`DmaDomain`] is an address space: the identity, the offsets of an AF_XDP UMEM, an IOMMU behind VFIO,
//! or a checking one for tests. An area (the numbered pages of one provider) may be attached to several.
//! Each attachment is a [`Mapping`] with a device address per region. So a page's device address is
//! arithmetic, and one lookup says whether and where another device maps it. "Evolving the page_pool API"
//! (J. D. Brouer, 2018) ends with that question; Linux has no answer to it.
//!
//! Threads: any. Attaching and detaching take a lock; reading an address takes none.
//!
//! Invariant I6: a page is mapped in every domain of its area from before it is first given out until after
//! its last return. Exception: the domain is detached first, by the end of the last pool that uses it, or
//! because the device was removed. Buffers that are out then have no device address. Every mapping is undone
//! exactly once, before its memory is freed.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::error::Error;
use crate::sys::published_entry::{PublishedEntry, publish_entry};
use crate::sys::published_memory::PublishedMemory;

/// The id of a domain. Two domains with the same id are the same address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DomainId(u64);

impl DomainId {
    /// An id that no other call returns.
    pub fn unique() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// An address as a device sees it, in bytes. Linux: `dma_addr_t`.
#[doc(alias = "dma_addr_t")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct DeviceAddr(pub u64);

impl fmt::Display for DeviceAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// A contiguous part of an area, which a domain maps as one.
///
/// Only an area makes one, and lends it for one call, during which its memory exists. It cannot be copied; a
/// domain that must remember a region keeps its numbers.
///
/// ```compile_fail
/// let forged = pagepool::Region { offset: 0, len_bytes: 4096, cpu_addr: Some(0x1000), area: 1 };
/// ```
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Region {
    pub(crate) offset: u64,
    pub(crate) len_bytes: u64,
    pub(crate) cpu_addr: Option<usize>,
    pub(crate) area: u64,
}

impl Region {
    /// The first byte's offset in the area.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The length in bytes, a multiple of 4096; in an arena's own memory also of the
    /// [system's page](crate::system_page_size).
    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// The CPU address of the first byte; `None` for memory that the CPU cannot read.
    pub fn cpu_addr(&self) -> Option<usize> {
        self.cpu_addr
    }

    /// Identifies the area among all areas of this process.
    pub fn area(&self) -> u64 {
        self.area
    }
}

/// The address space of a device. Only the domain defines device addresses; the pool uses them.
///
/// `unmap` cannot fail. Methods may be called on any thread, and inside a drop; never under a pool's lock. A
/// sync may race with the unmapping of its region, if the device was removed while a buffer returned: it
/// must do nothing then.
///
/// `map` runs under the area's lock, and so does an `unmap` that undoes it because another region was
/// refused. They may drop buffers, and request pages from the provider (they get free ones, without growth).
/// They, and the wakers of tasks that such a drop wakes, must not attach or detach domains of that area,
/// query it for a mapping, make or end a pool over it, or drop the last reference to its provider: each
/// would deadlock.
///
/// Every other `unmap` runs without that lock and may do all of this. It must not wait for another thread
/// that attaches this domain or drops the provider. It may drop the provider's last reference, so the device
/// must no longer access the region.
///
/// A panic in a method propagates to the caller of the pool. A page whose sync panics leaves its pool, with
/// up to 64 whole pages of that pool that return with it. The other buffers of that bulk return to their
/// pools while the panic unwinds: a second panic of a domain then ends the process, as in any `drop`.
///
/// Linux: the `struct device` given to `page_pool_create`, and `dma_map_page_attrs`,
/// `dma_sync_single_for_device`.
pub trait DmaDomain: Send + Sync + fmt::Debug {
    /// The id of this address space.
    fn id(&self) -> DomainId;

    /// A name for descriptions and errors.
    fn name(&self) -> String;

    /// Maps one region and returns its device address, usually a multiple of 4096. A refusal says why.
    ///
    /// Neither the address, nor the address minus the region's offset, may be one of the two highest
    /// numbers: else the region is [unmapped](Self::unmap) at once, and the error names the address.
    fn map(&self, region: &Region) -> Result<DeviceAddr, String>;

    /// Undoes [`map`](Self::map), which returned `at`.
    fn unmap(&self, region: &Region, at: DeviceAddr);

    /// Hands `len_bytes` at `at` to the device: makes the CPU's writes visible to it. Does nothing in a
    /// [coherent](Self::coherent) domain.
    fn sync_for_device(&self, at: DeviceAddr, len_bytes: usize);

    /// Hands `len_bytes` at `at` to the CPU: makes the device's writes visible to it.
    fn sync_for_cpu(&self, at: DeviceAddr, len_bytes: usize);

    /// Whether device and CPU see the memory alike, so both syncs may be skipped. Called once, when a pool
    /// is made.
    fn coherent(&self) -> bool {
        true
    }

    /// Whether the area must not grow while it is mapped here, as in an AF_XDP UMEM, which is registered
    /// once as a whole. Called once, when the area is mapped.
    fn fixes_area(&self) -> bool {
        false
    }
}

/// The domain in which device addresses are CPU addresses: for a coherent device without an IOMMU, a
/// vhost-user peer that shares the address space, or an io_uring buffer ring.
#[derive(Debug)]
pub struct IdentityDomain {
    id: DomainId,
    name: String,
}

impl IdentityDomain {
    /// An identity domain with its own id.
    ///
    /// ```
    /// use pagepool::{DmaDomain, IdentityDomain};
    /// let nic = IdentityDomain::new("nic0");
    /// assert!(nic.coherent());
    /// assert_eq!(nic.name(), "nic0");
    /// ```
    pub fn new(name: impl Into<String>) -> Self {
        Self { id: DomainId::unique(), name: name.into() }
    }
}

impl DmaDomain for IdentityDomain {
    fn id(&self) -> DomainId {
        self.id
    }
    fn name(&self) -> String {
        self.name.clone()
    }
    fn map(&self, region: &Region) -> Result<DeviceAddr, String> {
        let cpu = region.cpu_addr.ok_or("memory that the CPU cannot read has no identity address")?;
        Ok(DeviceAddr(cpu as u64))
    }
    fn unmap(&self, _region: &Region, _at: DeviceAddr) {}
    fn sync_for_device(&self, _at: DeviceAddr, _len_bytes: usize) {}
    fn sync_for_cpu(&self, _at: DeviceAddr, _len_bytes: usize) {}
}

/// The domain in which device addresses are offsets in the area, as in an AF_XDP UMEM. It fixes the area: an
/// arena mapped here cannot grow.
#[derive(Debug)]
pub struct OffsetDomain {
    id: DomainId,
    name: String,
}

impl OffsetDomain {
    /// An offset domain with its own id.
    ///
    /// ```
    /// use pagepool::{DmaDomain, OffsetDomain};
    /// assert!(OffsetDomain::new("umem0").fixes_area());
    /// ```
    pub fn new(name: impl Into<String>) -> Self {
        Self { id: DomainId::unique(), name: name.into() }
    }
}

impl DmaDomain for OffsetDomain {
    fn id(&self) -> DomainId {
        self.id
    }
    fn name(&self) -> String {
        self.name.clone()
    }
    fn map(&self, region: &Region) -> Result<DeviceAddr, String> {
        Ok(DeviceAddr(region.offset))
    }
    fn unmap(&self, _region: &Region, _at: DeviceAddr) {}
    fn sync_for_device(&self, _at: DeviceAddr, _len_bytes: usize) {}
    fn sync_for_cpu(&self, _at: DeviceAddr, _len_bytes: usize) {}
    fn fixes_area(&self) -> bool {
        true
    }
}

/// One area in one domain, with a device address per region.
pub struct Mapping {
    domain: Arc<dyn DmaDomain>,
    id: DomainId,
    coherent: bool,
    pub(crate) fixes_area: bool,
    area: u64,
    pub(crate) users: AtomicUsize,
    region_shift: u32,
    /// Per region, device address minus offset, or [`UNMAPPED`]. The thread that swaps it out unmaps the
    /// region.
    at: Box<[AtomicU64]>,
    /// Per region, its last address, mapped or not: it resolves addresses that a removed device was given.
    last: Box<[AtomicU64]>,
    /// Device address minus offset, if equal for all regions that were ever mapped; else [`UNMAPPED`] or
    /// [`SCATTERED`]. Written under the area's lock.
    linear: AtomicU64,
    /// Like `linear`, while addresses may be given out. [`SCATTERED`] once per region is unmapped: then the
    /// whole mapping is being removed.
    giving: AtomicU64,
    entry: Option<PublishedEntry>,
}

impl fmt::Debug for Mapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut f = f.debug_struct("Mapping");
        f.field("domain", &self.domain.name()).field("id", &self.id).finish_non_exhaustive()
    }
}

/// Publishes a mapping.
fn entry(domain: &dyn DmaDomain, area: u64) -> Option<PublishedEntry> {
    PublishedMemory::current()?;
    let coherent = if domain.coherent() { "1" } else { "0" };
    publish_entry("domain", domain.id().0, area, &domain.name(), &[("coherent", coherent)], &["mapped_bytes"])
}

/// No region's address, or address minus offset: [`Mapping::map`] refuses it.
const UNMAPPED: u64 = u64::MAX;
/// Refused likewise. The regions are not as far apart as in the area.
const SCATTERED: u64 = u64::MAX - 1;

impl Mapping {
    /// No regions yet; one user; for an area of `regions` regions of `1 << region_shift` bytes.
    pub(crate) fn new(domain: Arc<dyn DmaDomain>, area: u64, regions: usize, region_shift: u32) -> Self {
        let entry = entry(&*domain, area);
        Self {
            id: domain.id(),
            coherent: domain.coherent(),
            fixes_area: domain.fixes_area(),
            domain,
            area,
            users: AtomicUsize::new(1),
            region_shift,
            at: (0..regions).map(|_| AtomicU64::new(UNMAPPED)).collect(),
            last: (0..regions).map(|_| AtomicU64::new(UNMAPPED)).collect(),
            linear: AtomicU64::new(UNMAPPED),
            giving: AtomicU64::new(UNMAPPED),
            entry,
        }
    }

    /// The domain.
    pub fn domain(&self) -> &Arc<dyn DmaDomain> {
        &self.domain
    }

    /// The domain's id, without calling the domain.
    #[inline]
    pub fn id(&self) -> DomainId {
        self.id
    }

    /// The id of the mapped area.
    #[inline]
    pub fn area(&self) -> u64 {
        self.area
    }

    /// Whether syncs may be skipped.
    #[inline]
    pub fn coherent(&self) -> bool {
        self.coherent
    }

    /// The device address of a byte of the area; `None` while its region is not mapped. One load.
    #[inline]
    pub fn addr_of(&self, offset: u64) -> Option<DeviceAddr> {
        let region = self.at.get((offset >> self.region_shift) as usize)?;
        let add = region.load(Ordering::Acquire); // pairs with map()
        (add != UNMAPPED).then(|| DeviceAddr(add.wrapping_add(offset)))
    }

    /// The offset in the area of a device address; `None` if it is in no region that was ever mapped. One
    /// load if the domain is linear over the area (usual), else a search over the regions.
    #[inline]
    pub fn offset_of(&self, addr: DeviceAddr) -> Option<u64> {
        let first = self.last.first()?.load(Ordering::Acquire);
        let guess = (addr.0.wrapping_sub(first) >> self.region_shift) as usize;
        self.offset_in(guess, addr).or_else(|| self.search(addr))
    }

    /// Subtracted from any address that was given out, this gives the offset, if it is one number.
    #[inline(always)]
    pub(crate) fn linear(&self) -> Option<u64> {
        let linear = self.linear.load(Ordering::Acquire); // pairs with map()
        (linear < SCATTERED).then_some(linear)
    }

    /// Added to the offset of a cached page, this gives its address, if it is one number. I6: such a page is
    /// mapped.
    #[inline(always)]
    pub(crate) fn giving(&self) -> Option<u64> {
        let giving = self.giving.load(Ordering::Acquire); // pairs with map()
        (giving < SCATTERED).then_some(giving)
    }

    /// The offset of an address in this region, as it was last mapped.
    #[inline(always)]
    fn offset_in(&self, region: usize, addr: DeviceAddr) -> Option<u64> {
        let base = self.last.get(region)?.load(Ordering::Acquire); // pairs with map()
        let within = addr.0.wrapping_sub(base);
        let hit = base != UNMAPPED && within >> self.region_shift == 0;
        hit.then(|| ((region as u64) << self.region_shift) + within)
    }

    #[cold]
    fn search(&self, addr: DeviceAddr) -> Option<u64> {
        (0..self.last.len()).find_map(|region| self.offset_in(region, addr))
    }

    /// Maps one region; does nothing if it is mapped.
    pub(crate) fn map(&self, region: &Region) -> Result<(), Error> {
        let slot = &self.at[(region.offset >> self.region_shift) as usize];
        if slot.load(Ordering::Acquire) != UNMAPPED {
            return Ok(());
        }
        let at = self.domain.map(region).map_err(|reason| self.refused(region, reason))?;
        let (add, before) = (at.0.wrapping_sub(region.offset), self.linear.load(Ordering::Relaxed));
        if at.0.max(add) >= SCATTERED {
            self.domain.unmap(region, at);
            let reason = format!(
                "it returned {at}; this address, or it minus the region's offset, is reserved: map to \
                 multiples of 4096"
            );
            return Err(self.refused(region, reason));
        }
        let linear = if before == UNMAPPED || before == add { add } else { SCATTERED };
        self.linear.store(linear, Ordering::Release); // pairs with linear()
        // Pairs with giving(). Stays SCATTERED if the mapping is being removed.
        let _ = self.giving.compare_exchange(before, linear, Ordering::Release, Ordering::Relaxed);
        // Pairs with offset_of().
        self.last[(region.offset >> self.region_shift) as usize].store(at.0, Ordering::Release);
        slot.store(add, Ordering::Release); // pairs with addr_of()
        self.entry.iter().for_each(|entry| entry.add(0, region.len_bytes));
        Ok(())
    }

    fn refused(&self, region: &Region, reason: String) -> Error {
        let Region { offset, len_bytes, .. } = *region;
        Error::Map { domain: self.domain.name(), offset, len_bytes, reason }
    }

    /// Undoes a [`map`](Self::map) that is rolled back. No page of the region was given out, so none of its
    /// addresses can return.
    pub(crate) fn retract(&self, region: &Region) {
        // Pairs with offset_of().
        self.last[(region.offset >> self.region_shift) as usize].store(UNMAPPED, Ordering::Release);
        self.unmap_one(region);
    }

    /// Undoes [`map`](Self::map), once even with several callers. The other regions follow.
    pub(crate) fn unmap(&self, region: &Region) {
        self.giving.store(SCATTERED, Ordering::Relaxed);
        self.unmap_one(region);
    }

    fn unmap_one(&self, region: &Region) {
        let slot = &self.at[(region.offset >> self.region_shift) as usize];
        let add = slot.swap(UNMAPPED, Ordering::AcqRel);
        if add != UNMAPPED {
            self.entry.iter().for_each(|entry| entry.add(0, region.len_bytes.wrapping_neg()));
            self.domain.unmap(region, DeviceAddr(add.wrapping_add(region.offset)));
        }
    }
}
