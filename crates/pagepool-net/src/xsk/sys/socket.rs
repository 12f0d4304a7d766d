//! AF_XDP sockets: include/uapi/linux/if_xdp.h, net/xdp/xsk.c (v7.3).

// UNSAFETY: system calls, and rings in memory that the kernel shares.
#![expect(unsafe_code)]

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::ring::{Entries, Index, RingMemory};
use crate::sys::prefetch;
use crate::sys::socket::{done, open, option, set_addresses, set_option};

/// Not in `libc` (include/uapi/linux/if_xdp.h, v6.17).
const XDP_MAX_TX_SKB_BUDGET: libc::c_int = 9;

/// How a socket is bound (bits of `sxdp_flags`), and how memory is registered.
pub(crate) mod flags {
    pub(crate) use libc::{XDP_COPY, XDP_USE_NEED_WAKEUP, XDP_USE_SG, XDP_ZEROCOPY};
    pub(crate) use libc::{XDP_UMEM_TX_METADATA_LEN, XDP_UMEM_TX_SW_CSUM, XDP_UMEM_UNALIGNED_CHUNK_FLAG};
}

/// A buffer that is not its packet's last. Linux: `XDP_PKT_CONTD`.
pub(crate) const CONTINUED: u32 = libc::XDP_PKT_CONTD;

/// The first buffer of a packet with metadata. Linux: `XDP_TX_METADATA`.
pub(crate) const WITH_METADATA: u32 = libc::XDP_TX_METADATA;

/// A ring, by the option that sets its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum Ring {
    Receive = libc::XDP_RX_RING,
    Transmit = libc::XDP_TX_RING,
    Fill = libc::XDP_UMEM_FILL_RING,
    Completion = libc::XDP_UMEM_COMPLETION_RING,
}

pub(crate) use libc::xdp_umem_reg as Registration;

pub(crate) use libc::xdp_statistics as KernelCounts;
/// The counts of a new socket.
pub(crate) const NO_COUNTS: KernelCounts = KernelCounts {
    rx_dropped: 0,
    rx_invalid_descs: 0,
    tx_invalid_descs: 0,
    rx_ring_full: 0,
    rx_fill_ring_empty_descs: 0,
    tx_ring_empty_descs: 0,
};

/// Opens an AF_XDP socket in this thread's network namespace, closed by `exec`.
pub(crate) fn socket() -> io::Result<OwnedFd> {
    open(libc::AF_XDP, libc::SOCK_RAW, 0)
}

/// Registers memory. The kernel pins its pages. What it may write, and when, depends on a fill ring, and on a
/// transmit ring with requests for the time.
pub(crate) fn register(fd: BorrowedFd<'_>, what: Registration) -> io::Result<()> {
    // SAFETY: the kernel writes there only what a ring gives it.
    unsafe { set_addresses(fd, libc::SOL_XDP, libc::XDP_UMEM_REG, &what) }
}

/// Sets the size of a ring, a power of two.
pub(crate) fn set_ring_size(fd: BorrowedFd<'_>, ring: Ring, entries: u32) -> io::Result<()> {
    set_option(fd, libc::SOL_XDP, ring as libc::c_int, &entries)
}

/// Binds a socket to a queue of an interface; with `shared`, over that socket's UMEM.
pub(crate) fn bind(
    fd: BorrowedFd<'_>,
    index: u32,
    queue: u32,
    flags: u16,
    shared: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let address = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        // The kernel refuses other flags with this one: those of the shared socket apply.
        sxdp_flags: if shared.is_some() { libc::XDP_SHARED_UMEM } else { flags },
        sxdp_ifindex: index,
        sxdp_queue_id: queue,
        sxdp_shared_umem_fd: shared.map_or(0, |fd| fd.as_raw_fd() as u32),
    };
    let len = size_of_val(&address) as libc::socklen_t;
    // SAFETY: the kernel reads an address of this length, which lives as long as the call.
    done(unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), len) })
}

pub(crate) fn is_zero_copy(fd: BorrowedFd<'_>) -> bool {
    option::<libc::xdp_options>(fd, libc::SOL_XDP, libc::XDP_OPTIONS)
        .is_ok_and(|options| options.flags & libc::XDP_OPTIONS_ZEROCOPY != 0)
}

