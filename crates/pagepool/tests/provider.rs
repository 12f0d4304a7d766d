//! Every provider of this crate runs the conformance suite.
#![allow(clippy::unwrap_used)]
// UNSAFETY: pages that a test reserved are given back.
#![expect(unsafe_code)]

use pagepool::testing::{FailNth, conformance_provider};
use pagepool::{Arena, ArenaParams, Backing, DeviceMemory, NodeId, PageIdx, Provider, Topology};

/// Gives pages back that the test reserved with this order, once.
fn release(provider: &dyn Provider, order: u8, pages: &[PageIdx]) {
    // SAFETY: I1. The test reserved them, has not released them since, and does not touch their memory any more.
    unsafe { provider.release(order, pages) };
}

fn params(max_bytes: u64) -> ArenaParams {
    ArenaParams { max_bytes, ..Default::default() }
}

#[test]
fn arenas_conform() {
    for backing in
        [Backing::Anonymous4k, Backing::TransparentHuge, Backing::Huge2M, Backing::Memfd { huge: false }]
    {
        conformance_provider(|| Arena::new(ArenaParams { backing, ..params(12 << 20) }).unwrap());
    }
    conformance_provider(|| Arena::new(params(64 << 12)).unwrap());
    conformance_provider(|| Arena::new(ArenaParams { commit_all: true, ..params(9 << 20) }).unwrap());
}

#[test]
fn arenas_with_made_up_nodes_conform() {
    for topology in
        [Topology::pretend_halves(2), Topology::pretend_interleaved(3), Topology::without_numa_calls()]
    {
        conformance_provider(|| {
            Arena::new(ArenaParams { topology: topology.clone(), ..params(9 << 20) }).unwrap()
        });
    }
}

#[test]
fn device_memory_conforms() {
    conformance_provider(|| DeviceMemory::new("hbm", 9 << 20, NodeId(0)).unwrap());
    let text = DeviceMemory::new("hbm", 5000, NodeId(0)).unwrap_err().to_string();
    assert_eq!(text, "len_bytes is 5000, but must be a multiple of 4096, and not 0");
}

#[test]
fn device_memory_has_no_cpu_address_and_marks_emergency_pages() {
    let hbm = DeviceMemory::new("hbm", 1 << 20, NodeId(1)).unwrap();
    let mut pages = [PageIdx(0); 4];
    assert_eq!(hbm.reserve(0, Some(NodeId(1)), &mut pages), 4);
    assert_eq!(hbm.area().base(), None);
    assert_eq!(hbm.area().node_of(pages[0]), NodeId(1));
    hbm.area().set_emergency(pages[0], true);
    hbm.area().set_emergency(pages[0], false);
    release(&*hbm, 0, &pages);
    assert_eq!(hbm.pages_out(), 0);
    assert_eq!(hbm.describe(), "hbm: 1 MiB of device memory, not readable by the CPU");
}

#[test]
fn a_wrapper_that_never_fails_conforms_and_one_that_does_comes_short() {
    conformance_provider(|| FailNth::new(Arena::new(params(1 << 20)).unwrap(), 0));
    let third = FailNth::new(Arena::new(params(1 << 20)).unwrap(), 3);
    let mut out = [PageIdx(0); 64];
    let got: Vec<_> = (0..6).map(|i| third.reserve(0, None, &mut out[i * 8..i * 8 + 8])).collect();
    assert_eq!(got, [8, 8, 4, 8, 8, 4]);
    assert_eq!(third.failed(), 2);
    assert!(third.describe().ends_with("every 3. reservation fails"));
}
