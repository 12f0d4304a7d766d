//! The memory of AF_XDP sockets: an arena, registered whole.
//!
//! What   a [`DmaDomain`] in which a device address is the offset in the arena. Registered before the first
//!        pool maps it, and again if sockets are opened after all were closed. All sockets share one
//!        registration: the memory is pinned once.
//! Who    any thread. One lock, taken to open and close sockets, never per packet.
//! Lock   a socket is closed under the lock, so no thread can borrow its descriptor to share its UMEM: it is
//!        closed when `close` returns.
//! I4     the kernel pins the pages. It writes only bytes whose address was put on a fill ring
//!        (`receiver.rs`), and the time before a packet that requests it, in copy mode perhaps after the
//!        close (`tx_metadata/requests.rs`).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use pagepool::{DeviceAddr, DmaDomain, DomainId, Error, Provider, Region, system_page_size};

use super::layout::Layout;
use super::params::{UmemParams, XDP_HEADROOM, XskMode, XskParams};
use super::probe::Probe;
use super::queue::Queue;
use super::sys::socket::{self as sys, Registration, flags};
use super::tx_metadata::TxMetadataMode;
use crate::interface::lookup::{self, DriverOf};
use crate::sys::remedy::failed;
use crate::sys::{errno, locked_memory};

/// The shortest and longest pause before a busy queue is tried again, which takes a kernel lock that freeing
/// a queue needs. In between, this part of the time since the first try.
const PAUSES: [Duration; 2] = [Duration::from_micros(300), Duration::from_millis(20)];
const PAUSE_OF: u32 = 128;

/// The first kernel with metadata of sent packets.
const METADATA: (u32, u32) = (6, 11);

/// The memory of a provider, registered as an AF_XDP UMEM. Pools name it in `domains`; devices are opened
/// over it.
#[derive(Debug)]
pub struct Umem {
    id: DomainId,
    params: UmemParams,
    area: u64,
    memory: Registration,
    /// Bytes of a page of the memory.
    page_size: u32,
    sockets: Mutex<Sockets>,
}

#[derive(Debug, Default)]
struct Sockets {
    /// The registered socket, not bound to a queue.
    registered: Option<OwnedFd>,
    bound: Vec<(Queue, Weak<OwnedFd>)>,
}

impl Umem {
    /// Registers all memory of a provider, which must be committed (an arena: `commit_all`) and readable by
    /// the CPU.
    ///
    /// Requires `CAP_NET_RAW`, and locked memory of the arena's size unless the thread has `CAP_IPC_LOCK`.
    ///
    /// ```no_run
    /// use pagepool::{Arena, ArenaParams};
    /// use pagepool_net::{Umem, UmemParams};
    /// let arena = Arena::new(ArenaParams { max_bytes: 16 << 20, commit_all: true, ..Default::default() })?;
    /// let umem = Umem::new(UmemParams::default(), &arena)?;
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    pub fn new<P: Provider + ?Sized>(params: UmemParams, provider: &Arc<P>) -> Result<Arc<Self>, Error> {
        let this = Self::unregistered(params, provider)?;
        let Registration { addr, len, .. } = this.memory;
        let (area, page) = (provider.area(), system_page_size() as u64);
        // Only a caller's own memory can begin within a larger system page.
        if !addr.is_multiple_of(page) {
            let what = format!(
                "{}, and must begin at a multiple of {page} bytes, the system's page, but begins at \
                 {addr:#x}: align it, or use an arena's own memory",
                registered_whole(provider)
            );
            return Err(Error::Unsupported { what });
        }
        // The kernel pins every page now, and ignores later commits.
        if area.present_bytes() < len {
            let what = format!(
                "{}, but only {} of {len} bytes are committed: set commit_all",
                registered_whole(provider),
                area.present_bytes()
            );
            return Err(Error::Unsupported { what });
        }
        // Before any device, so that `new` reports memory that cannot be pinned.
        let registered = new_socket()?;
        this.register(registered.as_fd())?;
        this.lock().registered = Some(registered);
        Ok(Arc::new(this))
    }

    /// A UMEM that the kernel does not know.
    pub(super) fn unregistered<P: Provider + ?Sized>(
        params: UmemParams,
        provider: &Arc<P>,
    ) -> Result<Self, Error> {
        let area = provider.area();
        let page_size = area.page_size() as u32;
        params.check(page_size)?;
        let addr = area.base().ok_or_else(|| {
            let what = format!("{}, and must be readable by the CPU", registered_whole(provider));
            Error::Unsupported { what }
        })?;
        let memory = params.registration(addr, area.len_bytes(), page_size);
        let sockets = Mutex::new(Sockets::default());
        Ok(Self { id: DomainId::unique(), params, area: area.id(), memory, page_size, sockets })
    }

