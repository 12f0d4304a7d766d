//! Echoes UDP packets to port 7, in place, and leaves all others to the kernel: ARP, ping, other ports. Do
//! not run it on an open network: two such services, or a forged source port, keep a packet bouncing forever.
//!
//! ```sh
//! cargo build -p pagepool-net --example udp_echo && sudo target/debug/examples/udp_echo eth1
//! ```

use pagepool_net::{Action, Forwarder, Redirect, XskDevice, XskParams};
use std::sync::atomic::AtomicBool;

/// Runs until Ctrl-C, or until the interface is gone.
pub fn main() -> Result<(), pagepool::Error> {
    let interface = std::env::args().nth(1).unwrap_or_default();
    let redirect = Some(Redirect::attach_udp_port(&interface, 7)?);
    let params = XskParams { interface, redirect, ..Default::default() };
    let (device, pool) = XskDevice::simple_with(params)?;
    let mut forwarder = Forwarder::new(|packet, _| match packet.swap_endpoints() {
        true => Action::Tx,
        false => Action::Drop,
    });
    forwarder.add_port(device, pool);
    forwarder.run(&AtomicBool::new(false))
}
