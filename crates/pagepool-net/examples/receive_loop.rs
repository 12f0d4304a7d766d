//! A receive loop in memory: packets arrive in pages of a pool, are read, and the pages are reused.
//! `receive_af_xdp` runs this loop over an AF_XDP socket.
//!
//! ```sh
//! cargo run -p pagepool-net --example receive_loop
//! ```

use std::error::Error;

use pagepool::{Arena, ArenaParams, Bound, Pool, PoolParams, XdpBuff};
use pagepool_net::{Device, MemNicParams, NicDomain, mem_nic};

const PACKETS: usize = 100_000;

/// One round: receive packets, read them, drop them. A dropped packet returns its page, and the next
/// `receive` gives the device another one.
fn receive(device: &mut dyn Device, pool: &Bound, burst: &mut Vec<XdpBuff>) -> (usize, usize) {
    device.receive(pool, burst, 64);
    burst.drain(..).fold((0, 0), |(packets, bytes), packet| (packets + 1, bytes + packet.len()))
}

/// Runs the example.
pub fn main() -> Result<(), Box<dyn Error>> {
    // 1. Memory. An arena grows in regions of 4 MiB up to its limit.
    let arena = Arena::new(ArenaParams { max_bytes: 16 << 20, ..Default::default() })?;
    // 2. A pool, mapped once in the address space of the device. `bind` makes this thread its owner.
    let domain = NicDomain::new("mem0");
    let params = PoolParams { name: "rx0".into(), domains: vec![domain.clone()], ..Default::default() };
    let pool = Pool::new(params, arena)?.bind();
    // 3. The device: one receive queue and one transmit queue. `wire` is its other end.
    let (mut nic, mut wire) = mem_nic(MemNicParams::default(), domain)?;

    // 4. The loop. The first call finds no packet and gives the device its first buffers.
    let mut burst = Vec::with_capacity(64); // `receive` fills spare capacity and never grows it
    let (mut packets, mut bytes) = receive(&mut nic, &pool, &mut burst);
    while packets < PACKETS {
        (0..32).for_each(|n| assert!(wire.deliver(&[n; 60]), "the device has buffers"));
        let (more, len) = receive(&mut nic, &pool, &mut burst);
        (packets, bytes) = (packets + more, bytes + len);
    }
    nic.close(); // takes back the buffers on its rings

    let stats = pool.stats();
    println!("{packets} packets, {bytes} bytes, through {} pages", stats.hold);
    println!("allocations that needed the arena (alloc_slow): {}", stats.alloc_slow);
    assert_eq!(pool.inflight().out, 0, "all pages are returned");
    Ok(())
}
