//! Copies many packets of this process into the kernel with one call of a tc program.
//!
//! What   an array of entries (address and length, like those of an AF_XDP ring) is in our memory. One
//!        `BPF_PROG_RUN` runs the [program] on a packet that it overwrites for each entry. A copy of it
//!        leaves by the interface, or goes up its stack, as if it had just arrived.
//! Who    any thread in the interface's network namespace.
//! Bound  a call runs without softirqs on its CPU. It copies at most 64 packets and 96 KiB.
//! Needs  `CAP_BPF`, `CAP_NET_ADMIN`, and `CAP_PERFMON`, because the program reads this process's memory.

pub(crate) mod program;

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use crate::sys::bpf as sys;
use program::{BatchResult, Copies, MOST, SHORTEST};

/// Most bytes of the packet that a program is run on. The kernel accepts a page less its own data, up to a
/// quarter.
const LONGEST_FIRST: u32 = 2048;
/// Most bytes per call: softirqs wait no longer than for 64 packets of MTU 1500.
const MOST_BYTES: u32 = 96 << 10;

/// The loaded program.
#[derive(Debug)]
pub(crate) struct BpfRun {
    program: OwnedFd,
    memory: u64,
}

/// The packets of one call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunBatch {
    pub(crate) count: usize,
    /// The longest. All packets of a call are charged its size, and have its EtherType while they leave.
    longest: (u64, u32),
}

impl RunBatch {
    /// As many of these packets (address and length) as one call copies. `None` if no packet is long enough.
    pub(crate) fn of(packets: impl Iterator<Item = (u64, u32)>) -> Option<Self> {
        let (mut bytes, mut count, mut longest) = (0, 0, (0, 0));
        for (addr, len) in packets.take(MOST) {
            bytes += len;
            if bytes > MOST_BYTES && count > 0 {
                break;
            }
            count += 1;
            if len >= longest.1 {
                longest = (addr, len);
            }
        }
        (longest.1 >= SHORTEST).then_some(Self { count, longest })
    }
}

impl BpfRun {
    /// Loads the program. An error names the call.
    pub(crate) fn load(what: &Copies) -> Result<Self, (&'static str, io::Error)> {
        let scratch = sys::create_scratch(what.scratch()).map_err(|e| ("bpf(BPF_MAP_CREATE)", e))?;
        let code = program::assemble(what, scratch.as_raw_fd()); // the program keeps the map
        let program = sys::load(&code, sys::Kind::Packet).map_err(|e| ("bpf(BPF_PROG_LOAD)", e))?;
        Ok(Self { program, memory: what.memory })
    }

    /// Copies a batch, whose entries begin with the one numbered `first`. `None`: this thread is in another
    /// network namespace than the interface.
    pub(crate) fn run(&self, batch: RunBatch, first: u32) -> io::Result<Option<BatchResult>> {
        let (addr, len) = batch.longest;
        let packet = (self.memory.wrapping_add(addr), len.min(LONGEST_FIRST));
        sys::run_packet(self.program.as_fd(), packet, [first, batch.count as u32]).map(BatchResult::of)
    }
}
