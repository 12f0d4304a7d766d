//! `pagepool-soak`: forwards at full load for minutes, while links and peers fail.
//!
//! ```text
//!   peer process  far0 ======= near0  forwarding loop  near1 ======= far1  peer process
//! ```
//!
//! What   Both peers send numbered frames as fast as they can, and check those that arrive. The four link
//!        ends go down and up in turn; the two peers are killed and restarted in turn.
//! Proof  Every frame is accounted for by its content: it arrived unchanged, or the part of the path that
//!        lost it is known. Failures are: a damaged or repeated frame, an unexplained loss within the
//!        forwarder, a call to the arena, a buffer that is not returned, growing memory or descriptors, and
//!        traffic that does not recover soon.
//! Who    The fault injector's thread changes links and peers; the forwarding loop has its own thread; peers
//!        are child processes that end with this process. Nothing outlives it.

// A panic because text cannot be printed would end a run before it removes its links: see `report::output` of
// the crate `pagepool-cli`.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod arrivals;
mod counts;
mod fault_injector;
mod flow;
mod holdings;
mod live;
mod options;
mod outcome;
mod peer;
mod peer_process;
mod run;
mod schedule;
mod sys;

use std::process::ExitCode;

use crate::options::SoakOptions;

fn main() -> ExitCode {
    pagepool_cli::program::main::<SoakOptions>()
}
