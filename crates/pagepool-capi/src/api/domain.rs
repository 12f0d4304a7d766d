//! Domains: the address spaces that devices see, the caller's own among them.

// UNSAFETY: functions with fixed names; callers' structs are read and their callbacks called.
#![expect(unsafe_code)]

use std::ffi::{c_char, c_int, c_void};
use std::fmt;
use std::sync::Arc;

use ::pagepool::{DeviceAddr, DmaDomain, DomainId, IdentityDomain, OffsetDomain, Region};

use crate::args::range::out_of_range;
use crate::args::sized::{self, Sized0, text};
use crate::error::{CallError, CallResult, status, value_or};
use crate::handles::claim::look;
use crate::handles::opaque::{BufHandle, DomainHandle};
use crate::handles::tables::{self, DOMAINS};
use crate::handles::token::Token;

/// A part of an arena that is mapped as one.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct RegionC {
    /// First byte, counted from the start of the arena.
    pub offset: u64,
    /// Length in bytes, a multiple of 4096.
    pub len: u64,
    /// The CPU's address of the first byte; NULL for memory that the CPU cannot read.
    pub cpu_addr: *mut c_void,
    /// Identifies the arena among all of this process.
    pub arena_id: u64,
}

/// A domain of the caller's. The callbacks are called on any thread, in every call that makes an arena grow,
/// makes or destroys a pool, or returns a buffer. They may return buffers, and must not throw or longjmp.
/// `map` runs under a lock of the arena: it would deadlock if it made or destroyed a pool over that arena,
/// put the arena, or asked for an address in another domain. Each callback gets `arg` first.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct DomainOpsC {
    /// sizeof(struct pagepool_domain_ops).
    pub size: usize,
    /// Name in errors; copied.
    pub name: *const c_char,
    /// The first argument of the callbacks.
    pub arg: *mut c_void,
    /// Maps a region and stores its device address. Gives 0, or a negative errno to refuse. Required.
    pub map: Option<unsafe extern "C" fn(arg: *mut c_void, region: *const RegionC, addr: *mut u64) -> c_int>,
    /// Undoes `map`, once. Required.
    pub unmap: Option<unsafe extern "C" fn(arg: *mut c_void, region: *const RegionC, addr: u64)>,
    /// Hands bytes to the device; required unless `coherent`.
    pub sync_for_device: Option<unsafe extern "C" fn(arg: *mut c_void, addr: u64, len: usize)>,
    /// Hands bytes to the CPU; required unless `coherent`.
    pub sync_for_cpu: Option<unsafe extern "C" fn(arg: *mut c_void, addr: u64, len: usize)>,
    /// Called once when nothing uses the domain any more, so that `arg` may be freed. May be NULL.
    pub release: Option<unsafe extern "C" fn(arg: *mut c_void)>,
    /// 1: device and CPU see the same memory, and no syncs are needed.
    pub coherent: u32,
    /// 1: the arena must not grow or shrink while it is mapped here, as in an AF_XDP UMEM.
    pub fixes_arena: u32,
}

// SAFETY: plain integers and pointers, of which zeroes are values; a callback that is not set is zero.
unsafe impl Sized0 for DomainOpsC {}

/// A domain made of a caller's callbacks.
struct DomainCallbacks {
    id: DomainId,
    name: String,
    ops: DomainOpsC,
    map: unsafe extern "C" fn(*mut c_void, *const RegionC, *mut u64) -> c_int,
    unmap: unsafe extern "C" fn(*mut c_void, *const RegionC, u64),
}

// SAFETY: the header says that the callbacks are called from any thread.
unsafe impl Send for DomainCallbacks {}
// SAFETY: as above.
unsafe impl Sync for DomainCallbacks {}

impl fmt::Debug for DomainCallbacks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Callbacks").field("name", &self.name).finish_non_exhaustive()
    }
}

fn region_for_c(region: &Region) -> RegionC {
    RegionC {
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
        // SAFETY: the caller's callback, with its argument and two places that live as long as the call.
        let done = unsafe { (self.map)(self.ops.arg, &region_for_c(region), &raw mut at) };
        match done {
            0 => Ok(DeviceAddr(at)),
            errno => Err(format!("its map callback gave {errno}")),
        }
    }
    fn unmap(&self, region: &Region, at: DeviceAddr) {
        // SAFETY: as above.
        unsafe { (self.unmap)(self.ops.arg, &region_for_c(region), at.0) };
    }
    fn sync_for_device(&self, at: DeviceAddr, len_bytes: usize) {
        if let Some(sync) = self.ops.sync_for_device {
            // SAFETY: as above.
            unsafe { sync(self.ops.arg, at.0, len_bytes) };
        }
    }
    fn sync_for_cpu(&self, at: DeviceAddr, len_bytes: usize) {
        if let Some(sync) = self.ops.sync_for_cpu {
            // SAFETY: as above.
            unsafe { sync(self.ops.arg, at.0, len_bytes) };
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
            // SAFETY: as above; nothing calls the domain any more.
            unsafe { release(self.ops.arg) };
        }
    }
}

