//! The forwarder is a tokio task, beside others on its thread. It answers UDP packets to port 7. Do not run
//! it on an open network: two such services bounce a packet between each other forever.
//!
//! ```sh
//! cargo build && sudo ../target/debug/one-thread eth1
//! ```

use std::error::Error;
use std::os::fd::AsRawFd;

use pagepool_net::{Action, Armed, Forwarder, PacketHandler, Redirect, XskDevice, XskParams};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::task::yield_now;
use tokio::time::timeout;

/// Polls, and awaits packets when idle.
async fn forward<P: PacketHandler>(mut forwarder: Forwarder<P>) -> Result<(), Box<dyn Error>> {
    let fd = forwarder.wake_fd()?.as_raw_fd();
    // SAFETY: the forwarder keeps the descriptor open and outlives `awoken`.
    let awoken = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }?;
    loop {
        if forwarder.poll() > 0 {
            yield_now().await; // other tasks of this thread
            continue;
        }
        match forwarder.arm()? {
            Armed::Ready => {}
            Armed::Idle { at_most, .. } => {
                // Poll after the timeout as well: not every event makes the descriptor readable.
                if let Ok(ready) = timeout(at_most, awoken.readable()).await {
                    ready?.clear_ready();
                }
            }
            Armed::Gone => return Err("the interface is gone".into()),
        }
    }
}

/// Runs until Ctrl-C, or until the interface is gone.
fn main() -> Result<(), Box<dyn Error>> {
    let interface = std::env::args().nth(1).unwrap_or_default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let redirect = Some(Redirect::attach_udp_port(&interface, 7)?);
    let (device, pool) = XskDevice::simple_with(XskParams { interface, redirect, ..Default::default() })?;
    let mut forwarder = Forwarder::new(|packet, _| match packet.swap_endpoints() {
        true => Action::Tx,
        false => Action::Drop,
    });
    forwarder.add_port(device, pool);
    runtime.block_on(forward(forwarder)) // on this thread, which owns the pool; a `LocalSet` also works
}
