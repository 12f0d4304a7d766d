//! System calls about memory: reserve, commit, lock, place.
//!
//! A [`Reservation`] owns a range of addresses. Everything that replaces or removes a mapping is a method of
//! it and stays in its bounds, so no other file can unmap memory in use. The free functions only advise,
//! place, lock and query.

// UNSAFETY: system calls that change mappings; each block says why it may change the range.
#![expect(unsafe_code)]

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::error::Error;
use crate::sys::call::{OwnFd, checked, retried};

/// Bytes of an area's pages by default, whatever the system's page size is. An arena may also have pages of
/// 2048 bytes: see [`ArenaParams::page_size`](crate::ArenaParams::page_size).
pub const PAGE_SIZE: usize = 4096;

/// The system's page size in bytes; 0 until queried.
static SYSTEM_PAGE: AtomicUsize = AtomicUsize::new(0);

/// Bytes of the system's page, the unit in which the kernel maps, protects, locks and frees memory: 4096 on
/// x86-64; 4096, 16384 or 65536 on arm64. Pools do not depend on it. Any thread; one system call at the first
/// use.
///
/// ```
/// let system_page = pagepool::system_page_size();
/// assert!(system_page.is_power_of_two() && system_page >= pagepool::PAGE_SIZE);
/// ```
pub fn system_page_size() -> usize {
    match SYSTEM_PAGE.load(Ordering::Relaxed) {
        0 => query_system_page(),
        known => known,
    }
}

#[cold]
fn query_system_page() -> usize {
    // SAFETY: the call takes a number and touches no memory.
    let answer = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    let size = usize::try_from(answer).unwrap_or(0).max(PAGE_SIZE);
    SYSTEM_PAGE.store(size, Ordering::Relaxed);
    size
}

/// Sets the system's page size; returns the old one. For tests.
pub fn pretend_system_page(size: usize) -> usize {
    let was = system_page_size();
    SYSTEM_PAGE.store(size, Ordering::Relaxed);
    was
}

/// The kernel refuses an address inside a page, and rounds lengths up to whole pages, beyond the caller's
/// range.
fn debug_assert_whole_pages(addr: usize, len: usize) {
    let page = system_page_size();
    debug_assert!(
        addr.is_multiple_of(page) && len.is_multiple_of(page),
        "I1: {addr:#x} and {len:#x} are in whole pages of {page} bytes"
    );
}

/// A range of addresses in which nothing else is mapped. Unmapped when dropped, unless it is the caller's
/// memory.
#[derive(Debug)]
pub(crate) struct Reservation {
    base: usize,
    len: usize,
    ours: bool,
}

impl Reservation {
    /// Reserves `len` bytes of addresses without memory, whole pages of the system, at a multiple of `align`
    /// (a power of two, at least such a page).
    pub(crate) fn new(len: usize, align: usize) -> io::Result<Self> {
        let padded = len.checked_add(align).ok_or(io::ErrorKind::InvalidInput)?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let start = map(0, padded, libc::PROT_NONE, flags, None, 0)?;
        let base = start.next_multiple_of(align);
        debug_assert_whole_pages(base, len); // the outer edges of what is unmapped are the kernel's
        unmap(start, base - start);
        unmap(base + len, (start + padded).saturating_sub(base + len));
        Ok(Self { base, len, ours: true })
    }

    /// Describes the caller's memory: nothing is mapped, unmapped or committed.
    ///
    /// # Safety
    /// `base..base + len` must be readable and writable, and belong to this value until it is dropped.
    pub(crate) unsafe fn over_caller_memory(base: usize, len: usize) -> Self {
        Self { base, len, ours: false }
    }

    pub(crate) fn base(&self) -> usize {
        self.base
    }

    pub(crate) fn is_callers(&self) -> bool {
        !self.ours
    }

    fn addr(&self, at: &Range<usize>) -> usize {
        assert!(at.start <= at.end && at.end <= self.len, "a range within the reservation");
        self.base + at.start
    }

    pub(crate) fn commit(&self, at: Range<usize>) -> io::Result<()> {
        let addr = self.addr(&at);
        debug_assert_whole_pages(addr, at.len());
        // SAFETY: I1. This value owns the range and no page of it is out, so no code relies on its
        // protection.
        checked(unsafe { libc::mprotect(addr as *mut _, at.len(), READ_WRITE) }.into()).map(drop)
    }