pub(crate) fn statistics(fd: BorrowedFd<'_>) -> io::Result<KernelCounts> {
    option(fd, libc::SOL_XDP, libc::XDP_STATISTICS)
}

/// Takes a socket's pending error: its interface was removed, for example.
pub(crate) fn take_error(fd: BorrowedFd<'_>) -> Option<io::Error> {
    let error = option::<libc::c_int>(fd, libc::SOL_SOCKET, libc::SO_ERROR).ok()?;
    (error != 0).then(|| io::Error::from_raw_os_error(error))
}

/// Raises the limit of sent packets in the kernel, whose default is less than a ring. Needs a capability;
/// otherwise the default stays.
pub(crate) fn raise_send_buffer(fd: BorrowedFd<'_>, bytes: u32) {
    let _ = set_option(fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &bytes);
}

/// Raises the packets per call in copy mode from 32 to `packets`. Returns whether it did; not before Linux
/// 6.17. Size the transmit ring first: the kernel accepts no more than that, and keeps 32 for a shorter ring.
pub(crate) fn raise_transmit_budget(fd: BorrowedFd<'_>, packets: u32) -> bool {
    set_option(fd, libc::SOL_XDP, XDP_MAX_TX_SKB_BUDGET, &packets).is_ok()
}

/// Makes a socket's calls poll its driver's queue, instead of interrupts. An error names the refused option.
pub(crate) fn set_busy_poll(
    fd: BorrowedFd<'_>,
    micros: u32,
    budget: u32,
) -> Result<(), (&'static str, io::Error)> {
    let options = [
        ("setsockopt(SO_PREFER_BUSY_POLL)", libc::SO_PREFER_BUSY_POLL, 1),
        ("setsockopt(SO_BUSY_POLL)", libc::SO_BUSY_POLL, micros),
        ("setsockopt(SO_BUSY_POLL_BUDGET)", libc::SO_BUSY_POLL_BUDGET, budget),
    ];
    options.into_iter().try_for_each(|(call, name, value)| {
        set_option(fd, libc::SOL_SOCKET, name, &value).map_err(|error| (call, error))
    })
}

/// The id of the driver's queue that a socket's calls poll, if known.
pub(crate) fn napi_id(fd: BorrowedFd<'_>) -> Option<u32> {
    option::<u32>(fd, libc::SOL_SOCKET, libc::SO_INCOMING_NAPI_ID).ok().filter(|&id| id > 0)
}

