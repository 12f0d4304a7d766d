//! What moves packets, whatever the command.

pub mod buffer_locations;
pub mod figures;
pub mod interrupt;
pub mod kernel_counts;
pub mod port_sample;
pub mod prefill;
pub mod run_time;
pub mod socket_sizes;
