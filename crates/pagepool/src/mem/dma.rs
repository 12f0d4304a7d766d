//! Device address spaces: a device sees an area at addresses of its own, mapped once per region.
//!
//! A [`DmaDomain`] is an address space: the identity, the offsets of an AF_XDP UMEM, an IOMMU behind VFIO, a
//! checking one for tests. An area (the numbered pages of one provider) may be attached to several at once.
//! Each attachment is a [`Mapping`]: one device address per region, so the device address of a page is
//! arithmetic, and "is this page mapped for that other device, and where?" is one lookup. "Evolving the
//! page_pool API" (J. D. Brouer, 2018) ends with that question; Linux has no answer to it.
//!
//! Threads: all of it from any thread. Attaching and detaching take a lock; reading an address takes none.
//! Invariant I6: a page is mapped from before its first hand-out until after its last return, in every domain
//! that its area is attached to, unless the domain is detached first: by the end of the last pool that uses
//! it, or because the device went away. Buffers that are still out then have no device address any more.
//! Every mapping is undone exactly once, and before the memory goes.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::error::Error;
use crate::mem::page::PAGE_SHIFT;
use crate::sys::published_entry::{PublishedEntry, publish_entry};
use crate::sys::published_memory::PublishedMemory;

/// The id of a domain. Two domains with the same id are the same address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DomainId(u64);

impl DomainId {
    /// An id that no other call gives.
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
/// Only an area makes one, and lends it for one call: while it exists, the memory is there. It cannot be
/// copied; a domain that must remember a region keeps its numbers.
///
/// ```compile_fail
/// let forged = pagepool::Region { offset: 0, len_bytes: 4096, cpu_addr: Some(0x1000), area: 1 };
/// ```
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Region {
    offset: u64,
    len_bytes: u64,
    cpu_addr: Option<usize>,
    area: u64,
}

impl Region {
    /// For an area alone.
    pub(crate) fn new(offset: u64, len_bytes: u64, cpu_addr: Option<usize>, area: u64) -> Self {
        Self { offset, len_bytes, cpu_addr, area }
    }

    /// First byte, counted from the start of the area.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Length in bytes, a multiple of 4096; in an arena's own memory also of the
    /// [system's page](crate::system_page_size).
    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// The CPU's address of the first byte; `None` for memory that the CPU cannot read.
    pub fn cpu_addr(&self) -> Option<usize> {
        self.cpu_addr
    }

    /// Identifies the area among all areas of this process.
    pub fn area(&self) -> u64 {
        self.area
    }

    /// The numbers of its pages.
    pub(crate) fn pages(&self) -> Range<u32> {
        (self.offset >> PAGE_SHIFT) as u32..((self.offset + self.len_bytes) >> PAGE_SHIFT) as u32
    }
}

/// The address space of a device. The domain alone defines device addresses; the pool only asks for them.
///
/// `unmap` cannot fail. Every method may be called from any thread, inside a drop, and is never called under
/// a lock of a pool. An implementation must tolerate a sync that races with the unmapping of its region (the
/// device went away while a buffer was on its way back): such a sync does nothing.
///
/// `map` runs under the lock of the area, and so does an `unmap` that undoes it because another region was
/// refused. They may drop buffers, and ask the provider for pages (they get pages that are free, without
/// growth). They, and the wakers of tasks that such a drop wakes, must not attach or detach domains of that
/// area, ask it for a mapping, make or end a pool over it, or drop the last count of its provider: each of
/// these would deadlock.
///
/// Every other `unmap` runs without that lock and may do all of this. It must not wait for another thread
/// that attaches the same domain or drops the provider. It may drop the last count of the provider, so the
/// device must have stopped accessing the region by then.
///
/// A panic in a method propagates to the caller of the pool. A page whose sync panics leaves its pool. So do
/// up to 64 whole pages of that pool that return with it. All other buffers of that bulk return to their
/// pools while the panic unwinds: a domain that panics once more then ends the process, as in any `drop`.
///
/// Linux: the `struct device` given to `page_pool_create`, and `dma_map_page_attrs`,
/// `dma_sync_single_for_device`.
pub trait DmaDomain: Send + Sync + fmt::Debug {
    /// Which address space this is.
    fn id(&self) -> DomainId;

    /// A name for descriptions and errors.
    fn name(&self) -> String;

    /// Maps one region and gives its device address, mostly a multiple of 4096. A refusal says why in words.
    ///
    /// The two highest numbers are refused, as the address and as what it is above the region's offset: the
    /// region is [unmapped](Self::unmap) at once, and an error names the address.
    fn map(&self, region: &Region) -> Result<DeviceAddr, String>;

    /// Undoes [`map`](Self::map); `at` is the address that it gave.
    fn unmap(&self, region: &Region, at: DeviceAddr);

    /// Hands `len_bytes` at `at` to the device: what the CPU wrote becomes visible to it. Does nothing in a
    /// [coherent](Self::coherent) domain.
    fn sync_for_device(&self, at: DeviceAddr, len_bytes: usize);

    /// Hands `len_bytes` at `at` to the CPU: what the device wrote becomes visible to it.
    fn sync_for_cpu(&self, at: DeviceAddr, len_bytes: usize);

    /// Whether device and CPU see one memory, so that both syncs may be skipped. Asked once, when a pool is
    /// made.
    fn coherent(&self) -> bool {
        true
    }