    /// Maps bytes `at` of a file, shared, over the reserved bytes `at`.
    pub(crate) fn commit_file(&self, at: Range<usize>, file: BorrowedFd<'_>) -> io::Result<()> {
        let flags = libc::MAP_SHARED | libc::MAP_FIXED;
        map(self.addr(&at), at.len(), READ_WRITE, flags, Some(file), at.start).map(drop)
    }

    /// Moves a mapping that is known to work over reserved bytes. The range is never unmapped, so no other
    /// thread can map there.
    pub(crate) fn commit_staged(&self, at: Range<usize>, staged: Mapped) -> io::Result<()> {
        assert_eq!(staged.len, at.len(), "a staged mapping is as long as what it is for");
        staged.move_to(self.addr(&at))
    }

    /// Frees the memory and keeps the addresses. Only if no page of the range is out (I1).
    pub(crate) fn decommit(&self, at: Range<usize>) -> io::Result<()> {
        if !self.ours {
            return Ok(());
        }
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
        map(self.addr(&at), at.len(), libc::PROT_NONE, flags, None, 0).map(drop)
    }

    /// Allocates every page of a committed range now; contents stay.
    pub(crate) fn prefault(&self, at: Range<usize>) -> io::Result<()> {
        let addr = self.addr(&at);
        // The caller's memory may share its first and last page with other data, which stays.
        let page = system_page_size();
        let (start, end) = (addr & !(page - 1), (addr + at.len()).next_multiple_of(page));
        match advise(start, end - start, Advice::PopulateWrite) {
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => self.touch(at), // before Linux 5.14
            other => return other,
        }
        Ok(())
    }

    fn touch(&self, at: Range<usize>) {
        let addr = self.addr(&at);
        for page in (addr..addr + at.len()).step_by(PAGE_SIZE) {
            let byte = page as *mut u8;
            // SAFETY: I1. The range is committed and not handed out yet.
            let value = unsafe { byte.read_volatile() };
            // SAFETY: I1. No thread uses the page yet, and the byte keeps its value.
            unsafe { byte.write_volatile(value) };
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.ours {
            unmap(self.base, self.len);
        }
    }
}

/// Memory that this process may read and write, at the kernel's choice of address.
#[derive(Debug)]
pub(crate) struct Mapped {
    first: NonNull<u8>,
    len: usize,
}

impl Mapped {
    fn new(len: usize, flags: libc::c_int, file: Option<BorrowedFd<'_>>, offset: usize) -> io::Result<Self> {
        let addr = map(0, len, READ_WRITE, flags, file, offset)?;
        let first = NonNull::new(ptr::with_exposed_provenance_mut(addr));
        Ok(Self { first: first.ok_or(io::ErrorKind::AddrNotAvailable)?, len })
    }

    /// At least `len` private zeroes, allocated when touched.
    pub(crate) fn zeroes(len: usize) -> io::Result<Self> {
        let len = len.checked_next_multiple_of(system_page_size()).ok_or(io::ErrorKind::InvalidInput)?;
        Self::new(len, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, None, 0)
    }

    /// Private memory of huge pages of `1 << page_shift` bytes; fails unless all are available.
    pub(crate) fn huge(len: usize, page_shift: u32) -> io::Result<Self> {
        let size = (page_shift as libc::c_int) << libc::MAP_HUGE_SHIFT;
        Self::new(len, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_HUGETLB | size, None, 0)
    }

    /// Bytes `at` of a file, shared.
    pub(crate) fn file(at: Range<usize>, file: BorrowedFd<'_>) -> io::Result<Self> {
        Self::new(at.len(), libc::MAP_SHARED, Some(file), at.start)
    }

    /// Valid until this is dropped.
    pub(crate) fn first(&self) -> NonNull<u8> {
        self.first
    }

    pub(crate) fn addr(&self) -> usize {
        self.first.addr().get()
    }

    /// Keeps the memory for ever.
    pub(crate) fn leak(self) -> NonNull<u8> {
        std::mem::ManuallyDrop::new(self).first
    }

