//! The address space of an in-memory NIC: an IOMMU in a table.
//!
//! What   each mapped region has a place in the table, which defines its device addresses: bits 0 to 39 count
//!        bytes, 40 to 55 name the place, and the bits above count how often it was used. No address is used
//!        twice. Device and CPU see one memory.
//! Who    any thread. Mapping and unmapping take a lock; an access takes none.
//! How    the lock's holder writes a place as a sequence lock: remove the tag, write the region, store the
//!        new tag. A reader that finds its tag before and after reading the region has that region.
//! Pairs  map: tag (Release) -> translate: tag (Acquire). map: fence (Release) before the region is written
//!        -> translate: fence (Acquire) before the second tag load. The fence is in map, because the mapping
//!        thread may not be the one that removed the old tag: the lock orders that removal before the mapper,
//!        and only the mapper's own fence passes it on to readers.
//! Cost   an access: five loads, two compares, and the copy.
//! Unmap  does not wait for accesses in progress. It need not: the accessed buffer is on a ring (the rule of
//!        `DeviceMemory`), so it is out, and its memory stays (I3).

// UNSAFETY: a device access copies to or from the memory of a region.
#![expect(unsafe_code)]

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use pagepool::{DeviceAddr, DmaDomain, DomainId, Region};

use super::device_memory::{DeviceMemory, Fault};

/// Bits of an address within its place: the largest region of an area.
const OFFSET_BITS: u32 = 40;
const PLACE_BITS: u32 = 16;
/// Places of a part of the table. A part is allocated with the first use of one of its places.
const PART: usize = 256;

#[derive(Debug, Default)]
struct Place {
    /// The upper bits of the addresses that are mapped here; 0 for none.
    tag: AtomicU64,
    /// Address of the region's first byte, and its length.
    cpu: AtomicU64,
    len: AtomicU64,
}

#[derive(Debug, Default)]
struct Free {
    /// Places from here on were never used.
    fresh: u64,
    /// The next tags of used places, the oldest first.
    again: VecDeque<u64>,
}

/// The address space of an in-memory NIC: coherent, with up to 65,536 regions at once.
///
/// ```
/// use pagepool::{Arena, ArenaParams, Pool, PoolParams};
/// use pagepool_net::NicDomain;
/// let domain = NicDomain::new("mem0");
/// let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
/// let pool = Pool::new(PoolParams { domains: vec![domain.clone()], ..Default::default() }, arena)?.bind();
/// let buffer = pool.alloc_page().unwrap();
/// let (device, cpu) = (buffer.dma_addr().unwrap().0, buffer.as_ptr().unwrap() as u64);
/// assert_ne!(device, cpu, "the device has addresses of its own");
/// # Ok::<(), pagepool::Error>(())
/// ```
#[derive(Debug)]
pub struct NicDomain {
    id: DomainId,
    name: String,
    parts: Box<[OnceLock<Box<[Place]>>]>,
    free: Mutex<Free>,
    faults: AtomicU64,
}

impl NicDomain {
    /// A new address space, in which nothing is mapped.
    pub fn new(name: impl Into<String>) -> Arc<Self> {
        Arc::new(Self {
            id: DomainId::unique(),
            name: name.into(),
            parts: (0..(1 << PLACE_BITS) / PART).map(|_| OnceLock::new()).collect(),
            free: Mutex::default(),
            faults: AtomicU64::new(0),
        })
    }

    /// Accesses that were refused.
    pub fn faults(&self) -> u64 {
        self.faults.load(Ordering::Relaxed)
    }

    #[inline]
    fn place(&self, tag: u64) -> Option<&Place> {
        let at = (tag & ((1 << PLACE_BITS) - 1)) as usize;
        self.parts[at / PART].get().map(|part| &part[at % PART])
    }

    /// The memory that `len` bytes at a device address are mapped to.
    #[inline]
    fn translate(&self, at: DeviceAddr, len: usize) -> Result<*mut u8, Fault> {
        let (tag, offset) = (at.0 >> OFFSET_BITS, at.0 & ((1 << OFFSET_BITS) - 1));
        let found = self.place(tag).and_then(|place| {
            let before = place.tag.load(Ordering::Acquire); // pairs with map()
            let (cpu, size) = (place.cpu.load(Ordering::Relaxed), place.len.load(Ordering::Relaxed));
            fence(Ordering::Acquire); // pairs with the fence in map()
            let stayed = place.tag.load(Ordering::Relaxed) == before;
            let within = offset < size && len as u64 <= size - offset;
            (before == tag && tag != 0 && stayed && within).then_some(cpu + offset)
        });
        match found {
            Some(addr) => Ok(std::ptr::with_exposed_provenance_mut(addr as usize)),
            None => self.refuse(at),
        }
    }

    #[cold]
    fn refuse<T>(&self, at: DeviceAddr) -> Result<T, Fault> {
        self.faults.fetch_add(1, Ordering::Relaxed);
        Err(Fault::Unmapped(at))
    }
}

impl Free {
    /// The tag of a free place, if there is one. Prefers used places: repeated mapping and unmapping does not
    /// go through the whole table.
    fn take(&mut self) -> Option<u64> {
        let again = self.again.pop_front();
        if again.is_none() && self.fresh < 1 << PLACE_BITS {
            self.fresh += 1;
            return Some(1 << PLACE_BITS | (self.fresh - 1)); // its first use
        }
        again
    }

