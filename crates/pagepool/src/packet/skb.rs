//! Packets of network stacks: [`SkBuff`](crate::SkBuff), its head, its fragments, its clones.
//!
//! Nothing else in this crate uses them. A TCP/IP stack over the pool does; forwarding needs none of them.
//!
//! The life of a packet:
//!
//! 1. `SkBuff::from_frame` takes a block of the `SkbCache` (one compare-and-swap) and moves the frame's
//!    buffers into it: the first is the head, the others are fragments. The packet is 32 bytes: the block's
//!    number, and where its data lies in the head.
//! 2. The stack moves the ends of the head and consumes fragments from the front; a consumed fragment returns
//!    at once.
//! 3. `clone` counts one more reference to the block, and marks the block's fragments as shared. From then on
//!    nobody changes what the clones share: `push` and `put` refuse, and what changes fragments first takes a
//!    block of its own, with a copy of the head's bytes and a reference to each fragment.
//! 4. A reference to a fragment of a shared block is a `SharedBuf`: one atomic operation in the page's
//!    record. (For borrowed memory it is a count of its `SkbOwner`.) The block's own handles are plain ones;
//!    because of the mark, the last thread that has the block turns them into shared ones before it drops
//!    them. So each handle is dropped as it was counted, in every order.
//! 5. `try_coalesce` moves the fragments of an uncloned packet, its head too if it lies in a pool's buffer,
//!    and takes references to those of a cloned one. The rules are Linux's.
//! 6. The last clone returns every buffer, on whichever thread, and puts the block back.
//! 7. The last handle of an `SkbCache` closes its slab and counts the blocks that are out. The last of them
//!    to be put back frees the memory; a packet holds no count of the cache.
//!
//! The files, lowest first: `frag` and `frags` are the fragments, `block` is what clones share, `cache` has
//! the blocks, `block_ref` counts references to one. These have all the unsafe code. `sk_buff` is the packet;
//! over it `head` makes room at the ends, `pull` cuts from them, `split` divides a packet, `coalesce` merges
//! two, `read` copies bytes out.

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
