//! The memory of a packet that outlives the poll.
//!
//! What   a buffer of a pool, a page of ordinary memory, one that is shared, or memory of the caller's. Each
//!        goes back where it came from when it is dropped, on any thread.
//! Who    one holder has it alone. A shared page is the exception: it can be written only by the last one
//!        that has it.
//! I8     what was made of a [`MemModel`] keeps its memory id taken.

// UNSAFETY: external memory is reached by address.
#![expect(unsafe_code)]

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::buf::page_buf::PageBuf;
use crate::home::registry::{MemId, MemType};
use crate::mem::dma::DomainId;
use crate::mem::page::PAGE_SIZE;
use crate::packet::mem_model::{Carried, MemModel};

/// The memory of a frame's first buffer: the types of XDP's memory model. Linux: `enum xdp_mem_type`.
#[derive(Debug)]
#[non_exhaustive]
pub enum Memory {
    /// A buffer of a pool.
    Pool(PageBuf),
    /// A page of ordinary memory.
    Page(Page),
    /// A page of ordinary memory with several owners.
    Shared(SharedPage),
    /// Memory of the caller's.
    External(External),
}

const _: () = assert!(size_of::<Memory>() == 24, "a frame is 48 bytes");

impl Memory {
    /// What kind it is.
    pub fn mem_type(&self) -> MemType {
        match self {
            Self::Pool(_) => MemType::Pool,
            Self::Page(_) => MemType::Page,
            Self::Shared(_) => MemType::SharedPage,
            Self::External(_) => MemType::External,
        }
    }

    /// The id that it carries; `None` for pages that were made without a model.
    pub fn mem_id(&self) -> Option<MemId> {
        match self {
            Self::Pool(buffer) => Some(buffer.pool.mem_id),
            Self::Page(page) => page.mem_id(),
            Self::Shared(page) => page.0.mem_id(),
            Self::External(external) => Some(external.model.mem_id()),
        }
    }

    /// The first domain of its pool; `None` for memory that no device knows.
    pub fn domain(&self) -> Option<DomainId> {
        match self {
            Self::Pool(buffer) => buffer.pool.mappings.first().map(|mapping| mapping.id()),
            _ => None,
        }
    }

    /// All its bytes, or `None` for memory that the CPU cannot read.
    #[inline]
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Pool(buffer) => buffer.bytes(),
            Self::Page(page) => Some(page.bytes()),
            Self::Shared(page) => Some(page.bytes()),
            Self::External(external) => Some(external.bytes()),
        }
    }

    /// All its bytes for writing, or `None` for memory that the CPU cannot read, and for a page that others
    /// share.
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
    /// A page of zeroes that carries no id.
    pub fn new() -> Self {
        Self { memory: Box::new(PageMemory([0; PAGE_SIZE])), model: None }
    }

    /// A page of zeroes that carries the id of its model.
    pub fn of(model: &MemModel) -> Self {
        Self { model: Some(model.carried()), ..Self::new() }
    }

    /// The id that it carries.
    pub fn mem_id(&self) -> Option<MemId> {
        self.model.as_ref().map(Carried::mem_id)
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.memory.0
    }

    /// Its bytes, for writing.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory.0
    }

    /// Makes the page shareable; allocates a count.
    pub fn into_shared(self) -> SharedPage {
        SharedPage(Arc::new(self))
    }
}

/// A page of ordinary memory that all clones share. Linux: memory of `MEM_TYPE_PAGE_SHARED`.
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
    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        self.0.bytes()
    }

    /// Its bytes for writing, unless another shares them.
    pub fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        Arc::get_mut(&mut self.0).map(Page::bytes_mut)
    }

    /// The id that it carries.
    pub fn mem_id(&self) -> Option<MemId> {
        self.0.mem_id()
    }
}

/// Memory of the caller's, which the callback of its [`MemModel`] takes back.
#[derive(Debug)]
#[repr(C)]
pub struct External {
    start: NonNull<u8>,
    model: Carried,
    len: u32,
    spare: Spare,
}

/// Takes one value of a byte, and leaves the others to say which kind a [`Memory`] is.
#[derive(Debug)]
#[repr(u8)]
enum Spare {
    Only,
}

// SAFETY: I1. It owns its bytes alone, and the caller who gave them promised that any thread may use them and
// give them back.
unsafe impl Send for External {}
// SAFETY: through a shared reference bytes can only be read.
unsafe impl Sync for External {}

impl External {
    /// Takes the memory, or refuses and leaves it with the caller: of 4 GiB and more, and without a callback.
    ///
    /// # Safety
    /// * The memory is initialised, and stays there until the callback is given it.
    /// * Nobody else touches it until then.
    /// * Any thread may touch it.
    pub(crate) unsafe fn new(model: &MemModel, memory: NonNull<[u8]>) -> Option<Self> {
        let len = u32::try_from(memory.len()).ok()?;
        let takes_back = model.takes_back();
        takes_back.then(|| Self { start: memory.cast(), model: model.carried(), len, spare: Spare::Only })
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: I1. The bytes are this one's alone and there until they are given back, as `new` was
        // promised.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len as usize) }
    }

    /// Its bytes, for writing.
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
