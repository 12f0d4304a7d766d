//! What a command on interfaces is: its arguments, and what its threads do.

use pagepool_net::{self as net, Attach};

use super::capture::Tap;
use super::interface::Interface;
use super::options::Options;
use super::worker::{Feed, Work};
use crate::engine::socket_sizes::SocketSizes;

/// A command.
pub trait TrafficCommand {
    /// As it is spelt.
    const NAME: &'static str;
    /// What it does that somebody may not want; the name of the interface goes behind it.
    const DOES: &'static str;
    /// Whether packets go out of another interface than they came by, so that offloads matter.
    const WARNS_OF_OFFLOADS: bool = false;

    /// Names of the interfaces that it works on.
    fn interfaces(&self) -> Vec<&str>;

    /// What all commands are told.
    fn options(&self) -> &Options;

    /// Where the program goes that takes packets from the kernel; `None` takes none.
    fn attach(&self) -> Option<Attach>;

    /// How its packets go out, if it sends any.
    fn sending(&self) -> Option<net::TxMode> {
        None
    }

    /// Refuses interfaces on which it cannot work.
    fn check(&self, _: &[Interface]) -> Result<(), String> {
        Ok(())
    }

    /// Longest packet without its Ethernet header.
    fn mtu(&self, interfaces: &[Interface]) -> u32 {
        interfaces.iter().map(|interface| interface.link.mtu).max().unwrap_or(0)
    }

    /// How many numbered frames are looked for, if they are.
    fn expects(&self) -> Option<u64> {
        None
    }

    /// What one of its threads does.
    fn work(&self, thread: &mut Thread<'_>) -> (impl Work, impl Feed);
}

/// One of the threads of a command.
pub struct Thread<'a> {
    pub interfaces: &'a [Interface],
    pub sizes: &'a SocketSizes,
    /// How many threads there are.
    pub threads: usize,
    /// Which interface each of its ports is of.
    pub sides: Vec<usize>,
    /// Where packets are copied to for a file. Who sends takes it; else what is received goes there.
    pub tap: Option<Tap>,
}
