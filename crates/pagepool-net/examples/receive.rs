//! Prints the source MAC address of each packet, and drops it.
//!
//! ```sh
//! cargo build -p pagepool-net --example receive && sudo target/debug/examples/receive eth1
//! ```

use pagepool_net::{Action, Forwarder, XskDevice};
use std::sync::atomic::AtomicBool;

/// Runs until Ctrl-C, or until the interface is gone.
pub fn main() -> Result<(), pagepool::Error> {
    let interface = std::env::args().nth(1).unwrap_or_default();
    let (device, pool) = XskDevice::simple(&interface, 0)?;
    let mut forwarder = Forwarder::new(|packet, _| {
        println!("{:02x?}", &packet.data()[6..12]);
        Action::Drop
    });
    forwarder.add_port(device, pool);
    forwarder.run(&AtomicBool::new(false))
}
