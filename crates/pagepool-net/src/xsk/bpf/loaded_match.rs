//! The XDP program of an expression, run over frames without an interface: for tests.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use super::assembler::{LEAVE, set};
use super::steer::steer;
use crate::steering::Match;
use crate::sys::bpf as sys;

const XDP_DROP: u32 = 1;
const XDP_PASS: u32 = 2;

/// The XDP program that decides by a [`Match`], as the kernel runs it over frames of the caller's. It
/// requires what [`Redirect::steer`](crate::Redirect::steer) does.
#[derive(Debug)]
pub struct LoadedMatch(OwnedFd);

impl LoadedMatch {
    /// Has the kernel check and load it.
    pub fn new(by: &Match) -> io::Result<Self> {
        let program = steer(by, &[set(0, XDP_DROP as i32), LEAVE]);
        sys::load(&program, sys::Kind::Xdp { frags: false }).map(Self)
    }

    /// Whether it takes a frame, of 14 bytes at least and of 3,000 at most.
    pub fn takes(&self, frame: &[u8]) -> io::Result<bool> {
        match sys::run_frame(self.0.as_fd(), frame)? {
            XDP_DROP => Ok(true),
            XDP_PASS => Ok(false),
            other => Err(io::Error::other(format!("the program ended with {other}"))),
        }
    }
}
