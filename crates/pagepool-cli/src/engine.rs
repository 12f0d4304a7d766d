//! What moves packets in every command: one polling loop, one run state, one watch.

pub mod buffer_locations;
pub mod figures;
pub mod frame_source;
pub mod interrupt;
pub mod link_watch;
pub mod memory_node;
pub mod poll_loop;
pub mod port_sample;
pub mod privileges;
pub mod run_state;
pub mod run_time;
pub mod sent_by_links;
pub mod socket_sizes;
pub mod watch;
