//! Which queue of which interface a port is.

use std::fmt;

use super::command::PortSide;
use super::interface::Interface;

/// An interface and one of its queues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueName {
    pub interface: String,
    pub queue: u32,
}

impl QueueName {
    /// Of a port of one of these interfaces.
    pub fn of(side: &PortSide, interfaces: &[Interface]) -> Self {
        let interface = interfaces.get(side.interface).map_or("", |interface| &interface.link.name);
        Self { interface: interface.to_owned(), queue: side.queue }
    }
}

impl fmt::Display for QueueName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.interface, self.queue)
    }
}
