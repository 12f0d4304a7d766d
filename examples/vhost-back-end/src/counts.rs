//! What a back end has done.

use std::fmt;

/// What a queue pair, or all of a back end, has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// How often a front end enabled a queue pair.
    pub connections: u64,
    /// Packets taken from the front end's transmit queues.
    pub taken: u64,
    /// Packets put into its receive queues.
    pub put: u64,
    /// Packets that did not fit into the front end's buffers.
    pub lost: u64,
    /// Chains of descriptors and headers that break the rules.
    pub bad: u64,
}

impl Counts {
    /// The sum.
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            connections: self.connections + other.connections,
            taken: self.taken + other.taken,
            put: self.put + other.put,
            lost: self.lost + other.lost,
            bad: self.bad + other.bad,
        }
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { connections, taken, put, lost, bad } = self;
        write!(f, "{connections} connections, {taken} packets taken, {put} put, {lost} lost, {bad} bad")
    }
}
