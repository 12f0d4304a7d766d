//! The memory of packets, and the ranges of it that are fragments.
//!
//! What   [`SkbMemory`] is a buffer of a pool, alone or with other readers, ordinary memory, or borrowed
//!        memory; [`SkbFrag`] is a range of it. It knows where it belongs, so a drop looks nothing up.
//! Cost   a move is free. A second reference is one atomic operation: for pool memory in its page's record,
//!        otherwise in its count.

// UNSAFETY: the holder of a buffer with a second reference promises to drop it as a shared one.
#![expect(unsafe_code)]

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use pagepool::internal::{buffer_of, count_shared, counted_reader, reader_beside, uncount_shared};
use pagepool::{DeviceAddr, DomainId, Frag, PageBuf, SharedBuf};

/// The memory of a fragment.
#[derive(Debug)]
#[non_exhaustive]
pub enum SkbMemory {
    /// A buffer of a pool, only in this packet.
    Pool(PageBuf),
    /// A buffer of a pool with other readers.
    Shared(SharedBuf),
    /// Memory of the global allocator.
    Ordinary(Arc<[u8]>),
    /// Borrowed memory: see [`SkbMemory::owned`].
    Owned(SkbOwner),
}

/// The owner of memory that packets borrow.
///
/// It is dropped, on any thread, when the last packet has dropped the memory. Its drop is the notification.
#[derive(Clone)]
pub struct SkbOwner(Arc<dyn AsRef<[u8]> + Send + Sync>);

impl fmt::Debug for SkbOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SkbOwner({} bytes)", self.bytes().len())
    }
}

impl SkbOwner {
    fn bytes(&self) -> &[u8] {
        (*self.0).as_ref()
    }
}

impl From<PageBuf> for SkbMemory {
    fn from(buffer: PageBuf) -> Self {
        Self::Pool(buffer)
    }
}

impl From<SharedBuf> for SkbMemory {
    fn from(buffer: SharedBuf) -> Self {
        Self::Shared(buffer)
    }
}

impl From<Arc<[u8]>> for SkbMemory {
    fn from(bytes: Arc<[u8]>) -> Self {
        Self::Ordinary(bytes)
    }
}

impl SkbMemory {
    /// Lends memory to packets. `owner` is dropped with the last packet that has it; its drop may do anything
    /// a thread may do. `owner` must give the same bytes at each call. Allocates a count. Linux: `ubuf_info`
    /// and its callback.
    ///
    /// ```
    /// use pagepool_skb::{SkBuff, SkbCache, SkbMemory};
    /// use std::sync::mpsc::{Sender, channel};
    ///
    /// /// Memory that goes back through a channel.
    /// struct Lent(Vec<u8>, Sender<usize>);
    ///
    /// impl AsRef<[u8]> for Lent {
    ///     fn as_ref(&self) -> &[u8] {
    ///         &self.0
    ///     }
    /// }
    ///
    /// impl Drop for Lent {
    ///     fn drop(&mut self) {
    ///         let _ = self.1.send(self.0.len());
    ///     }
    /// }
    ///
    /// let cache = SkbCache::new(8)?;
    /// let (done, came) = channel();
    /// let mut packet = SkBuff::with_capacity(&cache, 64, 0).unwrap();
    /// packet.add_frag(SkbMemory::owned(Lent(vec![7; 9000], done)), 100, 1500).unwrap();
    /// let clone = packet.clone();
    /// drop(packet);
    /// assert!(came.try_recv().is_err(), "the clone has it still");
    /// drop(clone);
    /// assert_eq!(came.try_recv(), Ok(9000));
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    #[doc(alias = "ubuf_info")]
    pub fn owned(owner: impl AsRef<[u8]> + Send + Sync + 'static) -> Self {
        Self::Owned(SkbOwner(Arc::new(owner)))
    }

    /// The buffer, if it belongs to a pool.
    pub fn buffer(&self) -> Option<&PageBuf> {
        match self {
            Self::Pool(buffer) => Some(buffer),
            Self::Shared(buffer) => Some(buffer_of(buffer)),
            Self::Ordinary(_) | Self::Owned(_) => None,
        }
    }

    /// All bytes; `None` if the CPU cannot read them.
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Ordinary(bytes) => Some(bytes),
            Self::Owned(owner) => Some(owner.bytes()),
            _ => self.buffer()?.bytes(),
        }
    }

    /// Its size in bytes. Linux: what it adds to `truesize`.
    pub fn size(&self) -> usize {
        match self {
            Self::Ordinary(bytes) => bytes.len(),
            Self::Owned(owner) => owner.bytes().len(),
            _ => self.buffer().map_or(0, PageBuf::len),
        }
    }

    fn into_shared(self) -> Self {
        match self {
            Self::Pool(buffer) => Self::Shared(buffer.into_shared()),
            other => other,
        }
    }

    /// Counts a plain buffer as a shared one.
    pub(crate) fn count_shared(&self) {
        if let Self::Pool(buffer) = self {
            // SAFETY: each thread with a clone of the packet counts it at most once at a time.
            unsafe { count_shared(buffer) };
        }
    }

    /// Takes one [`count_shared`](Self::count_shared) back.
    ///
    /// # Safety
    /// The caller counted it, and nothing relies on that.
    pub(crate) unsafe fn uncount_shared(&self) {
        if let Self::Pool(buffer) = self {
            // SAFETY: I1. The caller's promise.
            unsafe { uncount_shared(buffer) };
        }
    }
}

