//! The name of a queue of an interface.

use std::fmt;

use serde_json::{Map, Value};

use crate::report::object;

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

    /// Its name and its parts, for the JSON output.
    pub fn fields(&self) -> Map<String, Value> {
        let (interface, queue) = (self.interface.as_str().into(), self.queue.into());
        object([("name", Value::from(self.port())), ("interface", interface), ("queue", queue)])
    }
}

impl fmt::Display for QueueName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.interface, self.queue)
    }
}
