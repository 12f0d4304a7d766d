//! A UMEM where the system's page has 64 KiB.
#![allow(clippy::unwrap_used)]
// UNSAFETY: arenas over the memory of a test.
#![expect(unsafe_code)]

use pagepool::{Arena, ArenaParams, Error, PAGE_SIZE, Provider};
use pagepool_net::{Umem, UmemParams};
use pagepool_testing::SystemPage;

#[test]
fn memory_not_aligned_to_the_systems_page_is_refused() {
    let _page = SystemPage::pretend(64 << 10);
    let mut memory = vec![0u8; 256 << 10];
    let whole = memory.as_mut_ptr().map_addr(|addr| addr.next_multiple_of(64 << 10));
    let umem = |start| {
        // SAFETY: 17 pages from there lie in the vector, which outlives the arena.
        let arena =
            unsafe { Arena::over_caller_memory(start, 17 * PAGE_SIZE, ArenaParams::default()) }.unwrap();
        Umem::new(UmemParams::default(), &arena).map(|_| ())
    };
    let within = whole.wrapping_add(PAGE_SIZE);
    let error = umem(within).unwrap_err().to_string();
    assert!(error.contains("must begin at a multiple of 65536 bytes, the system's page"), "{error}");
    assert!(error.contains(&format!("but begins at {within:p}: align it")), "{error}");
    match umem(whole) {
        Ok(()) => {}
        Err(Error::System { call, remedy, .. }) => println!("SKIP the other half: {call}: {remedy}"),
        Err(error) => panic!("{error}"),
    }
    let arena =
        Arena::new(ArenaParams { max_bytes: 17 << 12, commit_all: true, ..Default::default() }).unwrap();
    assert_eq!(arena.area().pages(), 32);
    match Umem::new(UmemParams::default(), &arena) {
        Ok(_) | Err(Error::System { .. }) => {}
        Err(error) => panic!("an arena's own memory fits: {error}"),
    }
}
