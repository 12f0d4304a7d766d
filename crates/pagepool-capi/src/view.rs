//! What the fast paths read of a pool: a row of a table that is never freed.
//!
//! What   one [`View`] per pool slot, for the functions here and for those that `pagepool.h` compiles into its users. A
//!        token names its row, and the row holds the whole token, so whatever C gives can be looked up.
//! Who    `owner`, and what the addresses lead to, are the owner's thread's: it writes its own mark there and nobody else
//!        does, so comparing needs no order. `busy` is written by the biased thread alone. The rest is written while the
//!        token is 0.
//! Life   addresses in a row hold as long as its token does, and that ends on the owner's thread, or unowned.
//! Layout part of the inline interface: whoever changes it, or `Entry`, or `Directory`, raises `LAYOUT` in inline.rs.

// UNSAFETY: follows the addresses in the row.
#![expect(unsafe_code)]

use std::ffi::c_void;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering::Relaxed};

use crate::ledger::{CHUNK_SHIFT, ChunkRef, IN_CHUNK};
use crate::owner::Own;
use crate::thread::me;
use crate::token::Token;

/// Pools that may be there at once.
pub(crate) const MAX_POOLS: usize = 4096;

/// A pool, for the fast paths.
#[repr(C, align(128))]
pub(crate) struct View {
    /// The pool's token while it is there, else 0.
    pub(crate) token: AtomicU64,
    /// The thread that the pool is bound to, as [`me`] names it, or 0.
    pub(crate) owner: AtomicU64,
    /// The thread that may return buffers without an atomic operation, or a state: see `claim.rs`.
    pub(crate) bias: AtomicU64,
    /// Whether that thread is doing so now.
    pub(crate) busy: AtomicU64,
    pub(crate) count: AtomicPtr<AtomicUsize>,
    pub(crate) pages: AtomicPtr<u32>,
    pub(crate) limit: AtomicUsize,
    /// Where the lives of a page's buffers are written down, by the page's number.
    pub(crate) chunks: AtomicPtr<ChunkRef>,
    pub(crate) alloc_fast: AtomicPtr<AtomicU64>,
    pub(crate) recycle_cached: AtomicPtr<AtomicU64>,
    /// The first word of every buffer of this pool.
    pub(crate) home: AtomicPtr<c_void>,
    pub(crate) own: AtomicPtr<Own>,
    pub(crate) page_size: AtomicU64,
    /// The tokens' places of pieces that ended on other threads: a list through their entries.
    pub(crate) pieces_home: Apart<AtomicU64>,
}

/// A line of its own: other threads write it.
#[repr(align(128))]
pub(crate) struct Apart<T>(pub(crate) T);

const _: () = assert!(size_of::<View>() == 256, "pagepool.h counts views in 256 bytes");
const _: () = assert!(std::mem::offset_of!(View, recycle_cached) == 72, "pagepool.h lists the fields");

/// The rows.
pub(crate) static VIEWS: [View; MAX_POOLS] = [const { View::empty() }; MAX_POOLS];

impl View {
    const fn empty() -> Self {
        Self {
            token: AtomicU64::new(0),
            owner: AtomicU64::new(0),
            bias: AtomicU64::new(0),
            busy: AtomicU64::new(0),
            count: AtomicPtr::new(std::ptr::null_mut()),
            pages: AtomicPtr::new(std::ptr::null_mut()),
            limit: AtomicUsize::new(0),
            chunks: AtomicPtr::new(std::ptr::null_mut()),
            alloc_fast: AtomicPtr::new(std::ptr::null_mut()),
            recycle_cached: AtomicPtr::new(std::ptr::null_mut()),
            home: AtomicPtr::new(std::ptr::null_mut()),
            own: AtomicPtr::new(std::ptr::null_mut()),
            page_size: AtomicU64::new(0),
            pieces_home: Apart(AtomicU64::new(0)),
        }
    }

    /// Whether the calling thread owns the pool.
    #[inline(always)]
    pub(crate) fn is_mine(&self) -> bool {
        self.owner.load(Relaxed) == me()
    }

    /// A page from the cache, with its token; `None` where that takes more.
    #[inline(always)]
    pub(crate) fn alloc(&self, pool: Token) -> Option<Token> {
        if !self.is_mine() || self.token.load(Relaxed) != pool.0 {
            return None;
        }
        // SAFETY: this thread owns the pool, so it is there, and so are its parts.
        let count = unsafe { &*self.count.load(Relaxed) };
        let at = count.load(Relaxed).checked_sub(1)?;
        // SAFETY: as above; entries below the count are initialised.
        let page = unsafe { self.pages.load(Relaxed).add(at).read() };
        // SAFETY: as above; there is a reference for every page of the pool's area.
        let chunk = unsafe { &*self.chunks.load(Relaxed).add((page >> CHUNK_SHIFT) as usize) };
        let token = chunk.begin_life(page & IN_CHUNK)?;
        count.store(at, Relaxed);
        // SAFETY: as above; the owner is the one writer of its counts.
        add_one(unsafe { &*self.alloc_fast.load(Relaxed) });
        Some(token)
    }

    /// Puts a page into the cache if that is a store; says whether it did. For the owner's thread.
    #[inline(always)]
    pub(crate) fn put(&self, page: u32) -> bool {
        // SAFETY: this thread owns the pool, so it is there, and so are its parts.
        let count = unsafe { &*self.count.load(Relaxed) };
        let at = count.load(Relaxed);
        if at >= self.limit.load(Relaxed) {
            return false;
        }
        // SAFETY: as above; there is room for `limit` entries.
        unsafe { self.pages.load(Relaxed).add(at).write(page) };
        count.store(at + 1, Relaxed);
        // SAFETY: as above; the owner is the one writer of its counts.
        add_one(unsafe { &*self.recycle_cached.load(Relaxed) });
        true
    }
}

#[inline(always)]
fn add_one(count: &AtomicU64) {
    count.store(count.load(Relaxed).wrapping_add(1), Relaxed);
}
