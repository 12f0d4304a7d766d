//! Frames that the kernel itself makes, by running an XDP program on copies of one.

use std::os::fd::{AsFd, OwnedFd};

use pagepool_link::{LinkError, Netlink};

use crate::sys::bpf::{self, Insn};

/// An XDP program that sends copies of a frame out of one interface, bypassing sockets.
#[derive(Debug)]
pub(crate) struct LiveFrames {
    program: OwnedFd,
}

impl LiveFrames {
    /// Loads it for an interface of the calling thread's namespace.
    pub(crate) fn load(link: &str) -> Result<Self, LinkError> {
        let index = Netlink::open()?.link(link)?.index;
        let about = || format!("sending frames by XDP to interface {link:?} requires CAP_BPF and Linux 5.18");
        let program = bpf::load_xdp(&redirect_to(index));
        let program = program.map_err(|error| LinkError::call("bpf(BPF_PROG_LOAD)", about(), error))?;
        Ok(Self { program })
    }

    /// Sends `count` copies, and returns when the driver has accepted or dropped them.
    pub(crate) fn send(&self, frame: &[u8], count: u32) -> Result<(), LinkError> {
        bpf::run_live(self.program.as_fd(), frame, count).map_err(|error| {
            let size = frame.len();
            let about = format!(
                "sending {count} frames of {size} bytes requires Linux 5.18 and frames of at most about 3400 \
                 bytes"
            );
            LinkError::call("bpf(BPF_PROG_RUN)", about, error)
        })
    }
}

fn redirect_to(index: u32) -> [Insn; 4] {
    let op = |code, to, imm| Insn { code, registers: to, offset: 0, imm };
    [
        op(0xb7, 1, index.cast_signed()), // r1 = index
        op(0xb7, 2, 0),                   // r2 = 0
        op(0x85, 0, 23),                  // r0 = bpf_redirect(r1, r2)
        op(0x95, 0, 0),                   // return r0
    ]
}
