//! `packets` and `packets_mut` give what `packet` and `packet_mut` give, whatever is beside what.

use std::sync::Arc;

use pagepool::testing::PlainMemory;
use pagepool::{Bound, PackedBuf, PageBuf, Pool, PoolParams, Provider, packets, packets_mut};

fn pool(order: u8, headroom: usize, memory: Arc<dyn Provider>) -> Bound {
    let params = PoolParams { order, headroom, max_len: 1500, refill: 1, ..PoolParams::default() };
    Pool::new(params, memory).expect("it fits").bind()
}

/// Pages of two pools, fragments, and a page that has a reference, in turns and in runs.
fn mixed(pools: &[Bound; 2]) -> Vec<PageBuf> {
    let [first, second] = pools;
    let mut buffers = Vec::new();
    for at in 0..12 {
        buffers.extend(first.alloc_page());
        buffers.extend(if at % 3 == 0 { second.alloc_page() } else { first.alloc_page() });
        buffers.extend(if at % 2 == 0 { first.alloc_frag(200 + at) } else { second.alloc_frag(100 + at) });
    }
    let mut referred = first.alloc_page().expect("memory is left");
    drop(referred.page_ref());
    buffers.push(referred);
    assert_eq!(buffers.len(), 37);
    buffers
}

fn pools() -> [Bound; 2] {
    let memory = |order| PlainMemory::new(256, order).expect("small");
    [pool(0, 256, memory(0)), pool(1, 64, memory(1))]
}

#[test]
fn handles() {
    let pools = pools();
    let mut buffers = mixed(&pools);
    let singly: Vec<_> = buffers.iter().map(|b| b.packet().map(<[u8]>::as_ptr_range)).collect();
    assert!(packets(&buffers).map(|p| p.map(<[u8]>::as_ptr_range)).eq(singly.iter().cloned()));
    assert_eq!(packets(&buffers).len(), buffers.len());
    for (packet, at) in packets_mut(&mut buffers).zip(0..) {
        packet.expect("plain memory").fill(at);
    }
    for (buffer, at) in buffers.iter().zip(0..) {
        assert!(buffer.packet().expect("plain memory").iter().all(|byte| *byte == at), "buffer {at}");
    }
}

#[test]
fn packed() {
    let pools = pools();
    let pack = |buffer: PageBuf| buffer.pack().ok();
    let mut buffers: Vec<PackedBuf> = mixed(&pools).into_iter().filter_map(pack).collect();
    assert!(buffers.len() > 24, "pages can be packed");
    let singly: Vec<_> = buffers.iter().map(|b| b.packet().map(<[u8]>::as_ptr_range)).collect();
    assert!(PackedBuf::packets(&buffers).map(|p| p.map(<[u8]>::as_ptr_range)).eq(singly.iter().cloned()));
    for (packet, at) in PackedBuf::packets_mut(&mut buffers).zip(0..) {
        packet.expect("plain memory").fill(at);
    }
    for (buffer, at) in buffers.iter().zip(0..) {
        assert!(buffer.packet().expect("plain memory").iter().all(|byte| *byte == at), "buffer {at}");
    }
}