    /// Allocates every page now. A kernel before 5.14 cannot; then does nothing.
    pub(crate) fn populate(&self) -> io::Result<()> {
        match advise(self.addr(), self.len, Advice::PopulateWrite) {
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => Ok(()),
            other => other,
        }
    }

    /// Moves the mapping over the equally long one at `to`, which the caller owns.
    fn move_to(self, to: usize) -> io::Result<()> {
        debug_assert_whole_pages(to, self.len);
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        let (from, to) = (self.first.as_ptr().cast(), to as *mut libc::c_void);
        // SAFETY: I1. The caller owns both ranges. Nothing points into either, or every word in use has the
        // same value in both.
        if unsafe { libc::mremap(from, self.len, self.len, flags, to) } == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        std::mem::forget(self); // it was moved
        Ok(())
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        unmap(self.addr(), self.len);
    }
}

const READ_WRITE: libc::c_int = libc::PROT_READ | libc::PROT_WRITE;

fn map(
    addr: usize,
    len: usize,
    prot: libc::c_int,
    flags: libc::c_int,
    file: Option<BorrowedFd<'_>>,
    offset: usize,
) -> io::Result<usize> {
    debug_assert_whole_pages(addr | offset, len);
    let fd = file.map_or(-1, |f| f.as_raw_fd());
    // SAFETY: I1. `MAP_FIXED` is used only by `Reservation`, for bytes that it owns and that are not in use,
    // and by `SharedFile`, for bytes that it has mapped.
    let at = unsafe { libc::mmap(addr as *mut _, len, prot, flags, fd, offset as libc::off_t) };
    if at == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(at as usize) }
}

/// For owners of the range only.
fn unmap(addr: usize, len: usize) {
    if len > 0 {
        // SAFETY: I3. The caller owns the range and nothing points into it any more.
        let done = unsafe { libc::munmap(addr as *mut _, len) };
        debug_assert_eq!(done, 0, "a range that was mapped can be unmapped");
    }
}

/// Advice that changes no byte.
#[derive(Clone, Copy, Debug)]
#[repr(i32)]
pub(crate) enum Advice {
    HugePage = libc::MADV_HUGEPAGE,
    NoHugePage = libc::MADV_NOHUGEPAGE,
    DontFork = libc::MADV_DONTFORK,
    PopulateWrite = libc::MADV_POPULATE_WRITE,
}

pub(crate) fn advise(addr: usize, len: usize, advice: Advice) -> io::Result<()> {
    debug_assert_whole_pages(addr, len);
    // SAFETY: these kinds of advice keep addresses and contents.
    checked(unsafe { libc::madvise(addr as *mut _, len, advice as i32) }.into()).map(drop)
}

pub(crate) fn mlock(addr: usize, len: usize) -> io::Result<()> {
    // SAFETY: locking changes no byte.
    checked(unsafe { libc::mlock(addr as *const _, len) }.into()).map(drop)
}

/// Soft and hard limit of a resource.
fn limits(resource: libc::c_int) -> io::Result<(u64, u64)> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    let none = ptr::null::<libc::rlimit>();
    // SAFETY: the kernel writes one `rlimit`.
    checked(unsafe { libc::syscall(libc::SYS_prlimit64, 0, resource, none, &raw mut limit) })?;
    Ok((limit.rlim_cur, limit.rlim_max))
}

/// Soft and hard `RLIMIT_MEMLOCK`, in bytes.
pub(crate) fn memlock_limit() -> io::Result<(u64, u64)> {
    limits(libc::RLIMIT_MEMLOCK as libc::c_int)
}

/// Raises `RLIMIT_MEMLOCK` to at least `bytes`; also the hard limit if necessary and permitted.
pub(crate) fn raise_memlock_limit(bytes: u64) -> io::Result<()> {
    let (soft, hard) = memlock_limit()?;
    if soft >= bytes {
        return Ok(());
    }
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: hard.max(bytes) };
    // SAFETY: the kernel reads one `rlimit`.
    checked(unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const limit) }.into()).map(drop)
}

/// Refuses a file that this process may not write: the kernel would send SIGXFSZ.
pub(crate) fn check_file_size(bytes: u64) -> Result<(), Error> {
    let most = limits(libc::RLIMIT_FSIZE as libc::c_int).map_or(u64::MAX, |(soft, _)| soft);
    Error::require(bytes <= most, "RLIMIT_FSIZE", most, format_args!("{bytes} bytes or more"))
}

