//! `pagepool soak`: the forwarder at full load for minutes, while everything around it fails.
//!
//! ```text
//!   peer process  far0 ======= near0  forwarding loop  near1 ======= far1  peer process
//! ```
//!
//! What   both peers send numbered frames as fast as they can, and check what comes. One of the four ends of
//!        the links goes down and up again, in turns; one of the peers is killed and started again, in turns.
//! Proof  every frame is accounted for by what is in it: it arrived as it was sent, or it is known on which
//!        part of its way it was lost. What may not be: a damaged or repeated one, one lost within the
//!        forwarder, a call to the arena, a buffer that stays away, memory or descriptors that grow, traffic
//!        that does not come back soon.
//! Who    the fault injector's thread works on links and peers, the forwarding loop has its own, peers are
//!        processes of ours that end with this one. Nothing outlives it.

mod arrivals;
mod counts;
mod fault_injector;
mod flow;
mod holdings;
mod live;
mod outcome;
pub mod peer;
mod peer_process;
pub mod run;
pub mod schedule;
