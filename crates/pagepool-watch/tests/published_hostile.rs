//! Files that claim to be published: damaged, of another user, changing. Each gives an error or a value,
//! and nothing else.
#![allow(clippy::unwrap_used)]

use std::fs::{self, File};
use std::num::NonZeroU32;
use std::os::unix::fs::{chown, symlink};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::published::{Folder, in_child};
use pagepool::{Holders, MOST_GROUPS, Pool, PoolParams, publish, publish_entry};
use pagepool_testing::PlainMemory;
use pagepool_watch::testing::read_published;

/// A file with all that a file can have.
fn published() -> Vec<u8> {
    let publication = publish("hostile").unwrap();
    let memory = PlainMemory::new(512, 0).unwrap();
    let stacks = NonZeroU32::new(100);
    let holders = [Holders::Off, Holders::Ages, Holders::Sites { stacks }];
    let kinds =
        [(0, 0), (2, 0), (16, 8)].into_iter().zip(holders).map(|((max_lanes, defer_capacity), holders)| {
            let params = PoolParams { max_lanes, defer_capacity, holders, ..Default::default() };
            let pool = Pool::new(params, memory.clone()).unwrap().bind();
            pool.set_tag(Some(pool.tag("a tag")));
            pool
        });
    let kinds: Vec<_> = kinds.collect();
    let buffers: Vec<_> = kinds.iter().flat_map(|pool| (0..90).filter_map(|_| pool.alloc_page())).collect();
    let mut buffers = buffers.into_iter();
    let _kept: Vec<_> = buffers.by_ref().step_by(2).take(60).collect();
    std::thread::spawn(|| drop(buffers)).join().unwrap();
    let _entry = publish_entry("port", 1, 2, "a port", &[("key", "value")], &["one", "two"]);
    let mut bytes = fs::read(publication.path()).unwrap();
    bytes.truncate(bytes.iter().rposition(|&byte| byte != 0).unwrap().next_multiple_of(4096));
    let seen = read_published(&bytes).unwrap();
    assert_eq!((seen.pools.len(), seen.entries.len()), (3, 1));
    let holders: Vec<_> = seen.pools.iter().map(|pool| pool.holders.as_ref().map(|seen| seen.held)).collect();
    assert!(holders[0].is_none() && holders[1..].iter().flatten().sum::<u64>() > 0, "{holders:?}");
    bytes
}

/// Numbers that lead out of bounds, over the top, or to something else.
const EVIL: [u64; 11] = [0, 1, 2, 7, 63, 4096, 1 << 20, 16 << 20, u32::MAX as u64, 1 << 63, u64::MAX];

#[test]
fn no_damaged_file_does_more_than_give_an_error() {
    let this = "published_hostile::no_damaged_file_does_more_than_give_an_error";
    if in_child(this, "").is_some_and(|child| child.succeeded()) {
        return;
    }
    let _folder = Folder::of_child();
    let mut bytes = published();
    let (mut errors, mut values) = (0, 0);
    let mut count = |bytes: &[u8]| match read_published(bytes) {
        Ok(seen) => values += u32::from(seen.pools.len() <= 1024),
        Err(error) => errors += u32::from(!error.to_string().is_empty()),
    };
    for at in (0..bytes.len()).step_by(4) {
        // Tables and blocks are mostly zeroes.
        if at > 512 && bytes[at..][..4] == [0; 4] {
            continue;
        }
        for evil in (at / 4..at / 4 + 3).map(|turn| EVIL[turn % EVIL.len()]) {
            let was: [u8; 8] = std::array::from_fn(|i| bytes.get(at + i).copied().unwrap_or(0));
            let end = bytes.len().min(at + 8);
            bytes[at..end].copy_from_slice(&evil.to_ne_bytes()[..end - at]);
            count(&bytes);
            bytes[at..end].copy_from_slice(&was[..end - at]);
        }
    }
    for len in (0..512).chain((512..bytes.len()).step_by(8191)) {
        count(&bytes[..len]);
    }
    println!("{errors} errors, {values} values");
    assert!(errors > 300 && values > 1000, "{errors} errors, {values} values");
}

