//! `pagepool demo`: a packet forwarder in one process, and the proof that its pages go round.
//!
//! Over real interfaces where that can be done, `veth`: between two kernels' TCP. Else in `memory`, which
//! runs anywhere. Both have the same forwarding loop, figures and verdict. `pagepool soak` has the loop and
//! the figures from here, too.

mod consumer;
mod content;
pub mod forward_task;
pub mod live;
mod memory;
mod outcome;
pub mod place;
pub mod plan;
pub mod veth;
mod wire;
