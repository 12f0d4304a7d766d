//! For tests: a program of a chain that may change packets.

use std::os::fd::AsRawFd;

use pagepool::Error;
use pagepool_link::XdpMode;

use super::chain::dispatcher::{ADJUST_TAIL, ChainForm, ChainSlot};
use super::chain::member::ChainMember;
use super::chain::not_loaded;
use super::program::XDP_PASS;
use crate::interface::lookup;
use crate::sys::bpf as sys;
use crate::sys::bpf::assembler::{LEAVE, MAP_FD, call, load_64_as, set};

/// An XDP program of a chain that calls the helper for cutting packets, and passes all.
#[derive(Debug)]
pub struct TailAdjuster(ChainMember);

impl TailAdjuster {
    /// Joins the chain of an interface, or begins one. With `third`, a new chain has version 3 of libxdp's
    /// protocol, and is bound to the interface's device or not.
    pub fn join(interface: &str, priority: u32, third: Option<bool>) -> Result<Self, Error> {
        let begins = third.map_or(ChainForm::Second, |bound| ChainForm::Third { bound });
        // A member is recognised by its map.
        let map = sys::create_socket_map(1).map_err(|source| not_loaded("bpf(BPF_MAP_CREATE)", source))?;
        let mut code = load_64_as(2, MAP_FD, [map.as_raw_fd(), 0]).to_vec();
        code.extend([set(2, 0), call(ADJUST_TAIL), set(0, XDP_PASS), LEAVE]);
        let (link, slot) = (lookup::look_up(interface)?, ChainSlot::passing(priority, false));
        let member = ChainMember::load(begins, &link, &[XdpMode::Native], slot, &code)?;
        member.join().map(|()| Self(member))
    }

    /// If the current chain has version 3: whether its dispatcher is bound to the device.
    pub fn third(&self) -> Result<Option<bool>, Error> {
        let form = self.0.form()?;
        Ok(form.and_then(|form| match form {
            ChainForm::Second => None,
            ChainForm::Third { bound } => Some(bound),
        }))
    }

    /// Whether it is no longer in the chain.
    pub fn is_gone(&self) -> bool {
        self.0.is_gone()
    }
}
