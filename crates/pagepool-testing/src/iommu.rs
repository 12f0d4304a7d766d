//! An IOMMU for tests: forbidden accesses of a device fail, and it does not see unsynced data.
//!
//! What   each mapped region has its own random addresses with unmapped space around, never reused, and a
//!        copy of its memory for the device: a forgotten sync shows as stale bytes. Each line of 64 bytes has
//!        an owner: a device that touches a line that was not given to it gets [`IommuFault::NotSynced`].
//! Who    any thread; one lock.
//! Trust  it accesses the addresses of mapped regions until they are unmapped: a domain that wraps it must
//!        pass on every unmap, and a test must not let the device access what it has a reference to itself
//!        (I4).
//! Memory a mapped region takes its size again where it is touched.

// UNSAFETY: syncs copy between the mapped memory and the device's copy of it.
#![expect(unsafe_code)]

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pagepool::{DeviceAddr, DmaDomain, DomainId, PAGE_SIZE, Region};

/// Bytes of a line, the unit of ownership.
const LINE: usize = 64;
/// Least number of unmapped bytes around each mapping.
const GUARD: u64 = 1 << 20;
/// Addresses are below this, the limit of common IOMMUs.
const SPACE: u64 = 1 << 47;
/// Most events in the log; later ones are only counted.
const LOG_MAX: usize = 1 << 16;

/// Fault of a device access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum IommuFault {
    /// Nothing was ever mapped at this address.
    Unmapped(DeviceAddr),
    /// The address was mapped once, but not any more.
    AfterUnmap(DeviceAddr),
    /// The line at this address belongs to the CPU: it was not synced for the device.
    NotSynced(DeviceAddr),
}

impl fmt::Display for IommuFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unmapped(at) => write!(f, "device access to {at}, which was never mapped"),
            Self::AfterUnmap(at) => write!(f, "device access to {at} after it was unmapped"),
            Self::NotSynced(at) => write!(f, "device access to {at}, which was not synced for the device"),
        }
    }
}

impl std::error::Error for IommuFault {}

/// Calls to the IOMMU; lengths in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs)] // each variant is a method of `DmaDomain`
pub enum IommuEvent {
    Map(DeviceAddr, u64),
    Unmap(DeviceAddr, u64),
    SyncForDevice(DeviceAddr, usize),
    SyncForCpu(DeviceAddr, usize),
}

/// Number of calls of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IommuCounts {
    /// Regions mapped.
    pub maps: u64,
    /// Mappings refused by [`CheckingIommu::fail_map`].
    pub refused: u64,
    /// Mapped regions that were unmapped.
    pub unmaps: u64,
    /// Unmaps without a mapping: each is a bug.
    pub bad_unmaps: u64,
    /// Syncs for the device.
    pub for_device: u64,
    /// Syncs for the CPU.
    pub for_cpu: u64,
    /// Syncs of memory that was unmapped already: they do nothing.
    pub late_syncs: u64,
    /// Syncs beyond the end of a mapping: each is a bug.
    pub bad_syncs: u64,
    /// Device accesses that faulted.
    pub faults: u64,
}

/// An IOMMU for tests: a device access fails if it is not mapped, or not synced for the device. Each region
/// is mapped at random addresses, never reused, to a copy of its memory: `sync_for_device` copies to it,
/// `sync_for_cpu` from it, so a missing sync shows as stale bytes. Any thread; one lock.
///
/// ```
/// use pagepool_testing::{CheckingIommu, IommuFault};
/// use pagepool::{Arena, ArenaParams, DmaDomain, Provider};
/// use std::sync::Arc;
///
/// let arena = Arena::new(ArenaParams { max_bytes: 4096, ..Default::default() })?;
/// let iommu = CheckingIommu::new("nic0");
/// let domain: Arc<dyn DmaDomain> = iommu.clone();
/// let mapping = arena.area().attach(&domain)?;
/// let at = mapping.addr_of(0).expect("the first region is present");
///
/// assert_eq!(iommu.device_write(at, b"hi"), Err(IommuFault::NotSynced(at)));
/// iommu.sync_for_device(at, 64);
/// assert_eq!(iommu.device_write(at, b"hi"), Ok(()));
/// arena.area().detach(&mapping);
/// assert_eq!(iommu.device_write(at, b"hi"), Err(IommuFault::AfterUnmap(at)));
/// # Ok::<(), pagepool::Error>(())
/// ```
#[derive(Debug)]
pub struct CheckingIommu {
    id: DomainId,
    name: String,
    coherent: bool,
    state: Mutex<IommuState>,
}

