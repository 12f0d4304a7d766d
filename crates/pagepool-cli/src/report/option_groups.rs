//! The groups of options in the help of commands that run for a while.

pub const INTERFACES: &str = "Interfaces";
pub const PACKETS: &str = "Taking packets";
pub const THREADS: &str = "Threads and sleep";
pub const MEMORY: &str = "Memory";
pub const OUTPUT: &str = "Output";
