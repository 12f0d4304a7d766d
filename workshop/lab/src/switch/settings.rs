//! What a test sets, and what it shares with the switch's thread.

use std::collections::{BTreeMap, VecDeque};

/// The feature bit behind which the protocol's own features are.
pub(super) const PROTOCOL_FEATURES: u64 = 1 << 30;
pub(super) const EVENT_INDEX: u64 = 1 << 29;
pub(super) const MERGED_BUFFERS: u64 = 1 << 15;
pub(super) const VERSION_1: u64 = 1 << 32;
/// Features of the protocol: several pairs of queues, and acknowledgements.
pub(super) const MULTI_QUEUE: u64 = 1 << 0;
pub(super) const REPLY_ACK: u64 = 1 << 3;

/// A packet on a pair of queues.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    /// The pair.
    pub pair: u16,
    /// The header's first ten bytes: all of it except the number of buffers.
    pub header: [u8; 10],
    /// The packet.
    pub bytes: Vec<u8>,
}

impl From<&[u8]> for Frame {
    fn from(bytes: &[u8]) -> Self {
        Self { bytes: bytes.to_vec(), ..Self::default() }
    }
}

/// What the switch does with packets of the front end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Work {
    /// Keeps them for [`FakeSwitch::receive`](super::FakeSwitch::receive).
    #[default]
    Keep,
    /// Drops them.
    Drop,
    /// Sends them back on their pair.
    Echo,
    /// Takes none: the front end's queue becomes full.
    Nothing,
}

/// What goes wrong when a message with this number (see [`request`](crate::request)) arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It answers nothing and moves no packets any more, until the front end closes the connection.
    Silent(u32),
    /// It closes the connection.
    Close(u32),
    /// It does not do what the message says. It says so if the front end waits for an acknowledgement.
    Refuse(u32),
    /// It answers another message.
    Nonsense(u32),
}

/// What is wrong in everything that the switch completes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// The used index is that much too large.
    Index(u16),
    /// The used entry is for this head.
    Head(u32),
    /// The used entry has this length.
    Length(u32),
    /// The header of a packet says that it has so many buffers.
    Buffers(u16),
    /// Each chain is completed twice.
    Twice,
}

/// What the switch is.
#[derive(Clone, Debug)]
pub struct SwitchParams {
    /// What it does with packets of the front end.
    pub work: Work,
    /// The features that it offers.
    pub features: u64,
    /// The features of the protocol that it offers.
    pub protocol_features: u64,
    /// Its pairs of queues.
    pub pairs: u16,
    /// What goes wrong from the beginning.
    pub fault: Option<Fault>,
}

impl Default for SwitchParams {
    fn default() -> Self {
        Self {
            work: Work::default(),
            features: VERSION_1 | EVENT_INDEX | MERGED_BUFFERS | PROTOCOL_FEATURES,
            protocol_features: MULTI_QUEUE | REPLY_ACK,
            pairs: 4,
            fault: None,
        }
    }
}

/// What the switch has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SwitchCounts {
    /// Connections ever made.
    pub connections: u64,
    /// Connections that have ended.
    pub ended: u64,
    /// Messages received.
    pub messages: u64,
    /// Packets taken from the front end.
    pub taken: u64,
    /// Packets put into the front end's buffers.
    pub delivered: u64,
}

/// What the test and the thread share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) params: SwitchParams,
    pub(super) work: Work,
    pub(super) fault: Option<Fault>,
    pub(super) lie: Option<Lie>,
    /// Fill the rings with nonsense that follows from this.
    pub(super) scribble: Option<u64>,
    pub(super) disconnect: bool,
    pub(super) stop: bool,
    /// How often the test has asked that all be moved, and the last of these times after which all was.
    pub(super) settle: u64,
    pub(super) settled: u64,
    pub(super) outbound: BTreeMap<u16, VecDeque<Frame>>,
    pub(super) inbound: VecDeque<Frame>,
    pub(super) counts: SwitchCounts,
}

impl Shared {
    pub(super) fn new(params: SwitchParams) -> Self {
        Self {
            work: params.work,
            fault: params.fault,
            params,
            lie: None,
            scribble: None,
            disconnect: false,
            stop: false,
            settle: 0,
            settled: 0,
            outbound: BTreeMap::new(),
            inbound: VecDeque::new(),
            counts: SwitchCounts::default(),
        }
    }
}
