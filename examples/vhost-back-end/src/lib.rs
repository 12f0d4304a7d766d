//! A vhost-user back end of a network device, written with the crates of rust-vmm. It shares no code with
//! `pagepool-net`, so it tests the front end there.
//!
//! A back end reads the front end's transmit queues (1, 3, …) and writes into its receive queues (0, 2, …).
//! Each packet has a header of 12 bytes before it. The front end must accept `VIRTIO_F_VERSION_1`.
//!
//! ```
//! use pagepool_vhost_back_end::{BackEnd, Mode, Params};
//! # let path = std::env::temp_dir().join(format!("vhost-doc-{}.sock", std::process::id()));
//! let back_end = BackEnd::start(Params::new(&path, Mode::Echo))?;
//! // A front end connects to the socket, sends and receives.
//! let counts = back_end.stop();
//! assert_eq!(counts.to_string(), "0 connections, 0 packets taken, 0 put, 0 lost, 0 bad");
//! # Ok::<(), std::io::Error>(())
//! ```

mod back_end;
mod counts;
mod queue_pair;
mod service;

pub use back_end::{BackEnd, Params};
pub use counts::Counts;
pub use queue_pair::{HEADER, Mode, QueuePair};
pub use service::FEATURES;