/// Makes the kernel look at the transmit ring.
pub(crate) fn kick_transmit(fd: BorrowedFd<'_>) -> io::Result<()> {
    // The kernel refuses AF_XDP calls that may block (EOPNOTSUPP), so both pass MSG_DONTWAIT.
    let (nothing, flags) = (std::ptr::null(), libc::MSG_DONTWAIT);
    // SAFETY: a message of no bytes to no address.
    let sent = unsafe { libc::sendto(fd.as_raw_fd(), nothing, 0, flags, std::ptr::null(), 0) };
    if sent >= 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Makes the kernel look at the fill ring.
pub(crate) fn kick_receive(fd: BorrowedFd<'_>) -> io::Result<()> {
    let (nothing, none) = (std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: room for no bytes, and for no address.
    let got =
        unsafe { libc::recvfrom(fd.as_raw_fd(), nothing, 0, libc::MSG_DONTWAIT, none, std::ptr::null_mut()) };
    if got >= 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Whether [`grace_period`] works here.
pub(crate) fn has_grace_period() -> bool {
    let all = membarrier(libc::MEMBARRIER_CMD_QUERY);
    all > 0 && all & libc::c_long::from(libc::MEMBARRIER_CMD_GLOBAL) != 0
}

/// Waits for the end of all current RCU read-side sections. False if it could not.
pub(crate) fn grace_period() -> bool {
    membarrier(libc::MEMBARRIER_CMD_GLOBAL) == 0
}

fn membarrier(command: libc::c_int) -> libc::c_long {
    // SAFETY: the call takes three integers, and touches no memory of ours.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) }
}

/// A packet socket that receives nothing. Closing it waits as [`grace_period`] does.
pub(crate) fn packet_socket() -> io::Result<OwnedFd> {
    open(libc::AF_PACKET, libc::SOCK_RAW, 0)
}

/// The fewest words of a ring: those of a descriptor.
const LEAST_WORDS: usize = 2;

/// One end of a ring in shared memory, which lives as long as either end, even beyond the socket.
#[derive(Debug)]
pub(crate) struct Mapped {
    _mapping: Arc<Mapping>,
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    words: NonNull<AtomicU64>,
    /// Words of all entries, a power of two, less one.
    mask: u32,
}

// SAFETY: all accesses are atomic, from any thread, and the mapping lives as long as this.
unsafe impl Send for Mapped {}
// SAFETY: the indices and words are atomics, so two threads may access them at once.
unsafe impl Sync for Mapped {}

impl Mapped {
    /// Maps a ring of `entries` entries, as was set. An error names the failed call.
    pub(crate) fn new(
        fd: BorrowedFd<'_>,
        ring: Ring,
        entries: u32,
    ) -> Result<Self, (&'static str, io::Error)> {
        let offsets = option::<libc::xdp_mmap_offsets>(fd, libc::SOL_XDP, libc::XDP_MMAP_OFFSETS)
            .map_err(|error| ("getsockopt(XDP_MMAP_OFFSETS)", error))?;
        Self::at(&offsets, fd, ring, entries).map_err(|error| ("mmap", error))
    }

    fn at(
        offsets: &libc::xdp_mmap_offsets,
        fd: BorrowedFd<'_>,
        ring: Ring,
        entries: u32,
    ) -> io::Result<Self> {
        let (at, page_offset, words) = match ring {
            Ring::Receive => (&offsets.rx, libc::XDP_PGOFF_RX_RING, 2),
            Ring::Transmit => (&offsets.tx, libc::XDP_PGOFF_TX_RING, 2),
            Ring::Fill => (&offsets.fr, libc::XDP_UMEM_PGOFF_FILL_RING as libc::off_t, 1),
            Ring::Completion => (&offsets.cr, libc::XDP_UMEM_PGOFF_COMPLETION_RING as libc::off_t, 1),
        };
        let len = at.desc as usize + entries as usize * words * 8;
        let inside = |offset: u64, align: u64| offset.is_multiple_of(align) && (offset as usize) < len - 3;
        check_entries(entries, words)?;
        if ![at.producer, at.consumer, at.flags].iter().all(|&o| inside(o, 4)) || !inside(at.desc, 8) {
            return Err(io::Error::from_raw_os_error(libc::EPROTO));
        }
        let memory = Mapping::new(len, Some((fd, page_offset)))?;
        // SAFETY: the offset was checked against the length of the mapping.
        let place = |offset: u64| unsafe { memory.base.add(offset as usize) };
        Ok(Self {
            producer: place(at.producer).cast(),
            consumer: place(at.consumer).cast(),
            flags: place(at.flags).cast(),
            words: place(at.desc).cast(),
            mask: entries * words as u32 - 1,
            _mapping: Arc::new(memory),
        })
    }

    /// Both ends of a ring without the kernel.
    pub(crate) fn pair<const WORDS: usize>(entries: u32) -> io::Result<[Self; 2]> {
        check_entries(entries, WORDS)?;
        let words = entries as usize * WORDS;
        let lines = 3; // one per index
        let memory = Arc::new(Mapping::new(lines * prefetch::LINE + words * 8, None)?);
        // SAFETY: the lines, and the words behind them, are within the mapping.
        let line = |number: usize| unsafe { memory.base.add(number * prefetch::LINE) };
        let end = || Self {
            producer: line(0).cast(),
            consumer: line(1).cast(),
            flags: line(2).cast(),
            words: line(lines).cast(),
            mask: words as u32 - 1,
            _mapping: memory.clone(),
        };
        Ok([end(), end()])
    }

    pub(crate) fn address(&self) -> usize {
        self.words.as_ptr().addr()
    }

    #[inline(always)]
    fn index(&self, index: Index) -> &AtomicU32 {
        let place = match index {
            Index::Producer => self.producer,
            Index::Consumer => self.consumer,
            Index::Flags => self.flags,
        };
        // SAFETY: the place is in the mapping and aligned, as the constructor checked; the mapping lives as
        // long as this.
        unsafe { place.as_ref() }
    }
}

impl<const WORDS: usize> RingMemory<WORDS> for Mapped {
    type Entries<'a> = MappedEntries<'a>;

    #[inline(always)]
    fn load(&self, index: Index, order: Ordering) -> u32 {
        self.index(index).load(order)
    }

    #[inline(always)]
    fn store(&self, index: Index, value: u32, order: Ordering) {
        self.index(index).store(value, order);
    }

    #[inline(always)]
    fn entries(&self) -> MappedEntries<'_> {
        MappedEntries { words: self.words, mask: self.mask, of: PhantomData }
    }
}

/// The entries of a ring that stays mapped.
#[derive(Clone, Copy)]
pub(crate) struct MappedEntries<'a> {
    words: NonNull<AtomicU64>,
    mask: u32,
    of: PhantomData<&'a Mapped>,
}

impl<'a> MappedEntries<'a> {
    /// A ring is a whole number of entries, so all words are in it.
    #[inline(always)]
    fn entry<const WORDS: usize>(self, slot: u32) -> &'a [AtomicU64; WORDS] {
        const { assert!(WORDS == 1 || WORDS == LEAST_WORDS) };
        let first = slot.wrapping_mul(WORDS as u32) & self.mask & !(WORDS as u32 - 1);
        // SAFETY: the mask keeps the entry within the words of the ring, whose number is a power of two, and
        // no less than that of an entry.
        let place = unsafe { self.words.add(first as usize).cast() };
        // SAFETY: it is aligned, and the mapping lives for `'a`.
        unsafe { place.as_ref() }
    }
}