/// An anonymous file of `len` bytes; with `huge_shift`, of huge pages of that size. Its length is sealed: if
/// a peer cut it, accesses beyond would fault here.
pub(crate) fn memfd(name: &str, len: u64, huge_shift: Option<u32>) -> io::Result<OwnFd> {
    let name = std::ffi::CString::new(name).map_err(|_| io::ErrorKind::InvalidInput)?;
    let huge = huge_shift.map_or(0, |shift| libc::MFD_HUGETLB | shift << libc::MAP_HUGE_SHIFT);
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING | huge;
    // SAFETY: the kernel reads a terminated string.
    let file = OwnFd::of(unsafe { libc::memfd_create(name.as_ptr(), flags) }.into())?;
    // SAFETY: sets the length of a file that we own.
    checked(unsafe { libc::ftruncate(file.as_raw_fd(), len as libc::off_t) }.into())?;
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    // SAFETY: the call takes integers; seals change no byte.
    checked(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) }.into())?;
    Ok(file)
}

/// A shared mapping of a file that others read; never unmapped once in use.
#[derive(Debug)]
pub(crate) struct SharedFile {
    mapping: Mapped,
    file: File,
    /// Its device and inode numbers.
    is: (u64, u64),
}

// SAFETY: plain memory; the code that knows addresses in it orders its accesses.
unsafe impl Send for SharedFile {}
// SAFETY: plain memory; the code that knows addresses in it orders its accesses.
unsafe impl Sync for SharedFile {}

impl SharedFile {
    /// Maps the first `len` bytes of a file, whole pages of the system.
    pub(crate) fn new(file: &File, len: usize) -> io::Result<Self> {
        let file = file.try_clone()?;
        let is = file.metadata().map(|file| (file.dev(), file.ino()))?;
        Ok(Self { mapping: Mapped::file(0..len, file.as_fd())?, file, is })
    }

    pub(crate) fn first(&self) -> NonNull<u8> {
        self.mapping.first
    }

    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Anonymous memory as long as the file, with the current contents of `parts`, else zeroes.
    ///
    /// Other threads write at the same time, some without atomics. So the kernel reads: reads of this thread
    /// would be a data race.
    pub(crate) fn copy(&self, parts: [Range<usize>; 2]) -> io::Result<Mapped> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let mut copy = Mapped::new(self.mapping.len, flags, None, 0)?;
        for part in parts {
            self.copy_part(&mut copy, part)?;
        }
        Ok(copy)
    }

    /// By a system call without a descriptor; if the kernel lacks it, from the file.
    fn copy_part(&self, copy: &mut Mapped, part: Range<usize>) -> io::Result<()> {
        assert!(part.start <= part.end && part.end <= self.mapping.len && copy.len == self.mapping.len);
        // SAFETY: it is within the mapping.
        let from = unsafe { self.first().add(part.start) };
        // SAFETY: the copy is as long as the mapping.
        let to = unsafe { copy.first.add(part.start) };
        // SAFETY: within the copy, which is zeroed and known to no other thread.
        let to = unsafe { std::slice::from_raw_parts_mut(to.as_ptr(), part.len()) };
        if read_own_memory(from, to).is_ok() {
            return Ok(());
        }
        if !self.has_its_file() {
            return Err(io::ErrorKind::NotFound.into());
        }
        self.file.read_exact_at(to, part.start as u64)
    }

    /// Whether the descriptor is still of the file: the program may have closed it and opened another.
    fn has_its_file(&self) -> bool {
        self.file.metadata().is_ok_and(|file| (file.dev(), file.ino()) == self.is)
    }

    /// For a child of fork: moves the copy over the file's mapping.
    pub(crate) fn replace_by(&self, copy: Mapped) -> io::Result<()> {
        debug_assert_eq!(copy.len, self.mapping.len);
        copy.move_to(self.mapping.addr())
    }

    /// For a child of fork: its writes no longer reach the file. A page that it has not written follows the
    /// parent.
    pub(crate) fn make_private(&self) -> io::Result<()> {
        if !self.has_its_file() {
            return Err(io::ErrorKind::NotFound.into());
        }
        let flags = libc::MAP_PRIVATE | libc::MAP_FIXED | libc::MAP_NORESERVE;
        map(self.mapping.addr(), self.mapping.len, READ_WRITE, flags, Some(self.file()), 0).map(drop)
    }
}

