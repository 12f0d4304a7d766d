//! Domains: the address spaces of devices, also ones that the caller implements.

// UNSAFETY: exported functions; reads callers' structs and calls their callbacks.
#![expect(unsafe_code)]

use std::ffi::{c_char, c_int, c_void};
use std::fmt;
use std::sync::Arc;

use ::pagepool::{DeviceAddr, DmaDomain, DomainId, IdentityDomain, OffsetDomain, Region, uncancelled};

use crate::args::out::store_handle;
use crate::args::range::out_of_range;
use crate::args::sized::{self, Sized0, text};
use crate::error::{CallError, status, value_or};
use crate::handles::claim::read;
use crate::handles::opaque::{BufHandle, DomainHandle};
use crate::handles::tables::DOMAINS;
use crate::handles::token::Token;

/// A region: a part of an arena that domains map in one piece. The library fills it in for callbacks.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct RegionC {
    /// The size of the struct in the calling library: only fields within it exist.
    pub size: usize,
    /// Offset of the first byte in the arena.
    pub offset: u64,
    /// Length in bytes, a multiple of 4096.
    pub len: u64,
    /// Address of the first byte for the CPU; NULL for memory that the CPU cannot read.
    pub cpu_addr: *mut c_void,
    /// Identifies the arena in this process.
    pub arena_id: u64,
}

/// An address space that the caller implements. The library calls these functions on any thread, in calls
/// that make an arena grow, create or destroy a pool, or return a buffer. They may return buffers; they must
/// not throw or longjmp. `map` runs under a lock of the arena. To avoid a deadlock it must not create or
/// destroy a pool over that arena, release the arena, or read a device address in another domain.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct DomainOpsC {
    /// sizeof(struct pagepool_domain_ops).
    pub size: usize,
    /// The name in error texts; copied. NULL means "domain".
    pub name: *const c_char,
    /// The first argument of each function.
    pub arg: *mut c_void,
    /// Maps a region and stores its device address in `*addr`. Returns 0, or a negative errno to refuse.
    /// Required.
    pub map: Option<unsafe extern "C" fn(arg: *mut c_void, region: *const RegionC, addr: *mut u64) -> c_int>,
    /// Unmaps a region, once for each `map` that returned 0. Required.
    pub unmap: Option<unsafe extern "C" fn(arg: *mut c_void, region: *const RegionC, addr: u64)>,
    /// Makes `len` bytes from the device address `addr` visible to the device. Required unless `coherent`.
    pub sync_for_device: Option<unsafe extern "C" fn(arg: *mut c_void, addr: u64, len: usize)>,
    /// Makes `len` bytes from the device address `addr` visible to the CPU. Required unless `coherent`.
    pub sync_for_cpu: Option<unsafe extern "C" fn(arg: *mut c_void, addr: u64, len: usize)>,
    /// Called once, after the last use of the domain; `arg` may be freed then. May be NULL.
    pub release: Option<unsafe extern "C" fn(arg: *mut c_void)>,
    /// 1: device and CPU always see the same bytes, so no syncs are needed.
    pub coherent: u32,
    /// 1: an arena must not grow or shrink while it is mapped here, as in an AF_XDP UMEM; it requires
    /// `commit_all`.
    pub fixes_arena: u32,
}

// SAFETY: plain integers and pointers, of which zeroes are values; a callback that is not set is zero.
unsafe impl Sized0 for DomainOpsC {
    const LEAST: usize = std::mem::offset_of!(Self, fixes_arena) + size_of::<u32>();
}

/// A domain made of a caller's callbacks.
struct DomainCallbacks {
    id: DomainId,
    name: String,
    ops: DomainOpsC,
    map: unsafe extern "C" fn(*mut c_void, *const RegionC, *mut u64) -> c_int,
    unmap: unsafe extern "C" fn(*mut c_void, *const RegionC, u64),
}

// SAFETY: the header says that the callbacks are called on any thread, with their argument.
unsafe impl Send for DomainCallbacks {}
// SAFETY: the header says that the callbacks are called on any thread, also on several at a time.
unsafe impl Sync for DomainCallbacks {}

impl fmt::Debug for DomainCallbacks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DomainCallbacks").field("name", &self.name).finish_non_exhaustive()
    }
}

fn region_for_c(region: &Region) -> RegionC {
    RegionC {
        size: size_of::<RegionC>(),
        offset: region.offset(),
        len: region.len_bytes(),
        cpu_addr: std::ptr::with_exposed_provenance_mut(region.cpu_addr().unwrap_or(0)),
        arena_id: region.area(),
    }
}

impl DmaDomain for DomainCallbacks {
    fn id(&self) -> DomainId {
        self.id
    }
    fn name(&self) -> String {
        self.name.clone()
    }
    fn map(&self, region: &Region) -> Result<DeviceAddr, String> {
        let mut at = 0;
        // SAFETY: the caller's callback, with its argument and two pointers that are valid during the call.
        let done = uncancelled(|| unsafe { (self.map)(self.ops.arg, &region_for_c(region), &raw mut at) });
        match done {
            0 => Ok(DeviceAddr(at)),
            errno => Err(format!("its map callback returned {errno}")),
        }
    }
    fn unmap(&self, region: &Region, at: DeviceAddr) {
        // SAFETY: the caller's callback, with its argument and a pointer that is valid during the call.
        uncancelled(|| unsafe { (self.unmap)(self.ops.arg, &region_for_c(region), at.0) });
    }
    fn sync_for_device(&self, at: DeviceAddr, len_bytes: usize) {
        if let Some(sync) = self.ops.sync_for_device {
            // SAFETY: the caller's callback, with its argument, which stays until `release`.
            uncancelled(|| unsafe { sync(self.ops.arg, at.0, len_bytes) });
        }
    }
    fn sync_for_cpu(&self, at: DeviceAddr, len_bytes: usize) {
        if let Some(sync) = self.ops.sync_for_cpu {
            // SAFETY: the caller's callback, with its argument, which stays until `release`.
            uncancelled(|| unsafe { sync(self.ops.arg, at.0, len_bytes) });
        }
    }
    fn coherent(&self) -> bool {
        self.ops.coherent != 0
    }
    fn fixes_area(&self) -> bool {
        self.ops.fixes_arena != 0
    }
}