impl<const WORDS: usize> Entries<WORDS> for MappedEntries<'_> {
    #[inline(always)]
    fn get(self, slot: u32) -> [u64; WORDS] {
        // Relaxed is plain for the CPU. Atomic, because the kernel may write at any time.
        let entry = self.entry::<WORDS>(slot);
        std::array::from_fn(|at| entry[at].load(Ordering::Relaxed))
    }

    #[inline(always)]
    fn set(self, slot: u32, entry: [u64; WORDS]) {
        self.entry::<WORDS>(slot)
            .iter()
            .zip(entry)
            .for_each(|(word, value)| word.store(value, Ordering::Relaxed));
    }

    #[inline(always)]
    fn prefetch(self, slot: u32, to_write: bool) {
        let place: *const _ = self.entry::<WORDS>(slot);
        if to_write { prefetch::to_write(place) } else { prefetch::to_read(place) }
    }
}

/// A mask requires a power of two, and at least the words of a descriptor.
fn check_entries(entries: u32, words: usize) -> io::Result<()> {
    match entries.is_power_of_two() && entries as usize * words >= LEAST_WORDS {
        true => Ok(()),
        false => Err(io::Error::from_raw_os_error(libc::EINVAL)),
    }
}

/// A mapping that this value alone owns.
#[derive(Debug)]
struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread, and only this value unmaps it.
unsafe impl Send for Mapping {}
// SAFETY: a shared reference gives access only to the address and the length.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes: a socket's ring, or memory of our own.
    fn new(len: usize, socket: Option<(BorrowedFd<'_>, libc::off_t)>) -> io::Result<Self> {
        let (fd, offset) = socket.map_or((-1, 0), |(fd, offset)| (fd.as_raw_fd(), offset));
        let whose = if socket.is_some() { 0 } else { libc::MAP_ANONYMOUS };
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // Otherwise the first round over the ring faults at each page.
        let kind = libc::MAP_SHARED | libc::MAP_POPULATE | whose;
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), len, access, kind, fd, offset) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // A child's copy of a socket's mapping would keep the socket. If the kernel refuses, only that child
        // is affected.
        // SAFETY: the mapping was made just now.
        unsafe { libc::madvise(base, len, libc::MADV_DONTFORK) };
        let base = NonNull::new(base.cast()).ok_or_else(|| io::Error::from_raw_os_error(libc::EFAULT))?;
        Ok(Self { base, len })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: only this value owns the mapping, and nothing refers to it any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}
