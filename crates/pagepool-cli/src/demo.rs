//! `pagepool demo`: a packet forwarder in one process, and the proof that its pages are recycled.
//!
//! It uses real interfaces if available, between two kernels' TCP (`veth`); otherwise it runs in `memory`,
//! which works anywhere. Both share the forwarding loop, figures and verdict. `workshop/soak` forwards over
//! the same pair of veth links.

mod consumer;
mod content;
mod forward_task;
pub(crate) mod live;
mod memory;
mod outcome;
pub(crate) mod place;
pub(crate) mod plan;
pub mod veth;
mod wire;