impl Drop for DomainCallbacks {
    fn drop(&mut self) {
        if let Some(release) = self.ops.release {
            // SAFETY: the caller's callback, with its argument, once: nothing calls the domain any more.
            uncancelled(|| unsafe { release(self.ops.arg) });
        }
    }
}

/// Creates a domain from the caller's callbacks, such as an IOMMU or the address translation of a device.
///
/// Thread: any.
/// Ownership: release `*domain` with pagepool_domain_put. Pools that use the domain keep it.
/// Errors: -EINVAL names the missing callback.
/// Cost: allocates.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagepool_domain_create(
    ops: *const DomainOpsC,
    domain: *mut *mut DomainHandle,
) -> c_int {
    let make = || {
        // SAFETY: the caller's struct begins with its size.
        let ops = unsafe { sized::read(ops) }?;
        let missing = |field: &str| out_of_range(field, "NULL", "a function");
        let map = ops.map.ok_or_else(|| missing("map"))?;
        let unmap = ops.unmap.ok_or_else(|| missing("unmap"))?;
        if ops.coherent == 0 && (ops.sync_for_device.is_none() || ops.sync_for_cpu.is_none()) {
            return Err(missing("sync_for_device or sync_for_cpu, in a domain that is not coherent,"));
        }
        // SAFETY: the caller's text ends with a zero byte.
        let name = unsafe { text(ops.name, "domain") };
        // If no row is free, no domain is created, and `release` is not called.
        DOMAINS
            .insert_made(|| Ok(Arc::new(DomainCallbacks { id: DomainId::unique(), name, ops, map, unmap })))
    };
    // SAFETY: `domain` is NULL or the caller's to write.
    unsafe { store_handle(domain, make) }
}

/// Creates a domain in which the device address of a byte is its address for the CPU. `name` is used in error
/// texts; NULL means "domain".
///
/// Thread: any.
/// Ownership: release `*domain` with pagepool_domain_put. Pools that use the domain keep it.
/// Errors: -EINVAL if `domain` is NULL.
/// Cost: allocates.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagepool_domain_identity(
    name: *const c_char,
    domain: *mut *mut DomainHandle,
) -> c_int {
    // SAFETY: the caller's text and place are as `named` requires.
    unsafe { named(name, domain, |name| Arc::new(IdentityDomain::new(name))) }
}

/// Creates a domain in which the device address of a byte is its offset in the arena, as in an AF_XDP UMEM.
/// An arena that is mapped here requires `commit_all`. `name` is used in error texts; NULL means "domain".
///
/// Thread: any.
/// Ownership: release `*domain` with pagepool_domain_put. Pools that use the domain keep it.
/// Errors: -EINVAL if `domain` is NULL.
/// Cost: allocates.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagepool_domain_offset(
    name: *const c_char,
    domain: *mut *mut DomainHandle,
) -> c_int {
    // SAFETY: the caller's text and place are as `named` requires.
    unsafe { named(name, domain, |name| Arc::new(OffsetDomain::new(name))) }
}

/// # Safety
/// `name` is NULL or ends with a zero byte; `to` is NULL or writable.
unsafe fn named(
    name: *const c_char,
    to: *mut *mut DomainHandle,
    make: impl FnOnce(String) -> Arc<dyn DmaDomain>,
) -> c_int {
    // SAFETY: the caller's contract: `name` is NULL or ends with a zero byte.
    let make = || DOMAINS.insert(make(unsafe { text(name, "domain") }));
    // SAFETY: the caller's contract: `to` is NULL or writable.
    unsafe { store_handle(to, make) }
}

/// Releases the handle of a domain. The domain is freed, and its `release` called, after the last pool that
/// uses it.
///
/// Thread: any.
/// Ownership: the handle ends.
/// Errors: -EINVAL, -ESTALE for a bad handle.
/// Cost: a lock.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_domain_put(domain: *mut DomainHandle) -> c_int {
    status(|| DOMAINS.remove(Token::of(domain)))
}

/// Returns the device address of the buffer's first byte in a domain. A device of that domain can use the
/// buffer without a new mapping. UINT64_MAX if the buffer's arena is not mapped there, or for a bad handle.
///
/// Thread: the one that holds the buffer.
/// Cost: two lookups; a lock for a domain that is not the pool's.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_buf_dma_addr_in(buf: *mut BufHandle, domain: *mut DomainHandle) -> u64 {
    const NONE: CallError = CallError::fixed(
        libc::EOPNOTSUPP,
        c"the buffer's arena is not mapped in this domain: add the domain to the parameters of a pool of \
          that arena",
    );
    value_or(u64::MAX, || {
        let id = DOMAINS.get(Token::of(domain))?.id();
        read(Token::of(buf), |buf| buf.dma_addr_in(id))?.map(|at| at.0).ok_or(NONE)
    })
}
