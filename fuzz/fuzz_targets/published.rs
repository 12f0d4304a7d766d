//! Reads published files: libFuzzer's bytes, and a real file with some bytes changed.
//!
//! ```sh
//! fuzz/run published -max_len=8192 -max_total_time=60
//! ```
#![no_main]

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use pagepool::{Bound, Holders, Pool, PoolParams, publish, publish_entry};
use pagepool_testing::PlainMemory;
use pagepool_watch::testing::read_published;
use pagepool_watch::{MetricsFormat, write_metrics};

/// A file, and the offsets of its nonzero words.
struct Real {
    bytes: Vec<u8>,
    words: Vec<usize>,
}

/// A file with a pool of each kind and another entry.
fn real() -> Real {
    let folder = std::env::temp_dir().join(format!("pagepool-fuzz-{}", std::process::id()));
    // SAFETY: libFuzzer calls the target on its only thread.
    unsafe { std::env::set_var("PAGEPOOL_RUN", &folder) };
    let publication = publish("fuzz").expect("the folder is writable");
    let memory = PlainMemory::new(512, 0).expect("the memory is small");
    let sites = Holders::Sites { stacks: std::num::NonZeroU32::new(30) };
    let kinds = [(0, 0, Holders::Off), (2, 0, sites), (3, 8, Holders::Off)];
    let pools = kinds.map(|(max_lanes, defer_capacity, holders)| {
        let params = PoolParams { max_lanes, defer_capacity, holders, ..Default::default() };
        let pool = Pool::new(params, memory.clone()).expect("the parameters are valid").bind();
        pool.set_tag(Some(pool.tag("a tag")));
        pool
    });
    let pages = |pool| std::iter::repeat_with(move || Bound::alloc_page(pool)).take(90).flatten();
    let mut buffers: Vec<_> = pools.iter().flat_map(pages).collect();
    let _kept: Vec<_> = buffers.drain(80..100).collect();
    std::thread::spawn(|| drop(buffers)).join().expect("a drop does not panic");
    let entry = publish_entry("port", 1, 2, "a port", &[("key", "value")], &["one", "two"]);
    let mut bytes = std::fs::read(publication.path()).expect("the file is readable");
    bytes.truncate(bytes.iter().rposition(|&byte| byte != 0).map_or(0, |at| at + 1));
    drop((entry, publication));
    let pools = read_published(&bytes).expect("the file is valid").pools;
    assert_eq!((pools.len(), pools.iter().filter(|pool| pool.holders.is_some()).count()), (3, 1));
    std::fs::remove_dir(folder).expect("the folder is empty");
    let words = bytes.chunks(8).zip((0..).step_by(8)).filter(|(word, _)| word.iter().any(|&byte| byte != 0));
    let words = words.map(|(_, at)| at).collect();
    Real { bytes, words }
}

fuzz_target!(|input: &[u8]| {
    static REAL: OnceLock<Real> = OnceLock::new();
    let real = REAL.get_or_init(real);
    let _ = read_published(input);
    // Eleven bytes change a number: its place, its length and its value.
    let mut changed = real.bytes.clone();
    for change in input.chunks_exact(11) {
        let at = u16::from_le_bytes([change[0], change[1]]) as usize;
        // The header, the schema, the first rows of threads and entries, or any nonzero word.
        let word = real.words[at % real.words.len()] + change[2] as usize % 8;
        let at = [at % 256, 4096 + at % 3072, 4096 + 14336 + 32768 + at % 4096, word][change[2] as usize % 4];
        let len = [1, 2, 4, 8][change[2] as usize / 4 % 4];
        if let Some(place) = changed.get_mut(at..at + len) {
            place.copy_from_slice(&change[3..3 + len]);
        }
    }
    if let Some(&cut) = input.get(input.len() / 11 * 11) {
        changed.truncate(changed.len() / 255 * cut as usize);
    }
    if let Ok(process) = read_published(&changed) {
        let mut text = format!("{process:?}");
        write_metrics(&mut text, &[process], MetricsFormat::OpenMetrics, &|_, _| None);
    }
});
