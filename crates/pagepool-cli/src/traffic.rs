//! Moves packets: a thread's polling loop, what it counts, and the commands on interfaces (`drop`, `echo`,
//! `forward`, `gen`). `demo` and `workshop/soak` use the loop and the figures.
//!
//! What   a command on interfaces is a [`command::TrafficCommand`]: a plan, and what each thread does with
//!        packets. Everything else is shared.
//! How    `sockets` queries the kernel, refuses an interface that the machine depends on, and opens a socket
//!        and a pool for each queue over one memory. `poll_loop` is the thread that works on queues, and
//!        `shared_state` what threads publish. `figures` computes from that. `run` has the phases of a run.

pub(crate) mod capture;
pub(crate) mod command;
pub mod figures;
pub(crate) mod options;
pub(crate) mod poll_loop;
mod port_sample;
pub mod publish_options;
mod run;
mod shared_state;
pub(crate) mod sockets;
mod watch;

pub use port_sample::{PortSample, sum};
pub use shared_state::{Checked, Phase, RunEnd, Sample, SharedState};
pub use watch::{Trigger, Watch};
