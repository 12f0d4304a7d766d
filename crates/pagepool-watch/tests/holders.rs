//! Who holds what for how long, in the files of processes that run, and of one that was killed.
#![allow(clippy::unwrap_used)]

use std::env;
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::Duration;

use crate::published::{Folder, ROLE, in_child};
use crate::recording_pool::{SITES, held, params, pool};
use pagepool::{
    Arena, ArenaParams, Bound, Holders, HoldersView, PageBuf, Pool, PoolParams, Publication, publish,
};
use pagepool_watch::Life;
use pagepool_watch::testing::read_published;

/// A process that holds buffers under two tags, here and on another thread, and is killed.
fn be_killed() {
    let _publication = publish("killed").unwrap();
    let stacks = std::num::NonZeroU32::new(8);
    let pool = pool(PoolParams { name: "rx".into(), ..params(Holders::Sites { stacks }) });
    pool.set_tag(Some(pool.tag("stack")));
    let mut kept: Vec<_> = (0..70).map(|_| pool.alloc_page().unwrap()).collect();
    pool.set_tag(None);
    kept.extend((0..9).map(|_| pool.alloc_frag(1000).unwrap()));
    let other = pool.tag("other");
    kept.extend((0..100).map(|_| pool.alloc_page().unwrap()).collect::<Vec<_>>().drain(..50));
    kept.iter_mut().step_by(10).for_each(|buffer| buffer.set_tag(other));
    kept.drain(20..40);
    println!("holds {:?}", known(held(&pool.handle())));
    std::io::stdin().lock().read_until(b'\n', &mut Vec::new()).unwrap();
    drop(kept);
}

/// All but the time, which goes on.
fn known(mut view: HoldersView) -> HoldersView {
    view.ages = Default::default();
    view.oldest.iter_mut().for_each(|holder| holder.age = None);
    view.groups.iter_mut().for_each(|group| group.oldest = Duration::ZERO);
    view.groups.sort_by_key(|group| format!("{group:?}"));
    view
}

/// Pools without number, whose records would fill the file, then one that has none.
#[test]
fn records_leave_room_for_pools() {
    let this = "holders::records_leave_room_for_pools";
    if in_child(this, "").is_some_and(|child| child.succeeded()) {
        return;
    }
    let _folder = Folder::of_child();
    let publication = publish("crowded").unwrap();
    let mib = [1024, 1024, 1024, 512, 512, 256, 256, 128, 128, 64, 32, 16];
    let pools = mib.map(|mib| {
        let arena = Arena::new(ArenaParams { max_bytes: mib << 20, ..Default::default() }).unwrap();
        let pool = Pool::new(PoolParams { max_lanes: 2, ..params(Holders::Ages) }, arena).unwrap().bind();
        let page = pool.alloc_page().unwrap();
        (pool, page)
    });
    let plain = pool(PoolParams::default());
    let seen = read_published(&std::fs::read(publication.path()).unwrap()).unwrap();
    assert_eq!((seen.pools.len(), seen.not_shown), (pools.len() + 1, 0));
    let with_holders = seen.pools.iter().filter(|pool| pool.holders.as_ref().is_some_and(|it| it.held == 1));
    assert!((2..pools.len()).contains(&with_holders.count()), "of the first, not of all");
    drop((plain, pools));
}

#[test]
fn the_file_of_a_killed_process_says_who_held_what() {
    if env::var_os(ROLE).is_some() {
        return be_killed();
    }
    let folder = Folder::new();
    let this = "holders::the_file_of_a_killed_process_says_who_held_what";
    let mut command = folder.command(this, "be killed");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let holds = said.find(|line| line.starts_with("holds ")).unwrap();
    let seen = |alive: bool| {
        let process = folder.runs.processes().remove(0).unwrap();
        assert_eq!(matches!(process.life, Life::Alive), alive);
        let pool = process.pools[0].clone();
        assert_eq!(pool.params.iter().find(|(key, _)| key == "holders").unwrap().1, "sites, 1 stack in 8");
        assert_eq!(pool.holders.as_ref().unwrap().held, pool.inflight.out + pool.inflight.frag);
        pool.holders.unwrap()
    };
    let living = seen(true);
    assert_eq!(living.ages.iter().sum::<u64>(), living.held);
    assert!(living.oldest[0].age.unwrap() < Duration::from_secs(60), "{living:?}");
    assert_eq!(format!("holds {:?}", known(living)), holds);
    child.kill().unwrap();
    child.wait().unwrap();
    let dead = seen(false);
    assert!(dead.oldest[0].age.unwrap() < Duration::from_secs(60) && dead.held > 100, "{dead:?}");
    assert_eq!(format!("holds {:?}", known(dead)), holds);
}

