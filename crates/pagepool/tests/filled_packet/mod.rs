//! Packets of several buffers: each buffer is filled with its number, from 1 on.
#![allow(clippy::unwrap_used)]

use pagepool::{Arena, ArenaParams, Bound, Pool, PoolParams, XdpBuff};

pub fn pool() -> Bound {
    let arena = Arena::new(ArenaParams { max_bytes: 4 << 20, ..Default::default() }).unwrap();
    Pool::new(PoolParams { headroom: 64, ..Default::default() }, arena).unwrap().bind()
}

pub fn packet(pool: &Bound, len: usize, frags: usize) -> XdpBuff {
    let mut packet = XdpBuff::received(pool.alloc_page().unwrap(), len).unwrap();
    packet.data_mut().fill(1);
    for at in 0..frags {
        let mut buffer = pool.alloc_page().unwrap();
        buffer.bytes_mut().unwrap()[8..8 + len].fill(at as u8 + 2);
        packet.add_frag(buffer, 8, len).unwrap();
    }
    packet
}
