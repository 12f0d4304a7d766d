//! Hands packets to two worker threads in turn, and sends their answers. All threads sleep while idle. Do not
//! run it on an open network: a packet from another such program bounces between the two forever.
//!
//! ```sh
//! cargo build -p pagepool-net --example workers && sudo target/debug/examples/workers eth1
//! ```

use pagepool_net::{Action, Forwarder, HandoffRx, HandoffTx, PortId, Wake, XskDevice, handoff};
use std::{sync::atomic::AtomicBool, thread, time::Duration};

/// A worker: answers packets that have a sender, and drops the rest.
fn work(mut packets: HandoffRx, mut answers: HandoffTx) {
    let mut burst = Vec::with_capacity(32);
    while packets.wait(Duration::MAX) != Wake::Gone {
        while packets.recv_burst(&mut burst) > 0 {
            for mut packet in burst.drain(..) {
                if packet.swap_endpoints() {
                    let _ = answers.send(packet); // a full ring returns the frame, which is dropped
                }
            }
        }
        answers.flush(); // wakes the polling thread once for all frames
    }
}

/// Runs until Ctrl-C, or until the interface is gone.
pub fn main() -> Result<(), pagepool::Error> {
    let interface = std::env::args().nth(1).unwrap_or_default();
    let (device, pool) = XskDevice::simple(&interface, 0)?;
    let mut turn = 0;
    let mut forwarder = Forwarder::new(|_, _| {
        turn ^= 1;
        Action::Redirect(PortId(1 + turn)) // the device is port 0, the workers are 1 and 2
    });
    let port = forwarder.add_port(device, pool);
    for _ in 0..2 {
        let (to_worker, packets) = handoff(1024)?;
        let (answers, to_port) = handoff(1024)?;
        forwarder.add_remote(to_worker);
        forwarder.add_handoff(port, to_port)?;
        thread::spawn(move || work(packets, answers));
    }
    forwarder.run(&AtomicBool::new(false))
}
