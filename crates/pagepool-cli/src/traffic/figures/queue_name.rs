//! The name of a queue of an interface.

use std::fmt;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueName {
    pub interface: String,
    pub queue: u32,
}

impl QueueName {
    /// The name of its port and its pool in the JSON output.
    pub fn port(&self) -> String {
        format!("{}:{}", self.interface, self.queue)
    }
}

impl fmt::Display for QueueName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.interface, self.queue)
    }
}