/// Fragments of 1,000 bytes, four in a page, and the pages that are out.
fn cut(pool: &Bound, n: usize) -> Vec<PageBuf> {
    (0..n).map(|_| pool.alloc_frag(1000).unwrap()).collect()
}

/// Returns buffers on a thread that has no other.
fn return_elsewhere(buffers: Vec<PageBuf>) {
    std::thread::spawn(move || drop(buffers)).join().unwrap();
}

/// Pages out by the file of a publication, which says what the process says.
fn seen_out(publication: &Publication, pool: &Bound) -> u64 {
    let process = read_published(&std::fs::read(publication.path()).unwrap()).unwrap();
    let seen = process.pools.into_iter().find(|seen| seen.id == pool.handle().id()).unwrap();
    assert_eq!(seen.inflight, pool.inflight());
    assert_eq!(seen.holders.map(|it| it.held), pool.handle().holders().map(|it| it.held));
    seen.inflight.out
}

#[test]
fn the_file_says_of_splits_what_the_process_says() {
    let this = "holders::the_file_says_of_splits_what_the_process_says";
    if in_child(this, "").is_some_and(|child| child.succeeded()) {
        return;
    }
    let publication = publish("splits").unwrap();
    let pool = pool(params(SITES));
    let elsewhere = |mut page: PageBuf, at| {
        let split = move || page.split_off(at).map(|rest| (page, rest)).unwrap();
        std::thread::spawn(split).join().unwrap()
    };
    let here = |page: PageBuf, at| page.split_at(at).unwrap();
    type Split<'a> = &'a dyn Fn(PageBuf, usize) -> (PageBuf, PageBuf);
    // Every place of two splits of a page, and every place and order of the returns of its three parts.
    let splits: [[Split; 2]; 4] = [[&here, &here], [&here, &elsewhere], [&elsewhere, &here], [&elsewhere; 2]];
    for ([first, second], order) in
        splits.into_iter().flat_map(|split| (0..48).map(move |order| (split, order)))
    {
        let (one, rest) = first(pool.alloc_page().unwrap(), 1000);
        let (two, three) = second(rest, 1000);
        let mut parts = vec![one, two, three];
        parts.swap(0, order % 3);
        parts.swap(1, 1 + order / 3 % 2);
        for (at, part) in parts.into_iter().enumerate() {
            assert_eq!(seen_out(&publication, &pool), 1, "order {order}, {at} parts returned");
            match (order / 6) >> at & 1 {
                0 => drop(part),
                _ => return_elsewhere(vec![part]),
            }
        }
        assert_eq!(seen_out(&publication, &pool), 0, "order {order}");
        pool.shrink(0);
    }
    drop(publication);
}

#[test]
fn the_file_says_of_fragments_what_the_process_says() {
    let this = "holders::the_file_says_of_fragments_what_the_process_says";
    if in_child(this, "").is_some_and(|child| child.succeeded()) {
        return;
    }
    let publication = publish("fragments").unwrap();
    for holders in [SITES, Holders::Off] {
        let pool = pool(PoolParams { lane_size: 64, ring_size: 8, ..params(holders) });
        let seen = || seen_out(&publication, &pool);
        let whole = pool.alloc_page().unwrap();
        for n in [64, 400] {
            let frags = cut(&pool, n);
            assert_eq!(seen(), n as u64 / 4); // with the whole one, and one page that is being cut
            let mut frags = frags;
            if holders != Holders::Off {
                return_elsewhere(frags.extract_if(.., |frag| frag.offset() == 0).collect());
                assert_eq!(seen(), n as u64 / 4, "one of each page returned");
                frags.extract_if(.., |frag| frag.offset() < 2000).for_each(drop);
                assert_eq!(seen(), n as u64 / 4, "one more of each page, here");
            }
            return_elsewhere(frags);
            assert_eq!(seen(), 1, "{n} fragments returned");
            drop(cut(&pool, 8)); // which takes in what is at the head of the lane
            let held = pool.handle().holders().map(|it| it.held - pool.inflight().frag);
            assert!(seen() == 1 && held.is_none_or(|held| held == 1), "{n} fragments returned");
            pool.shrink(0);
        }
        drop(whole);
    }
    drop(publication);
}