    /// Whether the area must not grow while it is mapped here, as with an AF_XDP UMEM, which is registered
    /// once as a whole. Asked once, when the area is mapped here.
    fn fixes_area(&self) -> bool {
        false
    }
}

/// The domain in which a device address is the CPU's address: a coherent device without an IOMMU in the way,
/// a vhost-user peer that shares the address space, an io_uring buffer ring.
#[derive(Debug)]
pub struct IdentityDomain {
    id: DomainId,
    name: String,
}

impl IdentityDomain {
    /// A new identity domain with an id of its own.
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

/// The domain in which a device address is the offset in the area, as in an AF_XDP UMEM. It fixes the area:
/// an arena that is mapped here cannot grow.
#[derive(Debug)]
pub struct OffsetDomain {
    id: DomainId,
    name: String,
}

impl OffsetDomain {
    /// A new offset domain with an id of its own.
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

/// One area in one domain: a device address per region.
pub struct Mapping {
    domain: Arc<dyn DmaDomain>,
    id: DomainId,
    coherent: bool,
    fixes_area: bool,
    area: u64,
    users: AtomicUsize,
    region_shift: u32,
    /// What to add to an offset in the area, for each region, or [`UNMAPPED`]. The thread that swaps it out
    /// unmaps the region.
    at: Box<[AtomicU64]>,
    /// The address that each region had last, mapped or not: by it the addresses are resolved that a removed
    /// device was given.
    last: Box<[AtomicU64]>,
    /// What to subtract from an address for its offset, the same for every region that was ever mapped; or
    /// [`UNMAPPED`], or [`SCATTERED`]. Changed under the area's lock.
    linear: AtomicU64,
    /// The same while addresses may be given out: [`SCATTERED`] from the first region on that is unmapped,
    /// which is when the whole mapping goes.
    giving: AtomicU64,
    /// What observers of the process see of it.
    entry: Option<PublishedEntry>,
}

impl fmt::Debug for Mapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut f = f.debug_struct("Mapping");
        f.field("domain", &self.domain.name()).field("id", &self.id).finish_non_exhaustive()
    }
}

/// Shows a mapping to those who observe the process.
fn entry(domain: &dyn DmaDomain, area: u64) -> Option<PublishedEntry> {
    PublishedMemory::current()?;
    let coherent = if domain.coherent() { "1" } else { "0" };
    publish_entry("domain", domain.id().0, area, &domain.name(), &[("coherent", coherent)], &["mapped_bytes"])
}

/// No mapped region begins at this or adds it: [`Mapping::map`] refuses such an address.
const UNMAPPED: u64 = u64::MAX;
/// Neither: the regions of the mapping do not lie as in the area.
const SCATTERED: u64 = u64::MAX - 1;

impl Mapping {
    /// A mapping without regions, for an area of `regions` regions of `1 << region_shift` bytes, with one
    /// user.
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

    /// The domain's id, without asking it.
    #[inline]
    pub fn id(&self) -> DomainId {
        self.id
    }

    /// The id of the area that it maps.
    #[inline]
    pub fn area(&self) -> u64 {
        self.area
    }

    /// Whether syncs may be skipped.
    #[inline]
    pub fn coherent(&self) -> bool {
        self.coherent
    }

    /// Whether the area cannot grow while it is mapped here.
    pub(crate) fn fixes_area(&self) -> bool {
        self.fixes_area
    }

    /// Pools that use this mapping.
    pub(crate) fn users(&self) -> &AtomicUsize {
        &self.users
    }

    /// The device address of a byte of the area, or `None` while its region is not mapped. One load.
    #[inline]
    pub fn addr_of(&self, offset: u64) -> Option<DeviceAddr> {
        let region = self.at.get((offset >> self.region_shift) as usize)?;
        let add = region.load(Ordering::Acquire); // pairs with map()
        (add != UNMAPPED).then(|| DeviceAddr(add.wrapping_add(offset)))
    }

    /// The offset in the area of a device address, or `None` when it is in no region that was ever mapped.
    /// Cost: one load when the domain is linear over the area (it usually is), else a search over the
    /// regions.
    #[inline]
    pub fn offset_of(&self, addr: DeviceAddr) -> Option<u64> {
        let first = self.last.first()?.load(Ordering::Acquire);
        let guess = (addr.0.wrapping_sub(first) >> self.region_shift) as usize;
        self.offset_in(guess, addr).or_else(|| self.search(addr))
    }

    /// What to subtract from any address that was given out for its offset, if that is one number.
    #[inline(always)]
    pub(crate) fn linear(&self) -> Option<u64> {
        let linear = self.linear.load(Ordering::Acquire); // pairs with map()
        (linear < SCATTERED).then_some(linear)
    }

    /// What to add to the offset of a page of the cache for its address, if that is one number: I6 says that
    /// such a page is mapped.
    #[inline(always)]
    pub(crate) fn giving(&self) -> Option<u64> {
        let giving = self.giving.load(Ordering::Acquire); // pairs with map()
        (giving < SCATTERED).then_some(giving)
    }

    /// The offset of an address that lies in this region, as it was mapped last.
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

    /// Maps one region; nothing happens if it is mapped already.
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
                "it gave {at}; that, or that less the region's place, is a number that means no address \
                 here: map to multiples of 4096"
            );
            return Err(self.refused(region, reason));
        }
        let linear = if before == UNMAPPED || before == add { add } else { SCATTERED };
        self.linear.store(linear, Ordering::Release); // pairs with linear()
        // Pairs with giving(). What goes meanwhile stays gone.
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

    /// Undoes a [`map`](Self::map) that is rolled back: no page of the region was handed out, so no address
    /// of it can come back.
    pub(crate) fn retract(&self, region: &Region) {
        // Pairs with offset_of().
        self.last[(region.offset >> self.region_shift) as usize].store(UNMAPPED, Ordering::Release);
        self.unmap_one(region);
    }

    /// Undoes [`map`](Self::map), once, however many callers there are. The other regions follow.
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
