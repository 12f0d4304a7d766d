//! Operations on pools, as data: one list for the property test, the fuzzer and the model checker.

use pagepool::{Holders, OnBusy};

/// One call, or a short sequence of calls, on one of two pools that share their memory. The first number
/// selects the object, modulo their count; `n` is the second. An operation without an object does nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Op {
    /// `alloc_page` on a pool.
    AllocPage(u8),
    /// `alloc_bulk` of `n` pages.
    AllocBulk(u8, u8),
    /// `alloc_batch` of `n` pages.
    AllocBatch(u8, u8),
    /// `alloc_frag` of `n` fourteenths of a page, and some bytes.
    AllocFrag(u8, u8),
    /// `alloc` of `n` fourteenths of a page, and some bytes.
    Alloc(u8, u8),
    /// Drops a buffer here.
    Drop(u8),
    /// Drops a buffer on the other thread.
    DropRemote(u8),
    /// Drops a buffer here while its pool is bound to no thread.
    DropUnbound(u8),
    /// `put_bulk` of `n` buffers of both pools, from one on.
    PutBulk(u8, u8),
    /// `put_bulk` of `n` buffers of both pools, from one on, on the other thread.
    PutBulkRemote(u8, u8),
    /// `put_ring_bulk` of `n` buffers.
    PutRingBulk(u8, u8),
    /// `put_ring` of a buffer.
    PutRing(u8),
    /// `put_ring` of a buffer on the other thread.
    PutRingRemote(u8),
    /// `recycle_direct` of a buffer, by its own pool, and by the other one, which refuses.
    RecycleDirect(u8),
    /// Removes one page from a batch.
    BatchPop(u8),
    /// Drops a batch here.
    DropBatch(u8),
    /// Drops a batch on the other thread.
    DropBatchRemote(u8),
    /// Takes a `PageRef` to a buffer's page.
    PageRef(u8),
    /// Drops a `PageRef`.
    DropPageRef(u8),
    /// `into_shared`.
    Share(u8),
    /// Clones a shared buffer.
    CloneShared(u8),
    /// Drops a shared buffer here.
    DropShared(u8),
    /// Drops a shared buffer on the other thread.
    DropSharedRemote(u8),
    /// `try_unique` of a shared buffer.
    TryUnique(u8),
    /// `split_off`, at `n` two hundredths of the buffer.
    SplitOff(u8, u8),
    /// `split_off`, at `n` two hundredths of the buffer, on the other thread.
    SplitOffElsewhere(u8, u8),
    /// `into_raw`.
    IntoRaw(u8),
    /// `alloc_addr_bulk` of `n` pages in a pool, at most 15.
    AllocAddrs(u8, u8),
    /// `put_addr_bulk` of up to 15 neighbours in the list of raw buffers; on the other thread if `n` is above
    /// 127.
    PutAddrs(u8, u8),
    /// `from_raw` at an address `n` sixteenths into the buffer, then at the buffer's address again.
    FromRaw(u8, u8),
    /// `from_raw` by the wrong pool, and of an address that no pool has.
    FromRawWrong(u8),
    /// `defer` of a buffer, in use by its user or not.
    Defer(u8, u8),
    /// Ends the use of a deferred buffer, or of its released memory.
    UserDone(u8),
    /// `poll_deferred` of a pool.
    PollDeferred(u8),
    /// `update_nid` to one of two nodes.
    UpdateNid(u8, u8),
    /// Binds the pool on the other thread, allocates and drops a page there, and binds it here again.
    BindElsewhere(u8),
    /// Ends the other thread; the next one is a new thread.
    ThreadEnds,
    /// `shrink` of a pool to a few pages.
    Shrink(u8, u8),
    /// `ask_to_shrink` of a pool to a few pages, on the other thread.
    AskToShrink(u8, u8),
    /// Destroys a pool; buffers that are out return late.
    Destroy(u8),
}

impl Op {
    /// Number of kinds of operations.
    pub const KINDS: u8 = 48;

