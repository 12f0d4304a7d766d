//! The loop of `receive_loop` over an AF_XDP socket, on a veth pair in its own network namespace: root can
//! run it anywhere, and it leaves nothing behind. Without root it prints SKIP and the reason.
//!
//! ```sh
//! cargo build -p pagepool-net --example receive_af_xdp && sudo target/debug/examples/receive_af_xdp
//! ```

use std::error::Error;
use std::time::Duration;

use pagepool::{Arena, ArenaParams, Bound, Pool, PoolParams, XdpBuff};
use pagepool_lab::FrameSocket;
use pagepool_link::{Namespace, Netlink, VethEnd};
use pagepool_net::{Attach, Device, DeviceExt, Redirect, Umem, UmemParams, XskDevice, XskParams};

/// What a thread in the namespace can return.
type Outcome = Result<(), Box<dyn Error + Send + Sync>>;

const PACKETS: usize = 10_000;

/// The round of `receive_loop`, unchanged.
fn receive(device: &mut dyn Device, pool: &Bound, burst: &mut Vec<XdpBuff>) -> (usize, usize) {
    device.receive(pool, burst, 64);
    burst.drain(..).fold((0, 0), |(packets, bytes), packet| (packets + 1, bytes + packet.len()))
}

fn run() -> Outcome {
    // 1. Memory, fully committed: the kernel locks and registers a UMEM once.
    let arena = Arena::new(ArenaParams { max_bytes: 16 << 20, commit_all: true, ..Default::default() })?;
    let umem = Umem::new(UmemParams::default(), &arena)?;
    // 2. A pool whose device addresses are offsets in the UMEM. AF_XDP keeps 256 bytes before each packet.
    let params =
        PoolParams { headroom: 256, wakeup: true, domains: vec![umem.clone()], ..Default::default() };
    let pool = Pool::new(params, arena)?.bind();
    // 3. The device: queue 0 of the interface, and the XDP program that redirects its packets to the socket.
    let redirect = Some(Redirect::attach("near0", Attach::Auto, false)?);
    let params = XskParams { interface: "near0".into(), redirect, ..Default::default() };
    let mut xsk = XskDevice::open(params, &umem, &pool)?; // refuses a pool whose pages the kernel cannot fill

    // 4. The loop.
    let mut burst = Vec::with_capacity(64);
    let (mut packets, mut bytes) = receive(&mut xsk, &pool, &mut burst);
    let wire = FrameSocket::open_here("far0")?;
    let frame =
        *b"\xff\xff\xff\xff\xff\xff\x02from\x01\x88\xb5hello, pool: fifty bytes of payload in this frame.";
    while packets < PACKETS {
        let _ = wire.send(&frame)?; // false: the queue is full, and the next iteration retries
        let (more, len) = receive(&mut xsk, &pool, &mut burst);
        if more == 0 {
            let _ = xsk.wait(&pool, Duration::from_millis(10)); // sleeps until a packet or a page comes
        }
        (packets, bytes) = (packets + more, bytes + len);
    }
    let dropped = xsk.kernel_stats().rx_dropped;
    xsk.close(); // takes back the buffers on its rings
    println!("{packets} packets, {bytes} bytes, through {} pages; dropped {dropped}", pool.stats().hold);
    assert_eq!(pool.inflight().out, 0, "all pages are returned");
    Ok(())
}

/// Makes a veth pair in the calling thread's namespace, and sets both ends up.
fn add_link() -> Outcome {
    let mut netlink = Netlink::open()?;
    let end = |name| VethEnd { name, namespace: None, mac: None, mtu: 1500, queues: 1 };
    netlink.add_veth(&end("near0"), &end("far0"))?;
    for name in ["near0", "far0"] {
        let index = netlink.link(name)?.index;
        netlink.set_up(index, true)?;
    }
    netlink.wait_up("near0", Duration::from_secs(10))?;
    Ok(())
}

/// Runs the example.
pub fn main() -> Outcome {
    match Namespace::new("receive_af_xdp") {
        Ok(namespace) => namespace.run(|| add_link().and_then(|()| run())),
        Err(error) => {
            println!("SKIP receive_af_xdp: {error}");
            Ok(())
        }
    }
}
