//! A vhost-user back end of a network device, written with the crates of rust-vmm. It shares no code with
//! `pagepool-net`, so it tests the front end there.
//!
//! A back end reads the front end's transmit queues (1, 3, …) and writes into its receive queues (0, 2, …).
//! Each packet has a header of 12 bytes before it. The front end must accept `VIRTIO_F_VERSION_1`.
//!
//! [`BackEnd::start`] serves a socket on a thread, [`BackEnd::stop`] ends it. With [`Mode::Manual`], a test
//! moves each packet itself, through [`BackEnd::pair`].

mod back_end;
mod counts;
mod queue_pair;
mod service;

pub use back_end::{BackEnd, Params};
pub use counts::Counts;
pub use queue_pair::{HEADER, Mode, QueuePair};
pub use service::FEATURES;
