//! Operations on packets, as data: one list for the property test and the fuzzer.

/// One operation on packets. The first number selects the object, modulo their count; `n` is the second. An
/// operation without an object does nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PacketOp {
    /// The device writes a packet into a page and up to 7 further buffers; it becomes a frame.
    Receive(u8, u8),
    /// Converts a frame into a packet.
    FromFrame(u8),
    /// Drops a frame, here or on another thread.
    DropFrame(u8, u8),
    /// Creates a packet of ordinary memory.
    Ordinary(u8, u8),
    /// Appends a fragment that the device wrote; `n` selects its size.
    AddFrag(u8, u8),
    /// Appends ordinary memory.
    AddOrdinary(u8, u8),
    /// Clones a packet.
    Clone(u8),
    /// `split`, at `n` sixteenths of the length plus a few bytes.
    Split(u8, u8),
    /// `try_coalesce` of two packets.
    Coalesce(u8, u8),
    /// `pull` of `n` sixteenths.
    Pull(u8, u8),
    /// `trim` to `n` sixteenths.
    Trim(u8, u8),
    /// `push` of `n` bytes.
    Push(u8, u8),
    /// `put` of `n` bytes.
    Put(u8, u8),
    /// `cow_head` with twice `n` bytes.
    CowHead(u8, u8),
    /// Overwrites the head.
    Write(u8),
    /// `make_linear` of `n` sixteenths.
    MakeLinear(u8, u8),
    /// `make_linear` of all.
    Linearize(u8),
    /// `unclone`.
    Unclone(u8),
    /// `copy`.
    Copy(u8),
    /// `into_bytes` of a packet or a frame.
    IntoBytes(u8, u8),
    /// Drops one `Bytes`.
    DropBytes(u8),
    /// Drops a packet here.
    Drop(u8),
    /// Drops a packet on another thread.
    DropRemote(u8),
    /// Another thread reads a packet, cuts `n` sixteenths off the front, and sends it back.
    PullElsewhere(u8, u8),
    /// The device sends a packet: it reads each mapped buffer.
    Send(u8),
    /// Replaces the cache, and drops its handle.
    DropCache,
    /// Replaces the pool, and destroys it with buffers out.
    Destroy,
}

impl PacketOp {
    /// Number of kinds of operations.
    pub const KINDS: u8 = 32;

    /// Decodes an operation from three bytes: kind, object, `n`. Ending pools and caches is rare.
    pub fn from_bytes([what, which, amount]: [u8; 3]) -> Self {
        match what % Self::KINDS {
            0..=2 => Self::Receive(which, amount),
            3 | 4 => Self::FromFrame(which),
            5 => Self::DropFrame(which, amount),
            6 => Self::Ordinary(which, amount),
            7 => Self::AddFrag(which, amount),
            8 => Self::AddOrdinary(which, amount),
            9 | 10 => Self::Clone(which),
            11 | 12 => Self::Split(which, amount),
            13..=15 => Self::Coalesce(which, amount),
            16 => Self::Pull(which, amount),
            17 => Self::Trim(which, amount),
            18 => Self::Push(which, amount),
            19 => Self::Put(which, amount),
            20 => Self::CowHead(which, amount),
            21 => Self::Write(which),
            22 => Self::MakeLinear(which, amount),
            23 => Self::Linearize(which),
            24 => Self::Unclone(which),
            25 => Self::Copy(which),
            26 => Self::IntoBytes(which, amount),
            27 => Self::DropBytes(which),
            28 => Self::Drop(which),
            29 => Self::DropRemote(which),
            30 => Self::PullElsewhere(which, amount),
            _ if amount < 16 => Self::DropCache,
            _ if amount < 32 => Self::Destroy,
            _ => Self::Send(which),
        }
    }
}

/// Small sizes, to reach every limit often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketSetup {
    /// Pages of the pool.
    pub pages: usize,
    /// Blocks of the cache.
    pub blocks: usize,
    /// Chains of the pool.
    pub chains: usize,
    /// Bytes before the packet in a page.
    pub headroom: usize,
}

impl PacketSetup {
    /// Decodes a setup from two bytes.
    pub fn from_bytes([sizes, rooms]: [u8; 2]) -> Self {
        Self {
            pages: 8 + (sizes as usize & 31),
            blocks: 1 + (sizes as usize >> 5) * 3,
            chains: 1 + (rooms as usize & 7),
            headroom: (rooms as usize >> 3) * 8,
        }
    }
}
