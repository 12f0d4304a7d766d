//! For tests: the XDP program of an expression, without an interface.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use super::steer::steer;
use crate::steering::Match;
use crate::sys::bpf as sys;
use crate::sys::bpf::assembler::{LEAVE, set};

const XDP_DROP: u32 = 1;
const XDP_PASS: u32 = 2;

/// The XDP program of a [`Match`], run on the caller's frames. Requires the capabilities of
/// [`Redirect::steer`](crate::Redirect::steer).
#[derive(Debug)]
pub struct LoadedMatch(OwnedFd);

impl LoadedMatch {
    /// Makes the kernel check and load the program.
    pub fn new(by: &Match) -> io::Result<Self> {
        let program = steer(by, &[set(0, XDP_DROP as i32), LEAVE]);
        sys::load(&program, sys::Kind::Xdp { frags: false }).map(Self)
    }

    /// Whether the program takes a frame of 14 to 3,000 bytes.
    pub fn takes(&self, frame: &[u8]) -> io::Result<bool> {
        match sys::run_frame(self.0.as_fd(), frame)? {
            XDP_DROP => Ok(true),
            XDP_PASS => Ok(false),
            other => Err(io::Error::other(format!("the program ended with {other}"))),
        }
    }
}