/// Makes a domain of the caller's callbacks: an IOMMU, a device's own translation, a test that checks.
///
/// Thread: any.
/// Ownership: `*domain` is the caller's, to be put once; pools that use it keep it.
/// Errors: -EINVAL names what is missing.
/// Cost: allocates.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagepool_domain_create(
    ops: *const DomainOpsC,
    domain: *mut *mut DomainHandle,
) -> c_int {
    status(|| {
        // SAFETY: the caller's struct begins with its size.
        let ops = unsafe { sized::read(ops, size_of::<DomainOpsC>()) }?;
        let missing = |field: &str| out_of_range(field, "NULL", "a function");
        let map = ops.map.ok_or_else(|| missing("map"))?;
        let unmap = ops.unmap.ok_or_else(|| missing("unmap"))?;
        if ops.coherent == 0 && (ops.sync_for_device.is_none() || ops.sync_for_cpu.is_none()) {
            return Err(missing("sync_for_device or sync_for_cpu, in a domain that is not coherent,"));
        }
        if domain.is_null() {
            return Err(CallError::null());
        }
        // SAFETY: the caller's text ends with a zero byte.
        let name = unsafe { text(ops.name, "domain") };
        let made: Arc<dyn DmaDomain> =
            Arc::new(DomainCallbacks { id: DomainId::unique(), name, ops, map, unmap });
        // SAFETY: not NULL, and the caller's to write.
        unsafe { give(domain, made) }
    })
}

/// Makes a domain in which a device address is the address of the CPU.
///
/// Thread: any.
/// Ownership: `*domain` is the caller's, to be put once; pools that use it keep it.
/// Errors: -EINVAL for NULL.
/// Cost: allocates.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagepool_domain_identity(
    name: *const c_char,
    domain: *mut *mut DomainHandle,
) -> c_int {
    // SAFETY: the caller's text and place.
    status(|| unsafe { simple(name, domain, |name| Arc::new(IdentityDomain::new(name))) })
}

/// Makes a domain in which a device address is the offset in the arena, as in an AF_XDP UMEM. It fixes the
/// arena, which must be committed before (`commit_all`).
///
/// Thread: any.
/// Ownership: `*domain` is the caller's, to be put once; pools that use it keep it.
/// Errors: -EINVAL for NULL.
/// Cost: allocates.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagepool_domain_offset(
    name: *const c_char,
    domain: *mut *mut DomainHandle,
) -> c_int {
    // SAFETY: the caller's text and place.
    status(|| unsafe { simple(name, domain, |name| Arc::new(OffsetDomain::new(name))) })
}

/// # Safety
/// `name` is NULL or ends with a zero byte; `to` is NULL or writable.
unsafe fn simple(
    name: *const c_char,
    to: *mut *mut DomainHandle,
    make: impl FnOnce(String) -> Arc<dyn DmaDomain>,
) -> CallResult<()> {
    if to.is_null() {
        return Err(CallError::null());
    }
    // SAFETY: the caller says so.
    let name = unsafe { text(name, "domain") };
    // SAFETY: not NULL, and writable as the caller says.
    unsafe { give(to, make(name)) }
}

/// # Safety
/// `to` is writable.
unsafe fn give(to: *mut *mut DomainHandle, domain: Arc<dyn DmaDomain>) -> CallResult<()> {
    let token = DOMAINS.insert(domain)?;
    // SAFETY: the caller says so.
    unsafe { to.write(token.handle()) };
    Ok(())
}

/// Puts a domain. Pools that use it keep it; its `release` is called when the last of them is freed.
///
/// Thread: any.
/// Ownership: the handle ends.
/// Errors: -EINVAL, -ESTALE for a bad handle.
/// Cost: a lock.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_domain_put(domain: *mut DomainHandle) -> c_int {
    status(|| {
        drop(DOMAINS.remove(Token::of(domain))?); // with no lock held
        Ok(())
    })
}

/// Gives the buffer's device address in a domain, if its arena is mapped there: the device may use the buffer
/// without a new mapping. UINT64_MAX if it is not, or for a bad handle.
///
/// Thread: the one that has the buffer.
/// Cost: two lookups; a lock for a domain that is not the pool's.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_buf_dma_addr_in(buf: *mut BufHandle, domain: *mut DomainHandle) -> u64 {
    value_or(u64::MAX, || {
        let id = tables::domain(Token::of(domain))?.id();
        let at = look(Token::of(buf), |buf| buf.dma_addr_in(id))?;
        at.map(|at| at.0).ok_or(CallError::fixed(
            libc::EOPNOTSUPP,
            c"the buffer's arena is not mapped in this domain: name it in the parameters of a pool over it",
        ))
    })
}
