//! Memory of a file that another process writes as well.

// UNSAFETY: maps memory, and makes references to the atomics in it.
#![expect(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU16};

/// A part of a file, mapped. All access is by atomics.
#[derive(Debug)]
pub(crate) struct SharedMemory {
    at: NonNull<u8>,
    len: usize,
}

// SAFETY: it is only accessed by atomics, from any thread.
unsafe impl Send for SharedMemory {}

impl SharedMemory {
    /// `len` bytes from `offset` on, both multiples of the system's page.
    pub(crate) fn map(file: &OwnedFd, offset: u64, len: usize) -> io::Result<Self> {
        if rustix::fs::fstat(file.as_fd())?.st_size.cast_unsigned() < offset.saturating_add(len as u64) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a region is longer than its file"));
        }
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let (fd, offset) = (file.as_raw_fd(), offset.cast_signed());
        // SAFETY: the kernel chooses the address, where nothing is.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), len, access, libc::MAP_SHARED, fd, offset as _) };
        let at = NonNull::new(at.cast()).filter(|_| at != libc::MAP_FAILED);
        Ok(Self { at: at.ok_or_else(io::Error::last_os_error)?, len })
    }

    /// Bytes; `None` if they are not within the memory.
    pub(crate) fn bytes(&self, offset: u64, len: usize) -> Option<&[AtomicU8]> {
        let offset = usize::try_from(offset).ok()?;
        if offset.checked_add(len)? > self.len {
            return None;
        }
        // SAFETY: the offset is within the mapping.
        let at = unsafe { self.at.add(offset) };
        // SAFETY: `len` bytes from there are within the mapping, which lives as long as this; any byte is a
        // value.
        Some(unsafe { NonNull::slice_from_raw_parts(at.cast(), len).as_ref() })
    }

    /// A number of 16 bits; `None` if it is not aligned or not within the memory.
    pub(crate) fn half(&self, offset: u64) -> Option<&AtomicU16> {
        let bytes = self.bytes(offset, 2)?;
        let at = NonNull::from(bytes).cast::<AtomicU16>();
        if !at.is_aligned() {
            return None;
        }
        // SAFETY: it is aligned, and within the mapping, which lives as long as this; any bytes are a value.
        Some(unsafe { at.as_ref() })
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's, and no reference into it outlives the value.
        unsafe { libc::munmap(self.at.as_ptr().cast(), self.len) };
    }
}
