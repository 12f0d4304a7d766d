//! Packets of network stacks: [`SkBuff`](crate::SkBuff), its head, its fragments, its clones.
//!
//! Nothing else in this crate uses it. A TCP/IP stack over the pool does; XDP-like forwarding needs none of
//! it.
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
