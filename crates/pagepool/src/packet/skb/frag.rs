//! The memory of packets, and the stretches of it that are a packet's fragments.
//!
//! What   [`SkbMemory`] is a buffer of a pool, alone or with other readers, ordinary memory, or memory of
//!        somebody else's; [`SkbFrag`] is a stretch of it. It knows where it belongs, so nothing is looked up
//!        when it is dropped.
//! Cost   moving one costs nothing; a second reference to pool memory is one atomic operation in its page's
//!        record, and to any other one in its count.

// UNSAFETY: a second reference to a buffer is its holder's promise to drop it as a shared one.
#![expect(unsafe_code)]

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::buf::page_buf::PageBuf;
use crate::buf::shared_buf::SharedBuf;
use crate::mem::dma::{DeviceAddr, DomainId};
use crate::packet::chain::Frag;

/// What a fragment's bytes lie in.
#[derive(Debug)]
#[non_exhaustive]
pub enum SkbMemory {
    /// A buffer of a pool, this packet's alone.
    Pool(PageBuf),
    /// A buffer of a pool with other readers.
    Shared(SharedBuf),
    /// Memory of the global allocator.
    Ordinary(Arc<[u8]>),
    /// Memory of somebody else's: see [`SkbMemory::owned`].
    Owned(SkbOwner),
}

/// The owner of memory that packets lie in.
///
/// It is dropped when the last packet has let go of the memory, on whichever thread: that is how it hears of
/// it.
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
    /// Memory that somebody else has, and lends to packets until the last of them has let go of it: then
    /// `owner` is dropped, which may do anything a thread may do. It must give the same bytes each time it is
    /// asked. Allocates a count. Linux: `ubuf_info` and its callback.
    ///
    /// ```
    /// use pagepool::{SkBuff, SkbCache, SkbMemory};
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
    /// let (home, came) = channel();
    /// let mut packet = SkBuff::with_capacity(&cache, 64, 0).unwrap();
    /// packet.add_frag(SkbMemory::owned(Lent(vec![7; 9000], home)), 100, 1500).unwrap();
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

    /// The buffer, if it is a pool's.
    pub fn buffer(&self) -> Option<&PageBuf> {
        match self {
            Self::Pool(buffer) => Some(buffer),
            Self::Shared(buffer) => Some(buffer.buffer()),
            Self::Ordinary(_) | Self::Owned(_) => None,
        }
    }

    /// All its bytes; `None` for memory that the CPU cannot read.
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Ordinary(bytes) => Some(bytes),
            Self::Owned(owner) => Some(owner.bytes()),
            _ => self.buffer()?.bytes(),
        }
    }

    /// How many bytes it has. Linux: what it adds to `truesize`.
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

    /// Counts a buffer that is not shared yet as one that is.
    pub(crate) fn count_shared(&self) {
        if let Self::Pool(buffer) = self {
            SharedBuf::count(buffer);
        }
    }

    /// Takes one [`count_shared`](Self::count_shared) back.
    pub(crate) fn uncount_shared(&self) {
        if let Self::Pool(buffer) = self {
            SharedBuf::uncount(buffer);
        }
    }
}

/// A stretch of memory that is part of a packet. Linux: `skb_frag_t`.
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
    /// The bytes at `offset` in the memory, which has them; at least one.
    pub(crate) fn new(memory: SkbMemory, offset: usize, len: usize) -> Self {
        debug_assert!(len > 0 && offset + len <= memory.size(), "I1: data {offset}+{len} beyond its memory");
        Self { memory, offset: offset as u32, len: len as u32 }
    }

    /// What its bytes lie in.
    pub fn memory(&self) -> &SkbMemory {
        &self.memory
    }

    /// Where in the memory it begins.
    pub fn offset(&self) -> usize {
        self.offset as usize
    }

    /// Bytes of data, at least one.
    #[expect(clippy::len_without_is_empty, reason = "a fragment is never empty")]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether the CPU can read it. Linux: `skb_frag_is_net_iov`, the other way round.
    pub fn readable(&self) -> bool {
        self.memory.bytes().is_some()
    }

    /// The data; empty for memory that the CPU cannot read.
    pub fn data(&self) -> &[u8] {
        self.memory.bytes().map_or(&[], |bytes| &bytes[self.range()])
    }

    /// Where that device finds the data, if it is pool memory and mapped there: see [`PageBuf::dma_addr_in`].
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

    /// Where in the memory it lies.
    fn range(&self) -> Range<usize> {
        self.offset()..self.offset() + self.len()
    }

    /// Returns the memory.
    pub(crate) fn into_memory(self) -> SkbMemory {
        self.memory
    }

    /// Cuts bytes off the front; at least one stays.
    pub(crate) fn pull(&mut self, less: usize) {
        debug_assert!(less < self.len(), "I1: a fragment is never empty");
        self.offset += less as u32;
        self.len -= less as u32;
    }

    /// Cuts the end off; at least one byte stays.
    pub(crate) fn trim(&mut self, len: usize) {
        debug_assert!(0 < len && len <= self.len(), "I1: a fragment is never empty");
        self.len = len as u32;
    }

    /// Two of one, both with the memory, which is shared from then on: at least one byte each.
    pub(crate) fn split(self, at: usize) -> (Self, Self) {
        let mut front = Self { memory: self.memory.into_shared(), ..self };
        // SAFETY: `front` was just made shared.
        let mut back = unsafe { front.reference() };
        front.trim(at);
        back.pull(at);
        (front, back)
    }

    /// The same as one reader among others, once it is counted as that. Costs no atomic operation.
    pub(crate) fn into_counted(self) -> Self {
        let memory = match self.memory {
            SkbMemory::Pool(buffer) => SkbMemory::Shared(SharedBuf::counted(buffer)),
            other => other,
        };
        Self { memory, ..self }
    }

    /// A second reference to the same data.
    ///
    /// # Safety
    /// This one is shared; or it is counted as that, and made [so](Self::into_counted) before it is dropped.
    pub(crate) unsafe fn reference(&self) -> Self {
        let memory = match &self.memory {
            // SAFETY: the caller's promise.
            SkbMemory::Pool(buffer) => SkbMemory::Shared(unsafe { SharedBuf::beside(buffer) }),
            SkbMemory::Shared(buffer) => SkbMemory::Shared(buffer.clone()),
            SkbMemory::Ordinary(bytes) => SkbMemory::Ordinary(bytes.clone()),
            SkbMemory::Owned(owner) => SkbMemory::Owned(owner.clone()),
        };
        Self { memory, ..*self }
    }
}