    /// Decodes an operation from three bytes: kind, object, `n`. Destroying is rare.
    pub fn from_bytes([what, which, amount]: [u8; 3]) -> Self {
        match what % Self::KINDS {
            0 | 1 => Self::AllocPage(which),
            2 => Self::AllocBulk(which, amount),
            3 => Self::AllocBatch(which, amount),
            4 | 5 => Self::AllocFrag(which, amount),
            6 => Self::Alloc(which, amount),
            7 => Self::Drop(which),
            8 | 9 => Self::DropRemote(which),
            10 => Self::DropUnbound(which),
            11 => Self::PutBulk(which, amount),
            12 => Self::PutBulkRemote(which, amount),
            13 => Self::PutRingBulk(which, amount),
            14 => Self::PutRing(which),
            15 => Self::PutRingRemote(which),
            16 => Self::RecycleDirect(which),
            17 => Self::BatchPop(which),
            18 => Self::DropBatch(which),
            19 => Self::DropBatchRemote(which),
            20 => Self::PageRef(which),
            21 | 22 => Self::DropPageRef(which),
            23 => Self::Share(which),
            24 => Self::CloneShared(which),
            25 => Self::DropShared(which),
            26 => Self::DropSharedRemote(which),
            27 => Self::IntoRaw(which),
            28 => Self::FromRaw(which, amount),
            29 => Self::FromRawWrong(which),
            30 => Self::UpdateNid(which, amount),
            31 => Self::BindElsewhere(which),
            32 => Self::ThreadEnds,
            33 | 34 => Self::Defer(which, amount),
            35 | 36 => Self::UserDone(which),
            37 => Self::PollDeferred(which),
            38 => Self::TryUnique(which),
            39 | 40 => Self::SplitOff(which, amount),
            41 | 42 => Self::SplitOffElsewhere(which, amount),
            43 => Self::Shrink(which, amount),
            44 => Self::AskToShrink(which, amount),
            45 => Self::AllocAddrs(which, amount),
            46 => Self::PutAddrs(which, amount),
            _ if amount < 32 => Self::Destroy(which),
            _ => Self::AllocPage(which),
        }
    }

    /// Decodes the operations in these bytes; ignores up to two bytes at the end.
    pub fn list(bytes: &[u8]) -> Vec<Self> {
        bytes.as_chunks::<3>().0.iter().map(|op| Self::from_bytes(*op)).collect()
    }
}

/// Sizes of both pools: small, to reach every limit often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    /// log2 of base pages per page.
    pub order: u8,
    /// Pages that both pools share.
    pub pages: usize,
    /// Pages in the cache.
    pub cache: usize,
    /// Pages in a refill.
    pub refill: usize,
    /// Slots in the ring.
    pub ring: usize,
    /// Lanes of a pool.
    pub lanes: usize,
    /// Slots in a lane.
    pub lane: usize,
    /// Alignment of fragments in bytes.
    pub frag_align: usize,
    /// Capacity of the deferred queue.
    pub defer_capacity: usize,
    /// What a poll does with a buffer still in use.
    pub on_busy: OnBusy,
    /// What the pools record of pages that are out.
    pub holders: Holders,
}

impl Setup {
    /// Decodes a setup from four bytes.
    pub fn from_bytes([pages, cache, ways, lane]: [u8; 4]) -> Self {
        let cache_size = 1 + (cache as usize & 7);
        let defer_capacity = [0, 1, 3, 8][(ways as usize >> 6) & 3];
        let on_busy = match (lane >> 2) & 7 {
            _ if defer_capacity == 0 => OnBusy::Keep,
            0..3 => OnBusy::Keep,
            3..5 => OnBusy::Skip { ahead: 1 + (lane as usize >> 5 & 1) },
            _ => OnBusy::Release,
        };
        let holders = match pages >> 5 & 3 {
            0 | 1 => Holders::Off,
            2 => Holders::Ages,
            _ => Holders::Sites { stacks: None },
        };
        Self {
            order: pages >> 7,
            pages: 2 + (pages as usize & 31),
            cache: cache_size,
            refill: 1 + (cache as usize >> 4) % cache_size,
            ring: 1 + (ways as usize & 7),
            lanes: (ways as usize >> 4) & 3,
            lane: 2 << (lane & 3),
            frag_align: if lane & 64 == 0 { 64 } else { 8 },
            defer_capacity,
            on_busy,
            holders,
        }
    }
}
