//! The memory of rings: a file without a name, which the device's side maps as well; and the headers before
//! packets.
//!
//! Trust  none: the other side may write any byte at any time. So every access to the rings is of an atomic,
//!        and no decision depends on reading back what this side wrote, except to skip rewriting a zero
//!        header.

// UNSAFETY: maps memory, makes references to the atomics in it, and accesses headers by their place.
#![expect(unsafe_code)]

#[cfg(all(test, loom))]
use loom::sync::atomic::{AtomicU16, AtomicU64};
#[cfg(not(all(test, loom)))]
use std::sync::atomic::{AtomicU16, AtomicU64};

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use pagepool::{Arena, Provider};

use super::net_header;
use crate::sys::socket::{descriptor, done};

const FLAGS: libc::c_uint = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;

/// A descriptor: its address; its length, flags and successor.
#[derive(Debug, Default)]
#[repr(C, align(16))]
pub(crate) struct Descriptor(pub(crate) AtomicU64, pub(crate) AtomicU64);

/// What may lie in memory that others write.
///
/// # Safety
/// It consists of atomics without padding, and any bytes are a valid value.
pub(crate) unsafe trait Shareable: Default {}
// SAFETY: an atomic.
unsafe impl Shareable for AtomicU16 {}
// SAFETY: an atomic.
unsafe impl Shareable for AtomicU64 {}
// SAFETY: two atomics.
unsafe impl Shareable for Descriptor {}

/// The file, mapped.
#[derive(Debug)]
pub(crate) struct RingMemory {
    file: File,
    at: NonNull<u8>,
    len: usize,
}

// SAFETY: it is only accessed by atomics, from any thread.
unsafe impl Send for RingMemory {}
// SAFETY: as above.
unsafe impl Sync for RingMemory {}

impl RingMemory {
    /// Memory of `len` bytes, all 0, a multiple of the system's page.
    pub(crate) fn new(len: usize) -> io::Result<Arc<Self>> {
        // SAFETY: the name ends with a zero byte.
        let made = unsafe { libc::memfd_create(c"pagepool-rings".as_ptr(), FLAGS) };
        // SAFETY: the call just made this descriptor, and nothing else has it.
        let file = File::from(unsafe { descriptor(made) }?);
        file.set_len(len as u64)?;
        // If a back end cut the file, accesses beyond its end would fault here.
        let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
        // SAFETY: the call takes integers.
        done(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) })?;
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_POPULATE);
        // SAFETY: the kernel chooses the address, where nothing is.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), len, access, kind, file.as_raw_fd(), 0) };
        let at = NonNull::new(at.cast()).filter(|_| at != libc::MAP_FAILED);
        let at = at.ok_or_else(io::Error::last_os_error)?;
        Ok(Arc::new(Self { file, at, len }))
    }

    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Its address in this process.
    pub(crate) fn address(&self) -> u64 {
        self.at.as_ptr().addr() as u64
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

impl Drop for RingMemory {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's, and every `Words` of it, which keeps this value, is gone.
        unsafe { libc::munmap(self.at.as_ptr().cast(), self.len) };
    }
}

/// Values in ring memory: a power of two.
pub(crate) struct Words<T> {
    #[cfg(not(all(test, loom)))]
    at: NonNull<T>,
    #[cfg(not(all(test, loom)))]
    _memory: Arc<RingMemory>,
    #[cfg(all(test, loom))]
    values: Arc<[T]>,
    mask: u16,
}

impl<T> fmt::Debug for Words<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} words", u32::from(self.mask) + 1)
    }
}

// SAFETY: `Shareable` values are atomics, in memory that lives as long as this.
unsafe impl<T: Shareable> Send for Words<T> {}
// SAFETY: as above.
unsafe impl<T: Shareable> Sync for Words<T> {}