    /// Frees the place of a tag, unless all its tags were used.
    fn put(&mut self, tag: u64) {
        let next = tag + (1 << PLACE_BITS);
        if next < 1 << (u64::BITS - OFFSET_BITS) {
            self.again.push_back(next);
        }
    }
}

impl DmaDomain for NicDomain {
    fn id(&self) -> DomainId {
        self.id
    }

    fn name(&self) -> String {
        self.name.clone()
    }

    fn map(&self, region: &Region) -> Result<DeviceAddr, String> {
        let cpu = region.cpu_addr().ok_or("this device copies, but the CPU cannot read the memory")?;
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let tag = free.take().ok_or("all 65,536 regions are mapped or used up: use larger regions")?;
        let at = (tag & ((1 << PLACE_BITS) - 1)) as usize;
        let part = self.parts[at / PART].get_or_init(|| (0..PART).map(|_| Place::default()).collect());
        let place = &part[at % PART];
        fence(Ordering::Release); // pairs with the fence in translate()
        place.cpu.store(cpu as u64, Ordering::Relaxed);
        place.len.store(region.len_bytes(), Ordering::Relaxed);
        place.tag.store(tag, Ordering::Release); // pairs with translate()
        Ok(DeviceAddr(tag << OFFSET_BITS))
    }

    fn unmap(&self, region: &Region, at: DeviceAddr) {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let tag = at.0 >> OFFSET_BITS;
        let Some(place) = self.place(tag) else { return };
        let is_it = region.cpu_addr().map(|cpu| cpu as u64) == Some(place.cpu.load(Ordering::Relaxed));
        if place.tag.load(Ordering::Relaxed) == tag && is_it {
            place.tag.store(0, Ordering::Relaxed); // map() has a fence before it uses the place again
            free.put(tag);
        }
    }

    fn sync_for_device(&self, _at: DeviceAddr, _len_bytes: usize) {}

    fn sync_for_cpu(&self, _at: DeviceAddr, _len_bytes: usize) {}
}

impl DeviceMemory for NicDomain {
    #[inline]
    unsafe fn device_read(&self, at: DeviceAddr, into: &mut [u8]) -> Result<(), Fault> {
        let from = self.translate(at, into.len())?;
        // SAFETY: I3, I4. The bytes are in a mapped region and belong to the device: they exist, and no other
        // code writes them. `into` is the device's own memory.
        unsafe { std::ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len()) };
        Ok(())
    }

    #[inline]
    unsafe fn device_write(&self, at: DeviceAddr, from: &[u8]) -> Result<(), Fault> {
        let into = self.translate(at, from.len())?;
        // SAFETY: I3, I4. The bytes are in a mapped region and belong to the device: they exist, and there is
        // no reference to them, so `from` is other memory.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), into, from.len()) };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagepool::{Arena, ArenaParams, Provider};

    #[test]
    fn an_address_translates_while_mapped_and_is_never_reused() {
        let arena = Arena::new(ArenaParams { max_bytes: 8 << 20, ..Default::default() }).unwrap();
        let nic = NicDomain::new("mem0");
        let domain: Arc<dyn DmaDomain> = nic.clone();
        let mapping = arena.area().attach(&domain).unwrap();
        let at = mapping.addr_of(5000).unwrap();
        let base = arena.area().base().unwrap();
        assert_eq!(nic.translate(at, 1).unwrap() as usize, base + 5000);
        let left = (4 << 20) - 5000;
        assert!(nic.translate(at, left).is_ok());
        assert_eq!(nic.translate(at, left + 1), Err(Fault::Unmapped(at)), "beyond the region");
        assert_eq!(nic.translate(DeviceAddr(0), 1), Err(Fault::Unmapped(DeviceAddr(0))));
        assert_eq!(nic.translate(DeviceAddr(u64::MAX), 1), Err(Fault::Unmapped(DeviceAddr(u64::MAX))));
        arena.area().detach(&mapping);
        assert_eq!(nic.translate(at, 1), Err(Fault::Unmapped(at)));
        assert_eq!(nic.faults(), 4);
        let again = arena.area().attach(&domain).unwrap();
        assert_ne!(again.addr_of(5000), Some(at));
        assert!(nic.translate(at, 1).is_err());
    }

    #[test]
    fn mapping_over_and_over_takes_few_places() {
        let mut free = Free::default();
        for _ in 0..10_000 {
            let tag = free.take().unwrap();
            free.put(tag);
        }
        assert_eq!((free.fresh, free.again.len()), (10_000_u64.div_ceil(255), 1), "255 addresses of each");
    }

    #[test]
    fn a_place_is_reused_at_new_addresses_until_none_is_left() {
        let mut free = Free { fresh: 1 << PLACE_BITS, again: VecDeque::new() };
        free.put(1 << PLACE_BITS | 7);
        let mut last = 1 << PLACE_BITS | 7;
        for _ in 2..256 {
            let tag = free.take().unwrap();
            assert_eq!(tag, last + (1 << PLACE_BITS));
            free.put(tag);
            last = tag;
        }
        assert_eq!(free.take(), None, "all its addresses were given");
    }
}