#[derive(Debug, Default)]
struct IommuState {
    mapped: BTreeMap<u64, IommuMapping>,
    /// Length of every range that was ever mapped, by start.
    ever: BTreeMap<u64, u64>,
    counts: IommuCounts,
    log: Vec<IommuEvent>,
    random: u64,
    fail_map_in: u64,
}

struct IommuMapping {
    cpu: Option<*mut u8>,
    len: usize,
    device: Vec<u8>,
    /// Whether the device owns the line.
    lines: Vec<bool>,
}

// SAFETY: the pointer is dereferenced only while the region is mapped, for bytes that the caller of a sync
// hands over (I4).
unsafe impl Send for IommuMapping {}

impl fmt::Debug for IommuMapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes at {:?}", self.len, self.cpu)
    }
}

impl IommuMapping {
    fn new(region: &Region, coherent: bool) -> Self {
        let len = region.len_bytes() as usize;
        let cpu = region.cpu_addr().map(|addr| addr as *mut u8);
        let copied = if coherent && cpu.is_some() { 0 } else { len };
        Self { cpu, len, device: vec![0; copied], lines: vec![false; len.div_ceil(LINE)] }
    }

    /// Copies between CPU and device, and passes the lines on.
    fn sync(&mut self, at: Range<usize>, to_device: bool) {
        if let (Some(cpu), false) = (self.cpu, self.device.is_empty()) {
            let copy = &mut self.device[at.clone()];
            // SAFETY: the range is within the mapped region.
            let cpu = unsafe { cpu.add(at.start) };
            if to_device {
                // SAFETY: I4, I6. The region is mapped, so its memory exists; the caller hands these bytes
                // over.
                unsafe { std::ptr::copy_nonoverlapping(cpu, copy.as_mut_ptr(), copy.len()) };
            } else {
                // SAFETY: I4, I6. The region is mapped, and the caller takes these bytes over.
                unsafe { std::ptr::copy_nonoverlapping(copy.as_ptr(), cpu, copy.len()) };
            }
        }
        if !at.is_empty() {
            self.lines[at.start / LINE..at.end.div_ceil(LINE)].fill(to_device);
        }
    }

    fn view(&mut self, at: Range<usize>) -> &mut [u8] {
        match self.cpu {
            Some(cpu) if self.device.is_empty() => {
                // SAFETY: the range is within the mapped region.
                let start = unsafe { cpu.add(at.start) };
                // SAFETY: I4, I6. The region is mapped, and the device owns what the test lets it access.
                unsafe { std::slice::from_raw_parts_mut(start, at.len()) }
            }
            _ => &mut self.device[at],
        }
    }
}

impl CheckingIommu {
    /// Creates an IOMMU of a device that does not see the CPU's caches.
    pub fn new(name: impl Into<String>) -> Arc<Self> {
        Self::make(name.into(), false)
    }

    /// Creates an IOMMU of a device that sees the CPU's memory directly. Unmapped accesses still fault.
    ///
    /// # Safety
    /// While [`device_read`](Self::device_read) or [`device_write`](Self::device_write) runs, no other thread
    /// writes these bytes, and no reference to bytes that the device writes exists (I4).
    pub unsafe fn new_coherent(name: impl Into<String>) -> Arc<Self> {
        Self::make(name.into(), true)
    }

    fn make(name: String, coherent: bool) -> Arc<Self> {
        let state = IommuState { random: 0x9e37_79b9_7f4a_7c15, ..IommuState::default() };
        Arc::new(Self { id: DomainId::unique(), name, coherent, state: Mutex::new(state) })
    }

    /// Refuses the `n`-th mapping from now on, once; 1: the next, 0: none.
    pub fn fail_map(&self, n: u64) {
        self.state().fail_map_in = n;
    }

    /// Reads as the device.
    pub fn device_read(&self, at: DeviceAddr, into: &mut [u8]) -> Result<(), IommuFault> {
        self.access(at, into.len(), |view| into.copy_from_slice(view))
    }

    /// Writes as the device.
    pub fn device_write(&self, at: DeviceAddr, from: &[u8]) -> Result<(), IommuFault> {
        self.access(at, from.len(), |view| view.copy_from_slice(from))
    }

    /// Returns the events since the last call, in order; at most 65,536.
    pub fn take_log(&self) -> Vec<IommuEvent> {
        std::mem::take(&mut self.state().log)
    }

    /// Number of events of each kind.
    pub fn counts(&self) -> IommuCounts {
        self.state().counts
    }

    /// Number of regions that are mapped now.
    pub fn mapped_regions(&self) -> usize {
        self.state().mapped.len()
    }

