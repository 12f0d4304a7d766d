//! Socket buffers over page-pool memory: Linux's `sk_buff` for authors of network stacks in user space.
//!
//! A packet of a stack is an [`SkBuff`]: a head with room at both ends, and up to 17 fragments. Its memory
//! comes from pools of the crate [`pagepool`], from the allocator, or from the stack's user. Clones share it,
//! and the last one returns every buffer to its pool, on any thread. Merging, cutting and splitting follow
//! Linux's rules and copy no data. Programs that only forward packets need [`pagepool`] alone.
//!
//! ```
//! use pagepool::{Arena, ArenaParams, Pool, PoolParams, XdpBuff};
//! use pagepool_skb::{SkBuff, SkbCache};
//!
//! let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
//! let pool = Pool::new(PoolParams { max_len: 1514, ..Default::default() }, arena)?.bind();
//! let cache = SkbCache::new(1024)?; // for 1024 packets at once, not counting clones
//!
//! let received = XdpBuff::received(pool.alloc_page().unwrap(), 1514).unwrap();
//! let mut packet = SkBuff::from_buff(&cache, received).unwrap();
//! packet.pull(14 + 20 + 20).unwrap(); // Ethernet, IP and TCP
//! let kept = packet.clone(); // one atomic operation
//! drop(packet);
//! assert_eq!((kept.len(), pool.inflight().out), (1460, 1));
//! drop(kept);
//! assert_eq!(pool.inflight().out, 0);
//! # Ok::<(), pagepool::Error>(())
//! ```
//!
//! # The parts
//!
//! | to | use |
//! |---|---|
//! | make a packet | [`SkBuff::from_buff`], [`SkBuff::from_frame`], [`SkBuff::with_capacity`] |
//! | limit the number of packets | [`SkbCache`] |
//! | add memory | [`SkBuff::add_frag`] with an [`SkbMemory`]; your own: [`SkbMemory::owned`] |
//! | write headers | [`SkBuff::push`], [`SkBuff::put`], [`SkBuff::cow_head`] |
//! | consume data | [`SkBuff::pull`], [`SkBuff::trim`], [`SkBuff::make_linear`], [`SkBuff::copy_bits`] |
//! | share, divide, merge | `clone`, [`SkBuff::split`], [`SkBuff::try_coalesce`] |
//! | send | [`SkBuff::chunks`]; to a device [`SkBuff::head_dma_addr_in`], [`SkbFrag::dma_addr_in`] |
//!
//! # Features
//!
//! * `bytes`: packets as `bytes::Bytes`, without a copy.
//!
//! # For maintainers
//!
//! The life of a packet:
//!
//! 1. `SkBuff::from_frame` takes a block of the `SkbCache` (one compare-and-swap) and moves the frame's
//!    buffers into it: the first becomes the head, the others fragments. The packet is 32 bytes: the block's
//!    number, and where its data lies in the head.
//! 2. The stack moves the ends of the head and consumes fragments from the front. A consumed fragment returns
//!    at once.
//! 3. `clone` counts one more reference to the block, and marks its fragments as shared. From then on nothing
//!    that the clones share changes: `push` and `put` fail. Before a packet's fragments change, it gets its
//!    own block, with a copy of the head's bytes and a reference to each fragment.
//! 4. A reference to a fragment of a shared block is a `SharedBuf`: one atomic operation in the page's record
//!    (for borrowed memory, in the count of its `SkbOwner`). The block's own handles are plain. Before
//!    the thread with the last reference drops marked ones, it makes them shared, as they were counted.
//! 5. `try_coalesce` moves the fragments of an uncloned packet, and its head if that lies in a pool's buffer.
//!    Of a cloned packet it takes references. The rules are Linux's.
//! 6. The last clone returns every buffer, on any thread, and puts the block back.
//! 7. The last handle of an `SkbCache` closes it. The last block put back frees its memory (see `cache.rs`).
//!    Packets take no reference to the cache.
//!
//! The files, lowest first: `frag` and `frags` are the fragments, `block` is what clones share, `cache` has
//! the blocks, `block_ref` counts references to one. Only these have unsafe code. Their SAFETY comments cite
//! the invariants of `ARCHITECTURE.md` by number. `sk_buff` is the packet. On top, `head` makes room at its
//! ends, `pull` cuts them, `split` divides a packet, `coalesce` merges two, `read` copies bytes out, `bytes`
//! turns packets into `Bytes`.

mod block;
mod block_ref;
#[cfg(all(feature = "bytes", not(loom)))]
mod bytes;
mod cache;
mod coalesce;
mod error;
mod frag;
mod frags;
mod head;
mod head_memory;
mod pull;
mod read;
mod sk_buff;
mod split;

pub use cache::SkbCache;
pub use coalesce::Coalesced;
pub use error::SkbError;
pub use frag::{SkbFrag, SkbMemory, SkbOwner};
pub use sk_buff::SkBuff;
