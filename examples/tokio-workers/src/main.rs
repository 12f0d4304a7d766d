//! A thread polls an interface and passes packets to two tokio tasks alternately, which answer them. Do not
//! run it on an open network: two such programs bounce a packet between each other forever.
//!
//! ```sh
//! cargo build && sudo ../target/debug/pagepool-tokio-workers eth1
//! ```

use std::error::Error;
use std::sync::atomic::AtomicBool;

use pagepool_net::{Action, Armed, Forwarder, HandoffRx, HandoffTx, PortId, XskDevice, handoff};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::Runtime;

/// A task: answers packets that can be sent back, and drops the rest.
async fn work(packets: HandoffRx, mut answers: HandoffTx) -> std::io::Result<()> {
    // SAFETY: a handoff keeps one descriptor for its lifetime.
    let mut packets = unsafe { AsyncFd::register_with_interest(packets, Interest::READABLE) }?;
    loop {
        while let Some(mut packet) = packets.get_mut().recv() {
            if packet.swap_endpoints() {
                let _ = answers.send(packet); // a full ring returns the frame, which is dropped
            }
        }
        answers.flush(); // wakes the polling thread once for all frames
        match packets.get_mut().arm() {
            Armed::Ready => tokio::task::yield_now().await, // more came: other tasks first
            Armed::Idle { .. } => packets.readable_mut().await?.clear_ready(),
            Armed::Gone => return Ok(()),
        }
    }
}

/// Runs until Ctrl-C, or until the interface is gone.
fn main() -> Result<(), Box<dyn Error>> {
    let interface = std::env::args().nth(1).unwrap_or_default();
    let runtime = Runtime::new()?;
    let (device, pool) = XskDevice::simple(&interface, 0)?; // this thread polls
    let mut turn = 0;
    let mut forwarder = Forwarder::new(|_, _| {
        turn ^= 1;
        Action::Redirect(PortId(1 + turn)) // the device is port 0, the tasks are 1 and 2
    });
    let port = forwarder.add_port(device, pool);
    for _ in 0..2 {
        let (to_task, packets) = handoff(1024)?;
        let (answers, to_port) = handoff(1024)?;
        forwarder.add_remote(to_task);
        forwarder.add_handoff(port, to_port)?;
        runtime.spawn(work(packets, answers));
    }
    Ok(forwarder.run(&AtomicBool::new(false))?)
}