#[test]
fn what_is_no_file_of_the_user_is_an_error() {
    let folder = Folder::new();
    let path = folder.runs.path();
    assert!(
        folder.runs.processes().is_empty() && folder.runs.clean().unwrap().is_empty(),
        "there is no folder"
    );
    fs::create_dir(path).unwrap();
    symlink("/etc/passwd", path.join("link.pagepool")).unwrap();
    fs::create_dir(path.join("folder.pagepool")).unwrap();
    fs::write(path.join("something else"), "which is not looked at").unwrap();
    assert!(Command::new("mkfifo").arg(path.join("fifo.pagepool")).status().unwrap().success());
    let seen = folder.runs.processes();
    assert_eq!(seen.iter().filter(|seen| seen.is_err()).count(), 3, "{seen:?}");
    assert!(folder.runs.clean().unwrap().is_empty());

    // Those that nobody holds are errors, and are cleaned away.
    fs::write(path.join("empty.pagepool"), "").unwrap();
    fs::write(path.join("zeroes.pagepool"), [0; 5000]).unwrap();
    fs::write(path.join("text.pagepool"), "PAGEPOOL".repeat(1000)).unwrap();
    fs::write(path.join("other.pagepool"), "made by something else").unwrap();
    fs::write(path.join(".half.1.new"), [[0; 8], [1; 8]].concat()).unwrap();
    fs::write(path.join(".other.new"), "made by something else").unwrap();
    assert_eq!(folder.runs.processes().iter().filter(|seen| seen.is_err()).count(), 7);
    let cleaned = || {
        let mut all: Vec<_> = folder.runs.clean().unwrap().into_iter().map(Result::unwrap).collect();
        all.sort();
        all.iter().map(|path| path.file_name().unwrap().to_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    match chown(path.join("text.pagepool"), Some(1), None) {
        Ok(()) => assert_eq!(cleaned(), [".half.1.new", "empty.pagepool", "zeroes.pagepool"]),
        Err(_) => {
            println!("SKIP: only root may give a file away");
            assert_eq!(cleaned(), [".half.1.new", "empty.pagepool", "text.pagepool", "zeroes.pagepool"]);
        }
    }
    assert!(cleaned().is_empty());
    assert!(path.join("other.pagepool").exists() && path.join(".other.new").exists());
}

/// A program that reads another version says so, and what to use.
#[test]
fn a_file_of_another_version_is_a_clear_error() {
    let this = "published_hostile::a_file_of_another_version_is_a_clear_error";
    if in_child(this, "").is_some_and(|child| child.succeeded()) {
        return;
    }
    let _folder = Folder::of_child();
    let mut bytes = published();
    for version in [2u32, 4] {
        bytes[8..12].copy_from_slice(&version.to_ne_bytes());
        let error = read_published(&bytes).unwrap_err().to_string();
        assert!(error.contains(&format!("with {version}")), "{error}");
        assert!(error.contains("layout version 3: use the pagepool version of that process"), "{error}");
    }
}

/// Where holders lead out of bounds, the pool is not shown, and others are.
#[test]
fn holders_that_lead_nowhere_hide_their_pool_alone() {
    let this = "published_hostile::holders_that_lead_nowhere_hide_their_pool_alone";
    if in_child(this, "").is_some_and(|child| child.succeeded()) {
        return;
    }
    let _folder = Folder::of_child();
    let bytes = published();
    let number = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap()) as usize;
    let rows = number(88);
    let sites = (0..3).map(|row| rows + row * 920).find(|&row| {
        let params = bytes[row + 232..row + 920].windows(13);
        params.into_iter().any(|text| text == b"holders=sites")
    });
    let head = number(sites.unwrap() + 128);
    // The records: their place, bytes of one, how many; rows of sites in use; the order.
    for (at, evil) in [(0, u64::MAX), (8, 0), (16, 1 << 40), (120, 257), (152, 11), (152, u64::MAX)] {
        let mut damaged = bytes.clone();
        damaged[head + at..head + at + 8].copy_from_slice(&evil.to_ne_bytes());
        let seen = read_published(&damaged).unwrap();
        assert_eq!((seen.pools.len(), seen.not_shown), (2, 1), "{evil} at {at}");
    }
}

/// Rows that all lead to the same records, each in a group of its own, cost no more than a file has.
#[test]
fn records_are_read_once_or_twice_and_few_groups_have_texts() {
    let this = "published_hostile::records_are_read_once_or_twice_and_few_groups_have_texts";
    if in_child(this, "").is_some_and(|child| child.succeeded()) {
        return;
    }
    let _folder = Folder::of_child();
    let mut bytes = published();
    let number = |bytes: &[u8], at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap());
    let rows = number(&bytes, 88) as usize;
    let has_sites =
        |row: &usize| bytes[row + 232..row + 920].windows(13).any(|text| text == b"holders=sites");
    let sites = (0..3).map(|row| rows + row * 920).find(has_sites).unwrap();
    let (head, row) = (number(&bytes, sites + 128) as usize, bytes[sites..sites + 920].to_vec());
    // Records from here to the end of the file: since, and four ids.
    let first = bytes.len();
    bytes.resize(16 << 20, 0);
    let count = (bytes.len() - first) / 24;
    for (at, record) in bytes[first..].chunks_exact_mut(24).enumerate() {
        record[..8].copy_from_slice(&(1u64 << 16).to_ne_bytes());
        record[8..16].copy_from_slice(&(at as u64).to_ne_bytes());
    }
    bytes[head..head + 8].copy_from_slice(&(first as u64).to_ne_bytes());
    bytes[head + 16..head + 24].copy_from_slice(&(count as u64).to_ne_bytes());
    for at in 0..20 {
        bytes[rows + at * 920..rows + at * 920 + 920].copy_from_slice(&row);
    }
    bytes[100..104].copy_from_slice(&20u32.to_ne_bytes());
    let seen = read_published(&bytes).unwrap();
    assert_eq!((seen.pools.len(), seen.not_shown, seen.not_read), (2, 18, 18));
    let view = seen.pools[0].holders.as_ref().unwrap();
    assert_eq!((view.held, view.groups.len()), (count as u64, MOST_GROUPS));
    assert_eq!(view.more_groups, (count - MOST_GROUPS) as u64);
}

