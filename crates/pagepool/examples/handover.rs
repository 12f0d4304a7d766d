//! Cross-thread hand-over: the owner allocates, a worker reads and drops, every page returns to the owner.
//!
//! ```sh
//! cargo run -p pagepool --example handover
//! ```

use std::error::Error;
use std::sync::mpsc;

use pagepool::{Arena, ArenaParams, PageBuf, Pool, PoolParams};

const PACKETS: u32 = 100_000;

/// Runs the example.
pub fn main() -> Result<(), Box<dyn Error>> {
    let arena = Arena::new(ArenaParams { max_bytes: 16 << 20, ..Default::default() })?;
    // `bind` makes this thread the owner: the only one that allocates, so allocation needs no lock.
    let pool = Pool::new(PoolParams { name: "rx0".into(), ..Default::default() }, arena)?.bind();

    let (to_worker, from_owner) = mpsc::sync_channel::<PageBuf>(256);
    let worker = std::thread::spawn(move || {
        // A drop takes two plain stores into this thread's lane: no lock, no atomic read-modify-write.
        from_owner.iter().map(|buffer| u64::from(buffer.bytes().map_or(0, |bytes| bytes[0]))).sum::<u64>()
    });

    for number in 0..PACKETS {
        let mut buffer = pool.alloc_page().ok_or("the arena is exhausted: raise max_bytes")?;
        buffer.bytes_mut().ok_or("an arena's memory is readable")?[0] = number as u8;
        to_worker.send(buffer)?; // the owner keeps nothing; the worker's drop is the return
    }
    drop(to_worker); // ends the worker's loop
    let sum = worker.join().map_err(|_| "the worker panicked")?;

    let stats = pool.stats();
    println!("{PACKETS} pages handed over, sum of their first bytes {sum}");
    println!("returned through the lane or ring (recycle_ring)  {}", stats.recycle_ring);
    println!("refills that found pages there    (alloc_refill)  {}", stats.alloc_refill);
    println!("pages ever taken from the arena           (hold)  {}", stats.hold);
    assert_eq!(pool.inflight().out, 0, "all pages are returned");
    Ok(())
}