    /// Its parameters.
    pub fn params(&self) -> &UmemParams {
        &self.params
    }

    /// The number of bound sockets.
    #[doc(hidden)]
    #[cfg(any(test, feature = "testing"))]
    pub fn sockets(&self) -> usize {
        self.lock().bound.len()
    }

    /// Most bytes of a packet in one chunk.
    pub fn packet_capacity(&self) -> usize {
        (self.memory.chunk_size - self.memory.headroom - XDP_HEADROOM) as usize
    }

    /// Its address in this process.
    pub(super) fn base(&self) -> usize {
        self.memory.addr as usize
    }

    pub(super) fn domain_id(&self) -> DomainId {
        self.id
    }

    pub(super) fn layout(&self) -> Layout {
        let (chunk, unaligned) = (self.memory.chunk_size, self.params.unaligned);
        Layout {
            chunk,
            before: self.memory.headroom + XDP_HEADROOM,
            unaligned,
            page_shift: self.page_size.ilog2(),
            len: self.memory.len,
        }
    }

    /// Returns a socket for a queue, and whether it has the registration.
    pub(super) fn take_socket(&self) -> Result<(OwnedFd, bool), Error> {
        // The first device gets it, because the kernel shares a UMEM only through a bound socket.
        match self.lock().registered.take() {
            Some(fd) => Ok((fd, true)),
            None => Ok((new_socket()?, false)),
        }
    }

