//! What can be done to packets, as data: one list for the property test and the fuzzer.

/// One operation on some packets. Numbers choose among what there is, modulo; an operation that finds nothing
/// to work on does nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PacketOp {
    /// The device writes a packet into a page and that many further buffers; it becomes a frame.
    Receive(u8, u8),
    /// A frame becomes a packet.
    FromFrame(u8),
    /// Drops a frame, here or on another thread.
    DropFrame(u8, u8),
    /// A packet of ordinary memory.
    Ordinary(u8, u8),
    /// Appends a fragment that the device wrote, of that many sixteenths of a page.
    AddFrag(u8, u8),
    /// Appends ordinary memory.
    AddOrdinary(u8, u8),
    /// Clones a packet.
    Clone(u8),
    /// `split`, at that many sixteenths of its length, and a few bytes more.
    Split(u8, u8),
    /// `try_coalesce` of two.
    Coalesce(u8, u8),
    /// `pull` of that many sixteenths.
    Pull(u8, u8),
    /// `trim` to that many sixteenths.
    Trim(u8, u8),
    /// `push` of that many bytes.
    Push(u8, u8),
    /// `put` of that many bytes.
    Put(u8, u8),
    /// `cow_head` with that many bytes.
    CowHead(u8, u8),
    /// Writes over the head.
    Write(u8),
    /// `make_linear` of that many sixteenths.
    MakeLinear(u8, u8),
    /// `linearize`.
    Linearize(u8),
    /// `unclone`.
    Unclone(u8),
    /// `copy`.
    Copy(u8),
    /// `into_bytes`, if the feature `bytes` is there; a packet or a frame.
    IntoBytes(u8, u8),
    /// Drops one `Bytes`.
    DropBytes(u8),
    /// Drops a packet here.
    Drop(u8),
    /// Drops a packet on another thread.
    DropRemote(u8),
    /// Another thread reads a packet, cuts that many sixteenths off, and sends it back.
    PullElsewhere(u8, u8),
    /// The device sends a packet: reads each of its buffers where it is mapped.
    Send(u8),
    /// The cache's handle goes; another cache is made.
    DropCache,
    /// The pool ends with what is out; another one is made.
    Destroy,
}

impl PacketOp {
    /// Kinds of operation.
    pub const KINDS: u8 = 32;

    /// Every three bytes are an operation: what, on which, how much. Ending pools and caches is made rare.
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

    /// The operations that these bytes stand for; up to two bytes at the end are ignored.
    pub fn list(bytes: &[u8]) -> Vec<Self> {
        bytes.as_chunks::<3>().0.iter().map(|op| Self::from_bytes(*op)).collect()
    }
}

/// Small sizes, so that every limit is met often.
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
    /// The setup that two bytes stand for.
    pub fn from_bytes([sizes, rooms]: [u8; 2]) -> Self {
        Self {
            pages: 8 + (sizes as usize & 31),
            blocks: 1 + (sizes as usize >> 5) * 3,
            chains: 1 + (rooms as usize & 7),
            headroom: (rooms as usize >> 3) * 8,
        }
    }
}
