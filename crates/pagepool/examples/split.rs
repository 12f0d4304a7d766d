//! Splits a buffer into parts that return independently: a header and its payload, and packets that a device
//! wrote into one buffer.
//!
//! ```sh
//! cargo run -p pagepool --example split
//! ```

use std::error::Error;
use std::sync::mpsc;

use pagepool::{Arena, ArenaParams, PageBuf, Pool, PoolParams};

const HEADER: usize = 54; // Ethernet, IPv4, TCP

/// Runs the example.
pub fn main() -> Result<(), Box<dyn Error>> {
    let arena = Arena::new(ArenaParams { max_bytes: 16 << 20, ..Default::default() })?;
    let pool = Pool::new(PoolParams { name: "rx0".into(), ..Default::default() }, arena)?.bind();
    let (to_worker, from_owner) = mpsc::channel::<PageBuf>();
    let worker = std::thread::spawn(move || from_owner.iter().map(|payload| payload.len()).sum::<usize>());

    // The worker gets the payload and drops it; the header stays here.
    let mut header = pool.alloc_page().ok_or("the arena is exhausted: raise max_bytes")?;
    let begins = header.packet_offset(); // before the split: a fragment has no headroom
    let payload = header.split_off(begins + HEADER)?;
    to_worker.send(payload)?;
    println!("header at {} of {} bytes", begins, header.len());
    drop(header);

    // A device wrote three packets into one buffer, with these lengths.
    let mut rest = pool.alloc_page().ok_or("the arena is exhausted: raise max_bytes")?;
    for len in [590, 1514, 60] {
        let behind = rest.split_off(len)?;
        to_worker.send(std::mem::replace(&mut rest, behind))?;
    }
    drop(rest);

    drop(to_worker); // ends the worker's loop
    let bytes = worker.join().map_err(|_| "the worker panicked")?;
    println!("{bytes} bytes went to the worker");
    // Two pages, six parts: a page is free when its last part has returned, and this counts them.
    pool.alloc_bulk(&mut Vec::with_capacity(64), 64);
    assert_eq!(pool.inflight().out, 0, "all pages are returned");
    Ok(())
}
