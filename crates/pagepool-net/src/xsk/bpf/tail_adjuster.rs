//! A program of a chain that may change packets: for tests.

use pagepool::Error;

use super::assembler::{LEAVE, call, set};
use super::chain::dispatcher::{ADJUST_TAIL, ChainSlot};
use super::chain::member::ChainMember;
use crate::link::{XdpMode, lookup};

const XDP_PASS: i32 = 2;

/// An XDP program beside others that calls the helper by which packets are cut, and passes them all.
#[derive(Debug)]
pub struct TailAdjuster(ChainMember);

impl TailAdjuster {
    /// Joins the chain of an interface.
    pub fn join(interface: &str, priority: u32) -> Result<Self, Error> {
        let code = [set(2, 0), call(ADJUST_TAIL), set(0, XDP_PASS), LEAVE];
        let (link, slot) = (lookup::look_up(interface)?, ChainSlot::passing(priority, false));
        let member = ChainMember::load(&link, &[XdpMode::Native], slot, &code)?;
        member.join().map(|()| Self(member))
    }

    /// Whether it is in the chain no more.
    pub fn is_gone(&self) -> bool {
        self.0.is_gone()
    }
}
