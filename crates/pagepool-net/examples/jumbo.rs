//! Jumbo packets: 9000 bytes arrive in three pages, are read in order, and the pages return together.
//!
//! ```sh
//! cargo run -p pagepool-net --example jumbo
//! ```

use std::error::Error;

use pagepool::{Arena, ArenaParams, Pool, PoolParams};
use pagepool_net::{Device, MemNicParams, NicDomain, mem_nic};

/// Runs the example.
pub fn main() -> Result<(), Box<dyn Error>> {
    let arena = Arena::new(ArenaParams { max_bytes: 16 << 20, ..Default::default() })?;
    let domain = NicDomain::new("mem0");
    // 256 bytes of headroom and 320 of tailroom leave 3520 of each page: 9000 bytes need three pages.
    let params = PoolParams {
        name: "rx0".into(),
        headroom: 256,
        tailroom: 320,
        chains: 64, // packets that may have several buffers at the same time
        domains: vec![domain.clone()],
        ..Default::default()
    };
    let pool = Pool::new(params, arena)?.bind();
    let limits = MemNicParams { max_packet: 9000, max_buffers: 3, ..Default::default() };
    let (mut nic, mut wire) = mem_nic(limits, domain)?;

    let mut burst = Vec::with_capacity(64);
    nic.receive(&pool, &mut burst, 64); // gives the device its first buffers
    let sent: Vec<u8> = (0..9000).map(|at| (at % 251) as u8).collect();
    assert!(wire.deliver(&sent), "the device has three buffers");
    nic.receive(&pool, &mut burst, 64);

    let packet = burst.pop().ok_or("the packet did not arrive")?;
    println!("{} bytes in {} buffers:", packet.len(), 1 + packet.frags().len());
    println!("  head      {} bytes at {} in its page", packet.data().len(), packet.offset());
    let mut received = packet.data().to_vec();
    for frag in packet.frags() {
        println!("  fragment  {} bytes of page {}", frag.len(), frag.buffer().page().0);
        received.extend_from_slice(frag.data());
    }
    assert_eq!(received, sent);

    drop(packet); // all three pages return
    nic.close();
    assert_eq!(pool.inflight().out, 0, "all pages are returned");
    Ok(())
}