    /// Binds a socket of [`take_socket`](Self::take_socket) with its rings. Tries again while the queue is
    /// busy.
    pub(super) fn bind(
        &self,
        fd: &Arc<OwnedFd>,
        mut has_memory: bool,
        queue: Queue,
        XskParams { busy_limit, give_up, .. }: &XskParams,
    ) -> Result<(), Error> {
        let over = || give_up.as_ref().is_some_and(|over| over.load(Ordering::Relaxed));
        let start = Instant::now();
        loop {
            let error = match self.try_bind(fd, &mut has_memory, queue)? {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            // The kernel frees the queue of a closed socket, or of a killed process, later.
            let busy = error.raw_os_error() == Some(errno::EBUSY);
            if !busy || start.elapsed() >= *busy_limit || over() {
                return Err(self.not_bound(error, queue, start.elapsed(), self.is_zero_copy()));
            }
            // Without the lock, for other queues.
            let [least, most] = PAUSES;
            std::thread::sleep((start.elapsed() / PAUSE_OF).clamp(least, most));
        }
    }

    fn try_bind(
        &self,
        fd: &Arc<OwnedFd>,
        has_memory: &mut bool,
        queue: Queue,
    ) -> Result<io::Result<()>, Error> {
        let mut sockets = self.lock();
        // The kernel would return EBUSY, which is retried; but this will not pass.
        if sockets.bound.iter().any(|(bound, _)| *bound == queue) {
            let what = format!(
                "queue {} already has a device over UMEM {}, and can have only one",
                queue.number, self.params.name
            );
            return Err(Error::Busy { what });
        }
        // Any bound socket shares the registration. Without one, this socket registers the memory again.
        let shared = sockets.bound.first().and_then(|(_, fd)| fd.upgrade()).filter(|_| !*has_memory);
        if shared.is_none() && !*has_memory {
            self.register(fd.as_fd())?;
            *has_memory = true;
        }
        let shared_fd = shared.as_ref().map(|shared| shared.as_fd());
        let done = sys::bind(fd.as_fd(), queue.index, queue.number, self.flags(), shared_fd);
        if done.is_ok() {
            // Weak: a strong reference would keep the queue bound.
            sockets.bound.push((queue, Arc::downgrade(fd)));
        }
        drop(shared); // while the lock is held: `close` must drop the last reference
        Ok(done)
    }

    /// The probe that shows when a driver is done with a queue.
    pub(super) fn probe(&self) -> Result<Probe, Error> {
        Probe::new(self.memory).map_err(|source| {
            let remedy = "zero copy requires one more socket, to close a queue safely: use copy mode";
            failed("setsockopt(AF_XDP)", source, remedy)
        })
    }

    /// Closes a socket of which no other reference exists outside the lock.
    pub(super) fn close(&self, fd: Arc<OwnedFd>) {
        let mut sockets = self.lock();
        sockets.bound.retain(|(_, bound)| !std::ptr::eq(bound.as_ptr(), Arc::as_ptr(&fd)));
        // `try_bind` borrows descriptors only under the lock, so this closes the socket.
        debug_assert_eq!(Arc::strong_count(&fd), 1, "the device has the only one outside the lock");
        drop(fd);
    }

    /// Whether the bound sockets use zero copy. Sockets that share their registration then must, too.
    fn is_zero_copy(&self) -> bool {
        let bound = self.lock().bound.first().and_then(|(_, fd)| fd.upgrade());
        bound.is_some_and(|fd| sys::is_zero_copy(fd.as_fd()))
    }

    fn flags(&self) -> u16 {
        // For the socket with the registration; those that share it follow.
        let mode = match self.params.mode {
            XskMode::Auto => 0,
            XskMode::Copy => flags::XDP_COPY,
            XskMode::ZeroCopy => flags::XDP_ZEROCOPY,
        };
        // The kernel sets a flag when it must be called; other rounds need no system call.
        mode | flags::XDP_USE_NEED_WAKEUP | if self.params.multi_buffer { flags::XDP_USE_SG } else { 0 }
    }

    /// Registers the memory with a socket. If too little memory may be locked, raises the limit and tries
    /// again.
    fn register(&self, fd: BorrowedFd<'_>) -> Result<(), Error> {
        let short = |error: &io::Error| error.raw_os_error() == Some(errno::ENOBUFS);
        let done = sys::register(fd, self.memory).or_else(|error| {
            if !short(&error) {
                return Err(error);
            }
            // The soft limit is low by default (8 MiB, earlier 64 KiB); every process may raise it.
            locked_memory::raise_to_hard_limit();
            sys::register(fd, self.memory)
        });
        let Registration { len, chunk_size: chunk, headroom, tx_metadata_len: metadata, .. } = self.memory;
        done.map_err(|source| {
            let remedy = match source.raw_os_error() {
                Some(errno::ENOBUFS) => format!(
                    "{len} bytes are more than this user may still lock (other UMEMs count): raise \
                     RLIMIT_MEMLOCK (ulimit -l {}, or more), or run with CAP_IPC_LOCK",
                    len / 1024
                ),
                Some(errno::EINVAL) if metadata > 0 && lookup::kernel_version() < METADATA => format!(
                    "tx_metadata requires Linux 6.11, or a 6.8 to 6.10 stable release with \
                     XDP_UMEM_TX_METADATA_LEN; this is {}: use TxMetadataMode::Off, and compute checksums in \
                     the program",
                    lookup::kernel_release()
                ),
                Some(errno::EINVAL) => format!(
                    "the kernel refuses chunks of {chunk} bytes with {headroom} bytes of headroom: use \
                     aligned chunks of 2048 or 4096 bytes; unaligned ones require Linux 5.4"
                ),
                Some(errno::ENOPROTOOPT) => "the kernel is older than 4.18".into(),
                _ => format!("the kernel did not pin {len} bytes: use a smaller arena"),
            };
            failed("setsockopt(XDP_UMEM_REG)", source, remedy)
        })
    }

    fn not_bound(&self, source: io::Error, at: Queue, after: Duration, zero_copy: bool) -> Error {
        let queue = at.number;
        let remedy = match source.raw_os_error() {
            Some(errno::EBUSY) => format!(
                "after {} ms another AF_XDP socket is still bound to queue {queue} (`ss --xdp -e` shows \
                 it): close it, or use another queue",
                after.as_millis()
            ),
            Some(errno::EOPNOTSUPP) if self.params.tx_metadata == TxMetadataMode::SoftwareChecksum => {
                "tx_metadata is SoftwareChecksum, and the kernel computes no checksums if the driver takes \
                 packets in fragments (virtio_net): use TxMetadataMode::On"
                    .into()
            }
            Some(errno::EOPNOTSUPP | errno::EPROTONOSUPPORT) => {
                let attached = lookup::xdp_mode_on(at.index).map_or("no XDP program", |_| "XDP attached");
                format!(
                    "the driver does not support zero copy here (chunk {}, {attached}); use --mode copy (in \
                     Rust XskMode::Copy, for all sockets over this UMEM)",
                    self.memory.chunk_size
                )
            }
            Some(errno::EINVAL) if self.params.multi_buffer => {
                "packets of several buffers require Linux 6.6, and with zero copy also driver support: leave \
                 multi_buffer off"
                    .into()
            }
            Some(errno::EINVAL) => {
                refused_as_invalid(queue, self.params.mode, zero_copy, lookup::driver_of(at.index))
            }
            Some(errno::ENETDOWN) => "the interface is down: set it up (ip link set ... up)".into(),
            Some(errno::ENODEV | errno::ENXIO) => "the interface was removed".into(),
            _ => format!("the kernel did not bind a socket to queue {queue}"),
        };
        failed("bind(AF_XDP)", source, remedy)
    }

    fn lock(&self) -> MutexGuard<'_, Sockets> {
        self.sockets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Before this kernel, its zero-copy queues were not its ordinary queues (mlx5e_xsk_setup_pool, v6.0).
const APART: (&str, (u32, u32)) = ("mlx5_core", (6, 1));

/// The remedy for EINVAL of `bind`.
fn refused_as_invalid(queue: u32, mode: XskMode, shared_zero_copy: bool, driver: DriverOf) -> String {
    if mode != XskMode::ZeroCopy && !shared_zero_copy {
        return format!(
            "the kernel refuses this socket for queue {queue}; sharing a UMEM between queues requires Linux \
             5.10"
        );
    }
    let DriverOf { name, queues, kernel } = driver;
    if name == APART.0 && kernel < APART.1 && queue < queues {
        let (last, twin) = (2 * queues - 1, queue + queues);
        return format!(
            "before Linux 6.1 {name} has zero copy on queues {queues} to {last}, not on queue {queue}: \
             open queue {twin} by XskParams and steer packets to it (`ethtool -N IF flow-type ... action \
             {twin}`), use Linux 6.1, or copy mode"
        );
    }
    format!(
        "the driver refuses zero copy for queue {queue}: virtio_net requires a device that uses the \
         platform's addresses (QEMU: iommu_platform=on); use copy mode for all sockets over this UMEM"
    )
}

/// The beginning of errors about memory that cannot be a UMEM.
fn registered_whole<P: Provider + ?Sized>(provider: &Arc<P>) -> String {
    format!("{}: a UMEM is registered whole", provider.describe())
}

fn new_socket() -> Result<OwnedFd, Error> {
    sys::socket().map_err(|source| {
        let remedy = match source.raw_os_error() {
            Some(errno::EAFNOSUPPORT) => "the kernel is older than 4.18, or built without CONFIG_XDP_SOCKETS",
            _ => "the kernel did not create a socket",
        };
        failed("socket(AF_XDP)", source, remedy)
    })
}

impl DmaDomain for Umem {
    fn id(&self) -> DomainId {
        self.id
    }

    fn name(&self) -> String {
        self.params.name.clone()
    }

    fn map(&self, region: &Region) -> Result<DeviceAddr, String> {
        // Offsets in another area would name pages of this one.
        if region.area() != self.area {
            return Err("this UMEM belongs to another arena: create one UMEM per arena".into());
        }
        Ok(DeviceAddr(region.offset()))
    }

    fn unmap(&self, _region: &Region, _at: DeviceAddr) {}

    fn sync_for_device(&self, _at: DeviceAddr, _len_bytes: usize) {}

    fn sync_for_cpu(&self, _at: DeviceAddr, _len_bytes: usize) {}

    fn fixes_area(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_software_checksums_are_not_blamed_on_zero_copy() {
        let arena = pagepool::ArenaParams { max_bytes: 1 << 20, ..Default::default() };
        let arena = pagepool::Arena::new(arena).unwrap();
        let error = |tx_metadata| {
            let umem = UmemParams { tx_metadata, ..Default::default() };
            let umem = crate::xsk::memory_kernel::umem_in_memory(umem, &arena).unwrap();
            let at = Queue { namespace: 0, index: 1, number: 0 };
            let refused = io::Error::from_raw_os_error(errno::EOPNOTSUPP);
            umem.not_bound(refused, at, Duration::ZERO, false).to_string()
        };
        let software = error(TxMetadataMode::SoftwareChecksum);
        assert!(software.contains("use TxMetadataMode::On") && !software.contains("zero copy"), "{software}");
        assert!(error(TxMetadataMode::On).contains("the driver does not support zero copy here (chunk "));
    }

    #[test]
    fn what_a_driver_finds_invalid_names_the_condition() {
        for (mode, shared) in [(XskMode::ZeroCopy, false), (XskMode::Auto, true)] {
            let error = refused_as_invalid(3, mode, shared, DriverOf::default());
            assert!(
                error.contains("zero copy for queue 3") && error.contains("iommu_platform=on"),
                "{error}"
            );
        }
        let copied = refused_as_invalid(3, XskMode::Copy, false, DriverOf::default());
        assert!(copied.contains("requires Linux 5.10"));
    }

    #[test]
    fn queues_with_zero_copy_that_are_others_are_named() {
        let error = |name: &str, kernel, queue| {
            let driver = DriverOf { name: name.into(), queues: 8, kernel };
            refused_as_invalid(queue, XskMode::ZeroCopy, false, driver)
        };
        let text = error("mlx5_core", (6, 0), 3);
        assert!(text.contains("queues 8 to 15") && text.contains("open queue 11 "), "{text}");
        for (name, kernel, queue) in [("mlx5_core", (6, 1), 3), ("ice", (6, 0), 3), ("mlx5_core", (5, 15), 8)]
        {
            assert!(!error(name, kernel, queue).contains("queues 8 to 15"), "{name} {kernel:?} {queue}");
        }
    }
}
