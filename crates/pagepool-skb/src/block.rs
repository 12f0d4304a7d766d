//! What the clones of a packet share: its head and its fragments.
//!
//! What   [`Block`] is Linux's `skb_shared_info`, outside of the packet's memory, with counted references:
//!        see [`BlockRef`](crate::block_ref::BlockRef).
//! How    its fragments are plain handles. The first clone only marks them as shared. The thread with the
//!        last reference makes them shared buffers before it changes or drops them: see step 4 in `lib.rs`.

use std::ops::Range;

use pagepool::internal::{AtomicBool, AtomicU32, Ordering};

use crate::frags::Frags;
use crate::head_memory::{Head, INSIDE};

/// The data that the clones of a packet share.
pub(crate) struct Block {
    pub(crate) info: BlockInfo,
    /// Zeroed before the first use, then written as bytes: always initialised.
    inside: [u8; INSIDE],
}

pub(crate) struct BlockInfo {
    pub(crate) refs: AtomicU32,
    /// The fragments have readers besides this block.
    pub(crate) shared: AtomicBool,
    pub(crate) head: Head,
    pub(crate) frags: Frags,
}

const _: () = assert!(cfg!(loom) || size_of::<Block>() == 1096, "SkbCache::new says what a block costs");

impl Block {
    #[inline]
    pub(crate) fn head_bytes(&self) -> &[u8] {
        match &self.info.head {
            Head::Inside => &self.inside,
            Head::Heap(bytes) => bytes,
            Head::Pool(buffer, end) => buffer.bytes().map_or(&[], |bytes| &bytes[..*end as usize]),
        }
    }

    #[inline]
    pub(crate) fn head_bytes_mut(&mut self) -> &mut [u8] {
        self.head_and_frags().0
    }

    pub(crate) fn head_and_frags(&mut self) -> (&mut [u8], &Frags) {
        let head = match &mut self.info.head {
            Head::Inside => &mut self.inside[..],
            Head::Heap(bytes) => bytes,
            Head::Pool(buffer, end) => {
                let end = *end as usize;
                buffer.bytes_mut().map_or(&mut [][..], |bytes| &mut bytes[..end])
            }
        };
        (head, &self.info.frags)
    }

    pub(crate) fn head(&self) -> &Head {
        &self.info.head
    }

    /// Replaces the head; returns the old one.
    pub(crate) fn set_head(&mut self, head: Head) -> Head {
        std::mem::replace(&mut self.info.head, head)
    }

    /// Replaces the head, copies a range of the old one to an offset in it, and returns the old one.
    pub(crate) fn move_head(&mut self, head: Head, from: Range<usize>, to: usize) -> Head {
        let room = to..to + from.len();
        let old = self.set_head(head);
        match (&old, &mut self.info.head) {
            (Head::Inside, Head::Inside) => self.inside.copy_within(from, to),
            (Head::Inside, Head::Heap(bytes)) => bytes[room].copy_from_slice(&self.inside[from]),
            (Head::Heap(bytes), _) => self.head_bytes_mut()[room].copy_from_slice(&bytes[from]),
            (Head::Pool(buffer, _), _) => {
                let bytes = buffer.bytes().unwrap_or(&[]);
                self.head_bytes_mut()[room].copy_from_slice(&bytes[from]);
            }
            (Head::Inside, _) => debug_assert!(false, "a head moves to ordinary memory"),
        }
        old
    }

    #[inline]
    pub(crate) fn frags(&self) -> &Frags {
        &self.info.frags
    }

    #[inline]
    pub(crate) fn frags_mut(&mut self) -> &mut Frags {
        &mut self.info.frags
    }

    /// Makes every fragment exclusive to this block or a shared buffer, so that the block can give it up.
    #[inline]
    pub(crate) fn settle(&mut self) {
        if self.info.shared.load(Ordering::Relaxed) {
            self.info.frags.share();
            self.info.shared.store(false, Ordering::Relaxed);
        }
    }

    pub(crate) fn end(&mut self) {
        self.settle();
        while self.info.frags.pop().is_some() {}
        self.info.head = Head::Inside;
    }
}
