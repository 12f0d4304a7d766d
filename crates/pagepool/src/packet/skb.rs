//! Packets of network stacks: [`SkBuff`](crate::SkBuff), its head, its fragments, its clones.
//!
//! Nothing else in this crate uses them. A TCP/IP stack over the pool does; forwarding does not.
//!
//! The life of a packet:
//!
//! 1. `SkBuff::from_frame` takes a block of the `SkbCache` (one compare-and-swap) and moves the frame's
//!    buffers into it: the first becomes the head, the others fragments. The packet is 32 bytes: the block's
//!    number, and where its data lies in the head.
//! 2. The stack moves the ends of the head and consumes fragments from the front. A consumed fragment returns
//!    at once.
//! 3. `clone` counts one more reference to the block, and marks its fragments as shared. From then on nothing
//!    that the clones share changes: `push` and `put` refuse, and a packet whose fragments shall change first
//!    gets a block of its own, with a copy of the head's bytes and a reference to each fragment.
//! 4. A reference to a fragment of a shared block is a `SharedBuf`: one atomic operation in the page's record
//!    (for borrowed memory, in the count of its `SkbOwner`). The block's own handles are plain. Because of
//!    the mark, the last thread with the block makes them shared before it drops them: each handle is dropped
//!    as it was counted, in any order.
//! 5. `try_coalesce` moves the fragments of an uncloned packet, and its head if that lies in a pool's buffer;
//!    of a cloned packet it takes references. The rules are Linux's.
//! 6. The last clone returns every buffer, on any thread, and puts the block back.
//! 7. The last handle of an `SkbCache` closes it; the last block put back frees its memory (see `cache.rs`).
//!    A packet holds no count of the cache.
//!
//! The files, lowest first: `frag` and `frags` are the fragments, `block` is what clones share, `cache` has
//! the blocks, `block_ref` counts references to one. Only these have unsafe code. `sk_buff` is the packet. On
//! top, `head` makes room at its ends, `pull` cuts them, `split` divides a packet, `coalesce` merges two,
//! `read` copies bytes out.

pub(crate) mod block;
pub(crate) mod block_ref;
pub(crate) mod cache;
pub(crate) mod coalesce;
pub(crate) mod error;
pub(crate) mod frag;
pub(crate) mod frags;
pub(crate) mod head;
pub(crate) mod head_memory;
pub(crate) mod pull;
pub(crate) mod read;
pub(crate) mod sk_buff;
pub(crate) mod split;
