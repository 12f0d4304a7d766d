//! What moves packets in every command: one polling loop, one run state, one watch.

pub(crate) mod buffer_locations;
pub mod figures;
pub(crate) mod frame_source;
pub mod interrupt;
pub(crate) mod link_watch;
pub(crate) mod memory_node;
pub(crate) mod poll_loop;
pub mod port_sample;
pub(crate) mod privileges;
pub mod run_state;
pub(crate) mod run_time;
pub(crate) mod sent_by_links;
pub(crate) mod socket_sizes;
pub mod watch;