#[cfg(not(all(test, loom)))]
impl<T: Shareable> Words<T> {
    /// `count` values, `offset` bytes behind the start of the memory.
    pub(crate) fn new(memory: &Arc<RingMemory>, offset: usize, count: u16) -> Self {
        let end = offset + usize::from(count) * size_of::<T>();
        let fits = count.is_power_of_two() && offset.is_multiple_of(align_of::<T>()) && end <= memory.len;
        assert!(fits, "{count} values at {offset} of {} bytes", memory.len);
        // SAFETY: the offset is within the mapping.
        let at = unsafe { memory.at.add(offset) };
        Self { at: at.cast(), _memory: memory.clone(), mask: count - 1 }
    }

    /// The value with this number; numbers wrap around.
    #[inline(always)]
    pub(crate) fn at(&self, number: u16) -> &T {
        // SAFETY: the masked number is below the count, which was checked against the mapping's length.
        let at = unsafe { self.at.add(usize::from(number & self.mask)) };
        // SAFETY: it is aligned, in a mapping that lives as long as this, and any bytes are a value.
        unsafe { at.as_ref() }
    }
}

#[cfg(not(all(test, loom)))]
impl<T> Clone for Words<T> {
    fn clone(&self) -> Self {
        Self { at: self.at, _memory: self._memory.clone(), mask: self.mask }
    }
}

#[cfg(all(test, loom))]
impl<T: Shareable> Words<T> {
    /// Values of their own, in no memory: clones share them.
    pub(crate) fn new(_memory: &Arc<RingMemory>, _offset: usize, count: u16) -> Self {
        Self { values: (0..count).map(|_| T::default()).collect(), mask: count - 1 }
    }

    pub(crate) fn at(&self, number: u16) -> &T {
        &self.values[usize::from(number & self.mask)]
    }
}

#[cfg(all(test, loom))]
impl<T> Clone for Words<T> {
    fn clone(&self) -> Self {
        Self { values: self.values.clone(), mask: self.mask }
    }
}

/// The memory of packets: headers in it, by the place of their packet in the area.
#[derive(Debug)]
pub(crate) struct PacketMemory {
    base: NonNull<u8>,
    len: u64,
    _arena: Arc<Arena>,
}

// SAFETY: the memory lives as long as this; the methods say who may access a header.
unsafe impl Send for PacketMemory {}

impl PacketMemory {
    /// `None` if the CPU cannot read the arena.
    pub(crate) fn new(arena: &Arc<Arena>) -> Option<Self> {
        let area = arena.area();
        let base = NonNull::new(std::ptr::with_exposed_provenance_mut(area.base()?))?;
        Some(Self { base, len: area.len_bytes(), _arena: arena.clone() })
    }

    /// Where the header of a packet at this place is.
    #[inline(always)]
    fn header(&self, place: u64) -> Option<NonNull<[u8; net_header::LEN]>> {
        let header = place.checked_sub(net_header::LEN as u64).filter(|_| place <= self.len)?;
        // SAFETY: the header is within the arena, which lives as long as this.
        Some(unsafe { self.base.add(header as usize) }.cast())
    }

    /// The header before a packet.
    ///
    /// # Safety
    /// The packet is in a page that is out, has such room before it, and is in a table of this device: no code
    /// has a reference to these bytes (I1, I4).
    #[inline(always)]
    pub(crate) unsafe fn read_header(&self, place: u64) -> [u8; net_header::LEN] {
        let Some(header) = self.header(place) else { return net_header::PLAIN };
        // SAFETY: I4, by the caller. The device may write it at any time: any bytes are a header.
        unsafe { header.read_volatile() }
    }

    /// Writes a header that asks for nothing, unless it is there from the page's last use: then its cache line
    /// need not move.
    ///
    /// # Safety
    /// As for [`read_header`](Self::read_header).
    #[inline(always)]
    pub(crate) unsafe fn clear_header(&self, place: u64) {
        let Some(header) = self.header(place) else { return };
        let (first, second) = (header.cast::<u64>(), header.cast::<u32>());
        // SAFETY: the last 4 of the 12 bytes.
        let second = unsafe { second.add(2) };
        // SAFETY: I4, by the caller.
        let (start, rest) = (unsafe { first.read_unaligned() }, unsafe { second.read_unaligned() });
        if start != 0 || rest != 0 {
            // SAFETY: I4, by the caller.
            unsafe { header.write(net_header::PLAIN) };
        }
    }
}