#[test]
fn a_bad_row_hides_no_other_and_an_error_keeps_the_counters() {
    let this = "published_hostile::a_bad_row_hides_no_other_and_an_error_keeps_the_counters";
    if in_child(this, "").is_some_and(|child| child.succeeded()) {
        return;
    }
    let folder = Folder::of_child();
    let publication = publish("early").unwrap();
    let pool = Pool::new(PoolParams::default(), PlainMemory::new(64, 0).unwrap()).unwrap().bind();
    let _entry = publish_entry("port", 1, 1, "a port", &[], &["one"]).unwrap();
    let early = fs::read(publication.path()).unwrap();
    drop(pool.alloc_page());
    let later = fs::read(publication.path()).unwrap();
    drop(publication);
    let path = folder.runs.path().join("early.1.pagepool");
    let look = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        folder.runs.processes().remove(0)
    };
    let counted = look(&later).unwrap().pools[0].stats;
    assert!(counted.alloc_slow == 1 && look(b"no published file").is_err());
    assert_eq!(look(&early).unwrap().pools[0].stats, counted);

    let entries = u64::from_ne_bytes(early[88..96].try_into().unwrap()) as usize;
    let is_port = |row: &usize| early[row + 152..].starts_with(b"port");
    let row = (0..10).map(|at| entries + at * 920).find(is_port).unwrap();
    let mut damaged = early.clone();
    damaged[row + 64..row + 72].fill(0xff);
    let seen = look(&damaged).unwrap();
    assert_eq!((seen.pools.len(), seen.entries.len(), seen.not_shown), (1, 0, 1));
}

#[test]
fn a_file_that_shrinks_while_it_is_read_is_an_error() {
    let this = "published_hostile::a_file_that_shrinks_while_it_is_read_is_an_error";
    if in_child(this, "").is_some_and(|child| child.succeeded()) {
        return;
    }
    let folder = Folder::of_child();
    let bytes = published();
    assert!(folder.runs.processes().is_empty(), "its file went with it");
    let path = folder.runs.path().join("hostile.1.pagepool");
    fs::write(&path, &bytes).unwrap();
    let done = AtomicBool::new(false);
    let (mut errors, mut values) = (0, 0);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let file = File::options().write(true).open(&path).unwrap();
            while !done.load(Ordering::Relaxed) {
                for len in [100, 5000, bytes.len() / 2, 1 << 20] {
                    file.set_len(len as u64).unwrap();
                }
                fs::write(&path, &bytes).unwrap();
            }
        });
        let start = Instant::now();
        // At least so often, and until the other thread was met.
        while values + errors < 2000 || errors == 0 && start.elapsed() < Duration::from_secs(60) {
            match folder.runs.processes().remove(0) {
                Ok(_) => values += 1,
                Err(_) => errors += 1,
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    assert!(errors > 0, "{errors} errors, {values} values");
}