    fn state(&self) -> MutexGuard<'_, IommuState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn access(&self, at: DeviceAddr, len: usize, work: impl FnOnce(&mut [u8])) -> Result<(), IommuFault> {
        let mut state = self.state();
        let state = &mut *state;
        let found = state.find(at, len).and_then(|(mapped, range)| {
            let lines = range.start / LINE..range.end.div_ceil(LINE);
            match mapped.lines[lines.clone()].iter().position(|&device| !device) {
                Some(line) if !self.coherent => {
                    let wrong = ((lines.start + line) * LINE).max(range.start) - range.start;
                    Err(IommuFault::NotSynced(DeviceAddr(at.0 + wrong as u64)))
                }
                _ => Ok(mapped.view(range)),
            }
        });
        match found {
            Ok(view) => work(view),
            Err(fault) => {
                state.counts.faults += 1;
                return Err(fault);
            }
        }
        Ok(())
    }

    fn sync(&self, at: DeviceAddr, len: usize, to_device: bool) {
        let mut state = self.state();
        let done = state.find(at, len).map(|(mapped, range)| mapped.sync(range, to_device));
        let counts = &mut state.counts;
        match done {
            Ok(()) if to_device => counts.for_device += 1,
            Ok(()) => counts.for_cpu += 1,
            Err(IommuFault::AfterUnmap(_)) => counts.late_syncs += 1,
            Err(_) => counts.bad_syncs += 1,
        }
        let event =
            if to_device { IommuEvent::SyncForDevice(at, len) } else { IommuEvent::SyncForCpu(at, len) };
        state.record(event);
    }
}

impl IommuState {
    /// The mapping that contains a range, and the range within it; a fault has the first bad byte.
    fn find(&mut self, at: DeviceAddr, len: usize) -> Result<(&mut IommuMapping, Range<usize>), IommuFault> {
        let ever = &self.ever;
        let fault = |addr: u64| match ever.range(..=addr).next_back() {
            Some((start, len)) if addr - start < *len => IommuFault::AfterUnmap(DeviceAddr(addr)),
            _ => IommuFault::Unmapped(DeviceAddr(addr)),
        };
        let Some((&start, mapped)) = self.mapped.range_mut(..=at.0).next_back() else {
            return Err(fault(at.0));
        };
        let offset = at.0 - start;
        if offset >= mapped.len as u64 {
            return Err(fault(at.0));
        }
        if len > mapped.len - offset as usize {
            return Err(IommuFault::Unmapped(DeviceAddr(start + mapped.len as u64)));
        }
        Ok((mapped, offset as usize..offset as usize + len))
    }

    /// A page-aligned place that, with its guards, was never mapped.
    fn place(&mut self, len: u64) -> u64 {
        loop {
            self.random ^= self.random << 13;
            self.random ^= self.random >> 7;
            self.random ^= self.random << 17;
            let at = (self.random % (SPACE - len - GUARD)) & !(PAGE_SIZE as u64 - 1);
            let below = self.ever.range(..at + len + GUARD).next_back();
            if at > GUARD && below.is_none_or(|(start, len)| start + len + GUARD <= at) {
                return at;
            }
        }
    }

    fn record(&mut self, event: IommuEvent) {
        if self.log.len() < LOG_MAX {
            self.log.push(event);
        }
    }
}

impl DmaDomain for CheckingIommu {
    fn id(&self) -> DomainId {
        self.id
    }

    fn name(&self) -> String {
        self.name.clone()
    }

    fn map(&self, region: &Region) -> Result<DeviceAddr, String> {
        let mut state = self.state();
        let refuse = state.fail_map_in == 1;
        state.fail_map_in = state.fail_map_in.saturating_sub(1);
        if refuse {
            state.counts.refused += 1;
            return Err("refused by the test".into());
        }
        let at = state.place(region.len_bytes());
        state.ever.insert(at, region.len_bytes());
        state.mapped.insert(at, IommuMapping::new(region, self.coherent));
        state.counts.maps += 1;
        state.record(IommuEvent::Map(DeviceAddr(at), region.len_bytes()));
        Ok(DeviceAddr(at))
    }

    fn unmap(&self, region: &Region, at: DeviceAddr) {
        let mut state = self.state();
        match state.mapped.remove(&at.0) {
            Some(mapped) if mapped.len as u64 == region.len_bytes() => state.counts.unmaps += 1,
            _ => state.counts.bad_unmaps += 1,
        }
        state.record(IommuEvent::Unmap(at, region.len_bytes()));
    }

    fn sync_for_device(&self, at: DeviceAddr, len_bytes: usize) {
        self.sync(at, len_bytes, true);
    }

    fn sync_for_cpu(&self, at: DeviceAddr, len_bytes: usize) {
        self.sync(at, len_bytes, false);
    }

    fn coherent(&self) -> bool {
        self.coherent
    }
}
