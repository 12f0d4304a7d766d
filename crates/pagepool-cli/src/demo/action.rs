//! What a demonstration does with each packet.

use clap::ValueEnum;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DemoAction {
    /// Drop the packet
    Drop,
    /// Swap the MAC addresses, and send the packet back out of its NIC
    Echo,
    /// Send the packet out of the other NIC, without a copy
    Forward,
    /// Pass the packet to another thread, which reads and drops it
    Pass,
}

impl DemoAction {
    pub fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}
