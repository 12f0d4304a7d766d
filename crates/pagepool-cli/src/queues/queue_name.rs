//! Which queue of which interface a port is.

use std::fmt;

/// An interface and one of its queues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueName {
    pub interface: String,
    pub queue: u32,
}

impl QueueName {
    /// The name of its port and of its pool in the JSON output.
    pub fn port(&self) -> String {
        format!("{}:{}", self.interface, self.queue)
    }
}

impl fmt::Display for QueueName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.interface, self.queue)
    }
}
