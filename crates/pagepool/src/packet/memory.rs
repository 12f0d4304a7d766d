//! The memory of a packet that outlives the poll.
//!
//! What   a buffer of a pool, a page of ordinary memory, a shared page, or memory of the caller. It returns
//!        to where it came from when dropped, on any thread.
//! Who    one holder. A shared page has several, and can be written only by the last.
//! I8     memory of a [`MemModel`] keeps its memory id in use.

// UNSAFETY: external memory is accessed by address.
#![expect(unsafe_code)]

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::buf::page_buf::PageBuf;
use crate::core::registry::{MemId, MemType};
use crate::mem::dma::DomainId;
use crate::mem::page::PAGE_SIZE;
use crate::packet::mem_model::{Carried, MemModel};

/// Memory of a frame's first buffer, by types of XDP's memory model. Linux: `enum xdp_mem_type`.
#[derive(Debug)]
#[non_exhaustive]
pub enum Memory {
    /// A buffer of a pool.
    Pool(PageBuf),
    /// A page of ordinary memory.
    Page(Page),
    /// A page of ordinary memory with several owners.
    Shared(SharedPage),
    /// Memory of the caller.
    External(External),
}

const _: () = assert!(size_of::<Memory>() == 24, "a frame is 48 bytes");

impl Memory {
    /// The type of the memory.
    pub fn mem_type(&self) -> MemType {
        match self {
            Self::Pool(_) => MemType::Pool,
            Self::Page(_) => MemType::Page,
            Self::Shared(_) => MemType::SharedPage,
            Self::External(_) => MemType::External,
        }
    }

    /// The memory id; `None` for pages made without a model.
    pub fn mem_id(&self) -> Option<MemId> {
        match self {
            Self::Pool(buffer) => Some(buffer.pool.mem_id),
            Self::Page(page) => page.mem_id(),
            Self::Shared(page) => page.0.mem_id(),
            Self::External(external) => Some(external.model.mem_id()),
        }
    }

    /// The first domain of its pool; `None` for memory that no device can access.
    pub fn domain(&self) -> Option<DomainId> {
        match self {
            Self::Pool(buffer) => buffer.pool.mappings.first().map(|mapping| mapping.id()),
            _ => None,
        }
    }

    /// All bytes; `None` if the CPU cannot read them.
    #[inline]
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Pool(buffer) => buffer.bytes(),
            Self::Page(page) => Some(page.bytes()),
            Self::Shared(page) => Some(page.bytes()),
            Self::External(external) => Some(external.bytes()),
        }
    }

    /// All bytes, mutable; `None` if the CPU cannot access them, and for a page with other owners.
    #[inline]
    pub fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        match self {
            Self::Pool(buffer) => buffer.bytes_mut(),
            Self::Page(page) => Some(page.bytes_mut()),
            Self::Shared(page) => page.bytes_mut(),
            Self::External(external) => Some(external.bytes_mut()),
        }
    }
}

/// A page of ordinary memory, 4 KiB, aligned to its size. Linux: memory of `MEM_TYPE_PAGE_ORDER0`.
///
/// ```
/// let mut page = pagepool::Page::new();
/// page.bytes_mut()[0] = 1;
/// assert_eq!(page.bytes().as_ptr().addr() % 4096, 0);
/// ```
pub struct Page {
    memory: Box<PageMemory>,
    model: Option<Carried>,
}

#[repr(C, align(4096))]
struct PageMemory([u8; PAGE_SIZE]);

impl fmt::Debug for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Page").field("mem_id", &self.mem_id()).finish_non_exhaustive()
    }
}

impl Default for Page {
    fn default() -> Self {
        Self::new()
    }
}

impl Page {
    /// Creates a zeroed page without a memory id.
    pub fn new() -> Self {
        Self { memory: Box::new(PageMemory([0; PAGE_SIZE])), model: None }
    }

    /// Creates a zeroed page with the model's memory id.
    pub fn of(model: &MemModel) -> Self {
        Self { model: Some(model.carried()), ..Self::new() }
    }

    /// The memory id, if it has a model.
    pub fn mem_id(&self) -> Option<MemId> {
        self.model.as_ref().map(Carried::mem_id)
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.memory.0
    }

    /// The bytes, mutable.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory.0
    }

    /// Makes the page shareable; allocates a count.
    pub fn into_shared(self) -> SharedPage {
        SharedPage(Arc::new(self))
    }
}

/// A page of ordinary memory that its clones share. Linux: memory of `MEM_TYPE_PAGE_SHARED`.
///
/// ```
/// let page = pagepool::Page::new().into_shared();
/// let mut clone = page.clone();
/// assert!(clone.bytes_mut().is_none(), "the other one may be reading");
/// drop(page);
/// assert!(clone.bytes_mut().is_some());
/// ```
#[derive(Clone, Debug)]
pub struct SharedPage(Arc<Page>);

impl SharedPage {
    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        self.0.bytes()
    }

    /// The bytes, mutable; `None` while a clone exists.
    pub fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        Arc::get_mut(&mut self.0).map(Page::bytes_mut)
    }

    /// The memory id, if it has a model.
    pub fn mem_id(&self) -> Option<MemId> {
        self.0.mem_id()
    }
}

/// Memory of the caller, which the callback of its [`MemModel`] takes back.
#[derive(Debug)]
#[repr(C)]
pub struct External {
    start: NonNull<u8>,
    model: Carried,
    len: u32,
    spare: Spare,
}

/// Its unused values encode the variant of a [`Memory`].
#[derive(Debug)]
#[repr(u8)]
enum Spare {
    Only,
}

// SAFETY: I1. Only this value owns its bytes, and the caller of `new` promised that any thread may use them
// and give them back.
unsafe impl Send for External {}
// SAFETY: bytes can only be read through a shared reference.
unsafe impl Sync for External {}

impl External {
    /// Takes the memory. `None`, and it stays with the caller, if it has 4 GiB or more or the model no
    /// callback.
    ///
    /// # Safety
    /// * The memory is initialised and stays valid until the callback receives it.
    /// * No other code touches it until then.
    /// * Any thread may touch it.
    pub(crate) unsafe fn new(model: &MemModel, memory: NonNull<[u8]>) -> Option<Self> {
        let len = u32::try_from(memory.len()).ok()?;
        let takes_back = model.takes_back();
        takes_back.then(|| Self { start: memory.cast(), model: model.carried(), len, spare: Spare::Only })
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: I1. Only this value uses the bytes, and they are valid until given back, as the caller of
        // `new` promised.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len as usize) }
    }

    /// The bytes, mutable.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: I1. As in `bytes`, and it is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len as usize) }
    }
}

impl Drop for External {
    fn drop(&mut self) {
        self.model.give_back(NonNull::slice_from_raw_parts(self.start, self.len as usize));
    }
}
