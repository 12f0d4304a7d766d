//! Packets in memory that the CPU cannot read.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use pagepool::{DeviceMemory, DmaDomain, NodeId, OffsetDomain, Pool, PoolParams, XdpBuff, XdpFrame};

#[test]
fn memory_that_the_cpu_cannot_read_has_length_and_no_bytes() {
    let memory = DeviceMemory::new("gpu0", 16 << 12, NodeId(0)).unwrap();
    let nic = Arc::new(OffsetDomain::new("nic0"));
    let domain = nic.id();
    let domains: Vec<Arc<dyn DmaDomain>> = vec![nic];
    let pool = Pool::new(PoolParams { domains, ..Default::default() }, memory).unwrap().bind();
    let mut packet = XdpBuff::received(pool.alloc_page().unwrap(), 1000).unwrap();
    packet.add_frag(pool.alloc_page().unwrap(), 100, 1000).unwrap();
    assert!(packet.data().is_empty() && packet.data_mut().is_empty() && packet.meta_mut().is_empty());
    assert!(packet.frags()[0].data().is_empty() && packet.frags_mut()[0].data_mut().is_empty());
    packet.adjust_tail(500).unwrap();
    packet.adjust_head(100).unwrap();
    packet.adjust_meta(-8).unwrap();
    packet.adjust_head(-50).unwrap();
    assert_eq!((packet.len(), packet.is_empty()), (2450, false));
    let frame = XdpFrame::from(packet);
    assert_eq!((frame.len(), frame.data().len(), frame.meta().len()), (2450, 0, 0));
    assert!(frame.segments().all(|segment| segment.data().is_empty() && segment.len > 0));
    assert!(frame.segments().all(|segment| segment.dma_addr_in(domain).is_some()));
    drop(frame);
    assert_eq!(pool.inflight().out, 0);
}