/// Has the kernel copy bytes that other threads may write.
fn read_own_memory(from: NonNull<u8>, to: &mut [u8]) -> io::Result<()> {
    let there = libc::iovec { iov_base: from.as_ptr().cast(), iov_len: to.len() };
    let here = libc::iovec { iov_base: to.as_mut_ptr().cast(), iov_len: to.len() };
    let own = std::process::id() as libc::pid_t;
    // SAFETY: the kernel writes only to `here`, and reads only what is mapped.
    let read = unsafe { libc::process_vm_readv(own, &raw const here, 1, &raw const there, 1, 0) };
    match checked(read as i64)? as usize == to.len() {
        true => Ok(()),
        false => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Allocates memory of the file system for a range of a file.
pub(crate) fn fallocate(file: BorrowedFd<'_>, at: Range<usize>) -> io::Result<()> {
    fallocate_as(file, 0, at)
}

/// Frees a range of a memfd. Only if no page of the range is out (I1).
pub(crate) fn punch_hole(file: BorrowedFd<'_>, at: Range<usize>) -> io::Result<()> {
    debug_assert_whole_pages(at.start, at.len());
    fallocate_as(file, libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE, at)
}

fn fallocate_as(file: BorrowedFd<'_>, mode: libc::c_int, at: Range<usize>) -> io::Result<()> {
    let (fd, offset, len) = (file.as_raw_fd(), at.start as libc::off_t, at.len() as libc::off_t);
    // SAFETY: the call takes integers; no byte changes, or no code relies on the range's contents.
    retried(|| unsafe { libc::syscall(libc::SYS_fallocate, fd, mode, offset, len) })
}

/// How strongly memory is placed.
#[derive(Clone, Copy, Debug)]
#[repr(i32)]
pub(crate) enum Placement {
    Preferred = libc::MPOL_PREFERRED,
    Bind = libc::MPOL_BIND,
}

/// Sets the node of pages that are not touched yet.
pub(crate) fn mbind(addr: usize, len: usize, placement: Placement, node: u8) -> io::Result<()> {
    debug_assert_whole_pages(addr, len);
    let mode = placement as libc::c_ulong;
    let mut mask = [0u64; 4];
    mask[usize::from(node) / 64] = 1 << (node % 64);
    let bits = 257; // the kernel reads one bit less than this
    // SAFETY: the kernel reads the mask; no byte of the range changes.
    checked(unsafe { libc::syscall(libc::SYS_mbind, addr, len, mode, mask.as_ptr(), bits, 0) }).map(drop)
}

/// Fails with `ENOSYS` if the kernel has no NUMA calls.
pub(crate) fn probe_numa_calls() -> io::Result<()> {
    let none = ptr::null_mut::<libc::c_void>();
    // SAFETY: without a request, the kernel writes nothing.
    checked(unsafe { libc::syscall(libc::SYS_get_mempolicy, none, none, 0, none, 0) }).map(drop)
}

/// Pages per query.
const QUERY_BATCH: usize = 512;

/// Calls `each(page, node)` for each of `pages` pages of `page_size` bytes from `addr`. The node is negative
/// for a page without memory. Linux: `move_pages` without targets.
pub(crate) fn query_nodes(
    addr: usize,
    pages: usize,
    page_size: usize,
    mut each: impl FnMut(usize, i32),
) -> io::Result<()> {
    let mut status = [0i32; QUERY_BATCH];
    for first in (0..pages).step_by(QUERY_BATCH) {
        let n = QUERY_BATCH.min(pages - first);
        let at: [usize; QUERY_BATCH] = std::array::from_fn(|i| addr + (first + i) * page_size);
        let no_targets = ptr::null::<i32>();
        // SAFETY: the kernel reads `n` addresses and writes `n` numbers; without targets it moves nothing.
        let done = unsafe {
            libc::syscall(libc::SYS_move_pages, 0, n, at.as_ptr(), no_targets, status.as_mut_ptr(), 0)
        };
        checked(done)?;
        status[..n].iter().enumerate().for_each(|(i, &node)| each(first + i, node));
    }
    Ok(())
}
