//! `pagepool demo`: a packet forwarder in one process, and the proof that its pages are recycled.
//!
//! It uses real interfaces if available, between two kernels' TCP (`veth`); otherwise it runs in `memory`,
//! which works anywhere. Both share the forwarding loop, figures and verdict. `pagepool soak` uses the loop
//! and figures from here, too.

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
