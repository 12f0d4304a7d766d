//! Every provider of this crate runs the conformance suite.
#![allow(clippy::unwrap_used)]
// UNSAFETY: pages that a test reserved are given back; flock(2) takes a descriptor.
#![expect(unsafe_code)]

use std::fs;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Arc;

use pagepool::{Arena, ArenaParams, Backing, DeviceMemory, NodeId, PageIdx, Provider, Topology};
use pagepool_testing::{FailNth, conformance_provider};

/// Gives pages back that the test reserved with this order, once.
fn release(provider: &dyn Provider, order: u8, pages: &[PageIdx]) {
    // SAFETY: I1. The test reserved them, has not released them since, and does not touch their memory any
    // more.
    unsafe { provider.release(order, pages) };
}

fn params(max_bytes: u64) -> ArenaParams {
    ArenaParams { max_bytes, ..Default::default() }
}

fn arena(params: ArenaParams) -> Arc<Arena> {
    Arena::new(params).unwrap()
}

/// Until it is dropped: huge pages are the whole machine's, and a test of tests/arena.rs counts them, which
/// takes this lock alone. Nothing where the kernel has none.
fn may_take_huge_pages() -> Option<fs::File> {
    let file = fs::File::open("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages").ok()?;
    // SAFETY: the call takes the descriptor of a file that is open.
    assert_eq!(unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_SH) }, 0);
    Some(file)
}

/// A row is the name of a test, a provider, and the ways to make one that the conformance suite runs over.
macro_rules! providers {
    ($($test:ident: $provider:ident => [$($make:expr),+ $(,)?],)+) => {
        $(
            #[test]
            fn $test() {
                let _lock = may_take_huge_pages();
                let makers: &[&dyn Fn() -> Arc<$provider>] = &[$(&$make),+];
                makers.iter().for_each(conformance_provider);
            }
        )+

        const PROVIDERS: &[&str] = &[$(stringify!($provider)),+];
    };
}

providers! {
    arenas_conform: Arena => [
        || arena(ArenaParams { backing: Backing::Anonymous4k, ..params(12 << 20) }),
        || arena(ArenaParams { backing: Backing::TransparentHuge, ..params(12 << 20) }),
        || arena(ArenaParams { backing: Backing::Huge2M, ..params(12 << 20) }),
        || arena(ArenaParams { backing: Backing::Memfd { huge: false }, ..params(12 << 20) }),
        || arena(params(64 << 12)),
        || arena(ArenaParams { commit_all: true, ..params(9 << 20) }),
        || arena(ArenaParams { page_size: 2048, ..params(9 << 20) }),
    ],
    arenas_with_made_up_nodes_conform: Arena => [
        || arena(ArenaParams { topology: Topology::pretend_halves(2), ..params(9 << 20) }),
        || {
            let topology = Topology::pretend(3, |page| NodeId((page.0 % 3) as u8));
            arena(ArenaParams { topology, ..params(9 << 20) })
        },
        || arena(ArenaParams { topology: Topology::without_numa_calls(), ..params(9 << 20) }),
        || arena(ArenaParams { topology: Topology::pretend_halves(2), page_size: 2048, ..params(9 << 20) }),
    ],
    device_memory_conforms: DeviceMemory => [|| DeviceMemory::new("hbm", 9 << 20, NodeId(0)).unwrap()],
    a_wrapper_that_never_fails_conforms: FailNth => [|| FailNth::new(arena(params(1 << 20)), 0)],
}

/// Providers of tests that do less than a provider must.
const PARTIAL: &[&str] = &["PlainMemory"];

/// Every provider of this crate has a row above, or calls the suite in unit tests of its own file.
#[test]
fn no_provider_is_left_out() {
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = fs::read_to_string(&path).unwrap();
            let code = |line: &str| !line.trim_start().starts_with("//");
            let runs_it = text.lines().any(|line| code(line) && line.contains("conformance_provider("));
            for line in
                text.lines().filter(|line| line.starts_with("unsafe impl") && line.contains(" Provider for "))
            {
                let name =
                    line.split(" Provider for ").nth(1).and_then(|rest| rest.split([' ', '<', '{']).next());
                assert!(
                    name.is_some_and(|name| PROVIDERS.contains(&name) || PARTIAL.contains(&name)) || runs_it,
                    "{}: {line}",
                    path.display()
                );
            }
        }
    }
}

#[test]
fn device_memory_refuses_a_size_that_is_not_whole_pages() {
    let text = DeviceMemory::new("hbm", 5000, NodeId(0)).unwrap_err().to_string();
    assert_eq!(text, "len_bytes is 5000, but must be a multiple of 4096, and not 0");
}

#[test]
fn device_memory_has_no_cpu_address() {
    let hbm = DeviceMemory::new("hbm", 1 << 20, NodeId(1)).unwrap();
    let mut pages = [PageIdx(0); 4];
    assert_eq!(hbm.reserve(0, Some(NodeId(1)), &mut pages), 4);
    assert_eq!(hbm.area().base(), None);
    assert_eq!(hbm.area().node_of(pages[0]), NodeId(1));
    release(&*hbm, 0, &pages);
    assert_eq!(hbm.pages_out(), 0);
    assert_eq!(hbm.describe(), "hbm: 1 MiB of device memory, not readable by the CPU");
}

#[test]
fn a_wrapper_that_fails_comes_short() {
    let third = FailNth::new(Arena::new(params(1 << 20)).unwrap(), 3);
    let mut out = [PageIdx(0); 64];
    let got: Vec<_> = (0..6).map(|i| third.reserve(0, None, &mut out[i * 8..i * 8 + 8])).collect();
    assert_eq!(got, [8, 8, 4, 8, 8, 4]);
    assert_eq!(third.failed(), 2);
    assert!(third.describe().ends_with("one reservation in 3 fails"));
}