/// A range of memory that is part of a packet. Linux: `skb_frag_t`.
#[derive(Debug)]
pub struct SkbFrag {
    memory: SkbMemory,
    offset: u32,
    len: u32,
}

const _: () = assert!(size_of::<SkbFrag>() == 32, "two fragments in a cache line");

impl From<Frag> for SkbFrag {
    fn from(frag: Frag) -> Self {
        let (offset, len) = (frag.offset(), frag.len());
        Self::new(frag.into_buffer().into(), offset, len)
    }
}

impl SkbFrag {
    /// `len` bytes, at least 1, at `offset` in the memory, which is large enough.
    pub(crate) fn new(memory: SkbMemory, offset: usize, len: usize) -> Self {
        debug_assert!(len > 0 && offset + len <= memory.size(), "I1: data {offset}+{len} beyond its memory");
        Self { memory, offset: offset as u32, len: len as u32 }
    }

    /// The memory that contains it.
    pub fn memory(&self) -> &SkbMemory {
        &self.memory
    }

    /// Offset of the data in the memory.
    pub fn offset(&self) -> usize {
        self.offset as usize
    }

    /// Length of the data in bytes, at least 1.
    #[expect(clippy::len_without_is_empty, reason = "a fragment is never empty")]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether the CPU can read it. Linux: the opposite of `skb_frag_is_net_iov`.
    pub fn readable(&self) -> bool {
        self.memory.bytes().is_some()
    }

    /// The data; empty if the CPU cannot read it.
    pub fn data(&self) -> &[u8] {
        self.memory.bytes().map_or(&[], |bytes| &bytes[self.range()])
    }

    /// Device address of the data, if it is pool memory mapped in that domain: see [`PageBuf::dma_addr_in`].
    pub fn dma_addr_in(&self, domain: DomainId) -> Option<DeviceAddr> {
        let at = self.memory.buffer()?.dma_addr_in(domain)?;
        Some(DeviceAddr(at.0 + u64::from(self.offset)))
    }

    /// Hands the data to the device, if it is pool memory.
    pub fn sync_for_device(&self) {
        if let Some(buffer) = self.memory.buffer() {
            buffer.sync_for_device(self.offset(), self.len());
        }
    }

    fn range(&self) -> Range<usize> {
        self.offset()..self.offset() + self.len()
    }

    pub(crate) fn into_memory(self) -> SkbMemory {
        self.memory
    }

    /// Cuts bytes off the front; at least one stays.
    pub(crate) fn pull(&mut self, less: usize) {
        debug_assert!(less < self.len(), "I1: a fragment is never empty");
        self.offset += less as u32;
        self.len -= less as u32;
    }

    /// Cuts the end off: `len` bytes stay, at least one.
    pub(crate) fn trim(&mut self, len: usize) {
        debug_assert!(0 < len && len <= self.len(), "I1: a fragment is never empty");
        self.len = len as u32;
    }

    /// Divides it in two of at least one byte each. Both share the memory.
    pub(crate) fn split(self, at: usize) -> (Self, Self) {
        let mut front = Self { memory: self.memory.into_shared(), ..self };
        // SAFETY: `front` was just made shared.
        let mut back = unsafe { front.reference() };
        front.trim(at);
        back.pull(at);
        (front, back)
    }

    /// Turns a fragment that was counted as shared into one. No atomic operation.
    ///
    /// # Safety
    /// The fragment was counted.
    pub(crate) unsafe fn into_counted(self) -> Self {
        let memory = match self.memory {
            // SAFETY: I1. The caller's promise.
            SkbMemory::Pool(buffer) => SkbMemory::Shared(unsafe { counted_reader(buffer) }),
            other => other,
        };
        Self { memory, ..self }
    }

    /// A second reference to this data.
    ///
    /// # Safety
    /// This fragment is shared, or counted as shared and turned [into one](Self::into_counted) before it is
    /// dropped.
    pub(crate) unsafe fn reference(&self) -> Self {
        let memory = match &self.memory {
            // SAFETY: the caller's promise.
            SkbMemory::Pool(buffer) => SkbMemory::Shared(unsafe { reader_beside(buffer) }),
            SkbMemory::Shared(buffer) => SkbMemory::Shared(buffer.clone()),
            SkbMemory::Ordinary(bytes) => SkbMemory::Ordinary(bytes.clone()),
            SkbMemory::Owned(owner) => SkbMemory::Owned(owner.clone()),
        };
        Self { memory, ..*self }
    }
}
