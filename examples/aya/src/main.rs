//! A UDP echo. Its XDP program is written with aya (`xdp/`), and redirects packets to our sockets through an
//! XSKMAP. All other packets go to the kernel. Do not run it on an open network: two such services bounce a
//! packet between each other forever.
//!
//! ```sh
//! cargo build && sudo ../target/debug/pagepool-with-aya eth1
//! ```

use std::error::Error;
use std::os::fd::AsFd;
use std::sync::atomic::AtomicBool;

use aya::maps::Map;
use aya::programs::{Xdp, XdpMode};
use aya::{Ebpf, include_bytes_aligned};
use pagepool_net::{Action, Forwarder, Redirect, XskDevice, XskParams};

/// Built by `build-xdp`.
static XDP: &[u8] = include_bytes_aligned!("../xdp/udp_port_7.o");

/// Runs until Ctrl-C, or until the interface is gone. A second argument names another XDP object file.
fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let interface = arguments.next().unwrap_or_default();
    // 1. aya loads the XDP program and attaches it. While its map is empty, all packets go to the kernel.
    let mut ebpf = match arguments.next() {
        Some(file) => Ebpf::load_file(file)?,
        None => Ebpf::load(XDP)?,
    };
    let program: &mut Xdp = ebpf.program_mut("udp_port_7").ok_or("no program udp_port_7")?.try_into()?;
    program.load()?;
    program.attach(&interface, XdpMode::default())?;
    // 2. The program's map. The device inserts its socket there, and removes it at the end.
    let Some(Map::XskMap(sockets)) = ebpf.map("SOCKETS") else { return Err("no XSKMAP SOCKETS".into()) };
    let redirect = Some(Redirect::over_map(sockets.fd().as_fd().try_clone_to_owned()?));
    // 3. The rest is as with any redirect.
    let (device, pool) = XskDevice::simple_with(XskParams { interface, redirect, ..Default::default() })?;
    let mut forwarder = Forwarder::new(|packet, _| match packet.swap_endpoints() {
        true => Action::Tx,
        false => Action::Drop,
    });
    forwarder.add_port(device, pool);
    Ok(forwarder.run(&AtomicBool::new(false))?)
}
