//! Arenas where the system's page has 16 or 64 KiB, as on arm64: pages of pools keep their 4 KiB, and what
//! the kernel learns about memory is in whole pages of its own.
#![allow(clippy::unwrap_used)]
// UNSAFETY: an arena over the memory of a test.
#![expect(unsafe_code)]

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pagepool::{Arena, ArenaParams, Backing, PAGE_SIZE, PageIdx, Provider};
use pagepool_testing::SystemPage;

/// The size is the whole process's: one test at a time.
fn pretend(bytes: usize) -> (MutexGuard<'static, ()>, SystemPage) {
    static ALONE: Mutex<()> = Mutex::new(());
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    (alone, SystemPage::pretend(bytes)) // names that are bound first end last
}

const SIZES: [usize; 3] = [4 << 10, 16 << 10, 64 << 10];

fn params(pages: usize, backing: Backing) -> ArenaParams {
    ArenaParams { max_bytes: (pages * PAGE_SIZE) as u64, backing, ..Default::default() }
}

/// Takes every page, writes its first and last byte, and gives it back; says how many there are.
fn use_every_page(arena: &Arc<Arena>) -> usize {
    let mut pages = vec![PageIdx(0); arena.area().pages() as usize];
    let taken = arena.reserve(0, None, &mut pages);
    for page in &pages[..taken] {
        let first = arena.area().base().unwrap() + arena.area().offset_of(*page) as usize;
        for byte in [first, first + PAGE_SIZE - 1] {
            // SAFETY: the page is out, and this test has it alone.
            unsafe { (byte as *mut u8).write_volatile(1) };
        }
    }
    // SAFETY: they were reserved above, and nobody uses them.
    unsafe { arena.release(0, &pages[..taken]) };
    taken
}

#[test]
fn every_edge_of_an_arena_is_one_of_the_systems_pages() {
    let backings = [Backing::Anonymous4k, Backing::TransparentHuge, Backing::Memfd { huge: false }];
    for (size, backing) in SIZES.into_iter().flat_map(|size| backings.map(|backing| (size, backing))) {
        let (_alone, _page) = pretend(size);
        for pages in [1, 17, 1024, 1025, 2048] {
            let arena = Arena::new(ArenaParams { prefault: true, ..params(pages, backing) }).unwrap();
            let all = (pages * PAGE_SIZE).next_multiple_of(size);
            let what = format!("{pages} pages, system's page {size}, {backing}");
            assert_eq!(use_every_page(&arena), all / PAGE_SIZE, "{what}");
            assert_eq!(arena.area().present_bytes(), all as u64, "{what}");
            assert_eq!(arena.description().max_bytes, all as u64, "{what}");
            assert!(arena.area().base().unwrap().is_multiple_of(size), "{what}");
            assert_eq!(arena.trim(), all as u64, "{what}");
            assert_eq!(use_every_page(&arena), all / PAGE_SIZE, "{what}, after a trim");
            if let Some(file) = arena.memfd() {
                let file = std::fs::File::from(file.try_clone_to_owned().unwrap());
                assert_eq!(file.metadata().unwrap().len(), all as u64, "{what}");
            }
        }
    }
}

#[test]
fn the_largest_arena_is_in_whole_pages_of_the_system() {
    for size in SIZES {
        let (_alone, _page) = pretend(size);
        let error = Arena::new(ArenaParams { max_bytes: u64::MAX - 4095, ..Default::default() }).unwrap_err();
        let most = error.to_string().split(' ').next_back().unwrap().parse::<u64>().unwrap();
        assert!(most.is_multiple_of(size as u64), "{error}");
        let more = Arena::new(ArenaParams { max_bytes: most + 4096, ..Default::default() }).unwrap_err();
        assert_eq!(more.to_string().split(' ').next_back(), error.to_string().split(' ').next_back());
    }
}

#[test]
fn caller_memory_may_begin_and_end_within_a_system_page() {
    for size in SIZES {
        let (_alone, _page) = pretend(size);
        let mut memory = vec![7u8; 4 * size + 20 * PAGE_SIZE];
        let start = memory.as_mut_ptr().map_addr(|addr| addr.next_multiple_of(size) + PAGE_SIZE);
        let params = ArenaParams { prefault: true, mlock: true, ..Default::default() };
        // SAFETY: 17 pages from there lie in the vector, which outlives the arena.
        let arena = unsafe { Arena::over_caller_memory(start, 17 * PAGE_SIZE, params) }.unwrap();
        assert_eq!(use_every_page(&arena), 17, "exactly the caller's");
        drop(arena);
        assert_eq!(memory.iter().filter(|&&byte| byte != 7).count(), 34, "and nothing beside them");
    }
}

#[test]
fn a_description_names_the_systems_page() {
    let (_alone, _page) = pretend(64 << 10);
    let arena = Arena::new(params(64, Backing::Anonymous4k)).unwrap();
    assert!(arena.description().to_string().contains("64 KiB pages"), "{}", arena.description());
}
