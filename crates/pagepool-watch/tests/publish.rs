//! What a process publishes, seen by another: equal to what it counts itself, also when it is killed.
//!
//! A process publishes once, so each test that publishes runs itself again, with a name in its environment.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::mpsc::channel;
use std::time::SystemTime;

use crate::published::{Folder, in_child};
use pagepool::{
    Arena, ArenaParams, Bound, Error, Holders, IdentityDomain, Inflight, PageBuf, Pool, PoolParams, PoolRef,
    Provider, Registry, UseCounts, prepare_thread, publish, publish_entry,
};
use pagepool_testing::PlainMemory;
use pagepool_watch::{Life, PoolView, ProcessView, RunFolder};

fn only(folder: &RunFolder) -> ProcessView {
    let mut all = folder.processes();
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0).unwrap()
}

fn same(seen: &PoolView, pool: &PoolRef) {
    assert_eq!((seen.id, seen.mem_id), (pool.id(), pool.mem_id().get()));
    assert_eq!((seen.name.as_str(), seen.area_id), (pool.name(), pool.area().id()));
    assert_eq!(seen.stats, pool.stats());
    assert_eq!(exact(seen.inflight), exact(pool.inflight()));
    assert!(seen.inflight.out <= pool.inflight().out, "some of a page's fragments may have returned");
    assert!(seen.inflight.uncollected >= pool.inflight().uncollected);
    assert_eq!(seen.deferred, pool.deferred_stats());
    assert_eq!(seen.frag_waste, pool.frag_waste());
    assert_eq!(seen.detached.is_some(), pool.is_destroyed());
    assert_eq!(seen.inflight_bytes(), pool.inflight().total as u64 * seen.page_bytes);
}

/// The places that a file knows exactly; of pages in fragments it does not know which are complete.
fn exact(at: Inflight) -> (i64, [u64; 6]) {
    (at.total, [at.cache, at.lanes, at.ring, at.frag, at.deferred, at.uncollected + at.out])
}

fn pool(params: PoolParams, pages: usize) -> Bound {
    Pool::new(params, PlainMemory::new(pages, 0).unwrap()).unwrap().bind()
}

/// Buffers that return on other threads, through lanes and the ring, whole and in parts.
fn work(pool: &Bound) -> Vec<PageBuf> {
    let (send, receive) = channel::<PageBuf>();
    let mut buffers: Vec<_> = (0..150).map(|_| pool.alloc_page().unwrap()).collect();
    buffers.extend((0..100).map(|_| pool.alloc_frag(700).unwrap()));
    buffers.drain(120..180).for_each(drop);
    std::thread::scope(|threads| {
        threads.spawn(|| receive.into_iter().for_each(drop));
        buffers.drain(30..170).for_each(|buffer| send.send(buffer).unwrap());
        drop(send);
    });
    (0..20).for_each(|_| drop(pool.alloc_page()));
    buffers
}

#[test]
fn all_numbers_of_every_pool_are_those_that_it_counts_itself() {
    let this = "publish::all_numbers_of_every_pool_are_those_that_it_counts_itself";
    if in_child(this, "").is_some_and(|child| child.succeeded()) {
        return;
    }
    let folder = Folder::of_child();
    let publication = publish("numbers").unwrap();
    assert_eq!(fs::metadata(publication.path()).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(matches!(publish("again"), Err(Error::Busy { .. })));
    let kinds = [
        PoolParams { name: "lanes".into(), ..Default::default() },
        PoolParams {
            name: "few slots".into(),
            max_lanes: 1,
            lane_size: 4,
            ring_size: 8,
            ..Default::default()
        },
        PoolParams { name: "ring".into(), max_lanes: 0, ..Default::default() },
        PoolParams { name: "deferred".into(), defer_capacity: 64, ..Default::default() },
        PoolParams { name: "most".into(), max_lanes: 64, tagging: true, wakeup: true, ..Default::default() },
    ];
    let pools: Vec<Bound> = kinds.into_iter().map(|params| pool(params, 1024)).collect();
    let held: Vec<_> = pools.iter().map(work).collect();
    let counts = UseCounts::new(9);
    (5..9).for_each(|at| counts.take(at));
    let user = pools[3].deferred_user(counts).unwrap();
    (0..9).for_each(|at| pools[3].defer(&user, pools[3].alloc_page().unwrap(), at).unwrap());
    pools[3].poll_deferred();
    let seen = only(&folder.runs);
    assert_eq!((seen.name.as_str(), seen.pid, seen.life), ("numbers", std::process::id(), Life::Alive));
    assert_eq!((seen.not_shown, seen.version.as_str()), (0, env!("CARGO_PKG_VERSION")));
    assert!(seen.started <= SystemTime::now() && seen.pools.len() == pools.len());
    for (seen, pool) in seen.pools.iter().zip(&pools) {
        same(seen, &pool.handle());
        let thread = seen.thread.as_ref().unwrap();
        assert!(fs::exists(format!("/proc/self/task/{}", thread.tid)).unwrap(), "{thread:?}");
        assert_eq!(
            Some(&thread.name[..]),
            std::thread::current().name().map(|name| &name[..15.min(name.len())])
        );
    }
    let params: BTreeMap<_, _> = seen.pools[1].params.iter().cloned().collect();
    assert_eq!((&params["lane_size"][..], &params["refill"][..], &params["nid"][..]), ("4", "64", "any"));
    assert_eq!((&params["colour"][..], &params["colours"][..]), ("1", "1"), "max_len takes the whole page");

    // Ended pools are seen until their last buffer returned, and count what returns meanwhile.
    let handles: Vec<PoolRef> = pools.iter().map(Bound::handle).collect();
    let shutdowns: Vec<_> = pools.into_iter().map(Bound::destroy).collect();
    let mut held: Vec<_> = held.into_iter().flatten().collect();
    while !held.is_empty() {
        let seen = only(&folder.runs);
        for pool in seen.pools {
            same(&pool, handles.iter().find(|handle| handle.id() == pool.id).unwrap());
            assert_eq!(pool.thread, None);
        }
        held.truncate(held.len().saturating_sub(37));
    }
    drop(shutdowns);
    let seen = only(&folder.runs);
    assert_eq!(seen.pools.len(), 1, "deferred buffers are leaked, all others returned");
    assert_eq!((seen.pools[0].name.as_str(), seen.pools[0].deferred.leaked), ("deferred", 4));
    drop(publication);
    assert!(folder.runs.processes().is_empty());
    drop(pool(PoolParams::default(), 64).alloc_page());
}

#[test]
fn what_is_published_comes_and_goes_and_uses_its_room_again() {
    let this = "publish::what_is_published_comes_and_goes_and_uses_its_room_again";
    if in_child(this, "").is_some_and(|child| child.succeeded()) {
        return;
    }
    let folder = Folder::of_child();
    let publication = publish("entries").unwrap();
    let socket =
        publish_entry("socket", 7, 3, "eth0:0", &[("ifindex", "5")], &["rx\u{7}dropped", "full"]).unwrap();
    socket.set(1, 17);
    socket.add(1, 3);
    let arena =
        Arena::new(ArenaParams { name: "memory".into(), max_bytes: 16 << 20, ..Default::default() }).unwrap();
    let domains = vec![std::sync::Arc::new(IdentityDomain::new("nic0")) as _];
    let pool = Pool::new(PoolParams { domains, ..Default::default() }, arena.clone()).unwrap().bind();
    let seen = only(&folder.runs);
    let entry = |kind: &str| seen.entries.iter().find(|entry| entry.kind == kind).unwrap();
    assert_eq!(entry("socket").counters, [("rx?dropped".into(), 0), ("full".into(), 20)]);
    assert_eq!((entry("socket").id, entry("socket").parent), (7, 3));
    assert_eq!(entry("arena").id, pool.handle().area().id());
    assert_eq!(entry("domain").parent, entry("arena").id);
    let got = ("got".to_owned(), arena.description().got.to_string());
    assert!(entry("arena").params.contains(&got), "{:?}", entry("arena"));
    let counter = |kind, name| entry(kind).counters.iter().find(|(key, _)| key == name).unwrap().1;
    assert_eq!(counter("arena", "committed_bytes"), arena.description().committed_bytes);
    assert_eq!(counter("domain", "mapped_bytes"), arena.area().present_bytes());
    drop((socket, pool, arena));
    assert_eq!(only(&folder.runs).entries, []);
    for _ in 0..5000 {
        let memory = PlainMemory::new(8, 0).unwrap();
        drop(Pool::new(PoolParams::default(), memory).unwrap());
    }
    assert_eq!(only(&folder.runs).not_shown, 0, "rows and blocks are used again");
    for number in 0..300 {
        // Of another size each time: 16 bytes for each page.
        let memory = PlainMemory::new(4096 + 8 * number, 0).unwrap();
        let params = PoolParams { holders: Holders::Ages, ..Default::default() };
        let pool = Pool::new(params, memory).unwrap();
        if number % 100 == 99 {
            let seen = only(&folder.runs);
            assert_eq!(seen.not_shown, 0, "{number}: pools of all sizes have room");
            assert!(seen.pools[0].holders.is_some(), "{number}: and so have records");
        }
        drop(pool);
    }
    let entries: Vec<_> = (0..1030).map(|id| publish_entry("port", id, 0, "", &[], &[])).collect();
    assert_eq!(entries.iter().flatten().count(), 1024);
    let seen = only(&folder.runs);
    assert_eq!((seen.not_shown, seen.entries.len()), (6, 1024));
    drop(publication);
    assert!(publish_entry("port", 0, 0, "", &[], &[]).is_none());
}

#[test]
fn what_a_reader_would_refuse_is_not_entered_and_is_counted() {
    let this = "publish::what_a_reader_would_refuse_is_not_entered_and_is_counted";
    if in_child(this, "").is_some_and(|child| child.succeeded()) {
        return;
    }
    let folder = Folder::of_child();
    let _publication = publish("limits").unwrap();
    let enter = |kind, counters: &[&str]| publish_entry(kind, 1, 0, "", &[("a", "1\nb=2")], counters);
    let long = "x".repeat(4095);
    let shown = [enter("sixteen bytes is", &["x"; 256]), enter("names", &[&long]), enter("none", &[])];
    assert!(shown.iter().all(Option::is_some));
    let refused =
        [("pool", vec![]), ("pool\0", vec![]), ("seventeen bytes i", vec![]), ("port", vec!["x"; 257])];
    let names = [vec!["two\nlines"], vec!["zero\0byte"], vec![&*long, ""]].map(|names| ("port", names));
    let all: Vec<_> = refused.into_iter().chain(names).collect();
    assert!(all.iter().all(|(kind, counters)| enter(kind, counters).is_none()));
    let seen = only(&folder.runs);
    assert_eq!((seen.not_shown, seen.entries.len()), (all.len() as u64, 3));
    let counters: Vec<_> = seen.entries.iter().map(|entry| entry.counters.len()).collect();
    assert_eq!(counters, [1, 0, 256], "by kind");
    assert_eq!(seen.entries[0].params, [("a".into(), "1?b=2".into())]);
}

#[test]
fn a_pool_has_the_interface_of_its_socket_and_of_nothing_else() {
    let this = "publish::a_pool_has_the_interface_of_its_socket_and_of_nothing_else";
    if in_child(this, "").is_some_and(|child| child.succeeded()) {
        return;
    }
    let folder = Folder::of_child();
    let _publication = publish("interfaces").unwrap();
    let pool = pool(PoolParams::default(), 8);
    let id = pool.handle().id().into();
    let _device = publish_entry("device", id, id, "", &[("ifindex", "4")], &[]).unwrap();
    assert_eq!(only(&folder.runs).pools[0].ifindex, None);
    let _socket = publish_entry("socket", 9, id, "", &[("ifindex", "5")], &[]).unwrap();
    let seen = only(&folder.runs);
    assert_eq!(seen.pools[0].ifindex, Some(5));
    assert_eq!(seen.entries.iter().map(|entry| entry.pool_id()).collect::<Vec<_>>(), [None, Some(id)]);
}

#[test]
fn threads_are_known_by_their_names() {
    if in_child("publish::threads_are_known_by_their_names", "").is_some_and(|child| child.succeeded()) {
        return;
    }
    let folder = Folder::of_child();
    let _publication = publish("threads").unwrap();
    for round in 0..1040 {
        let name = format!("worker {round}");
        let thread = std::thread::Builder::new().name(name.clone()).spawn(|| {
            prepare_thread();
            let pool = pool(PoolParams::default(), 8);
            only(&RunFolder::of_user().unwrap()).pools[0].thread.clone().map(|thread| (thread, pool.unbind()))
        });
        let (thread, pool) = thread.unwrap().join().unwrap().unwrap();
        assert_eq!(thread.name, name);
        assert_eq!(only(&folder.runs).pools[0].thread, None, "it is bound to no thread any more");
        drop(pool);
    }
}

#[test]
fn bad_names_and_folders_are_refused_and_the_next_call_works() {
    let this = "publish::bad_names_and_folders_are_refused_and_the_next_call_works";
    if in_child(this, "").is_some_and(|child| child.succeeded()) {
        return;
    }
    let folder = Folder::of_child();
    for name in ["", ".hidden", "a/b", "a b", &"x".repeat(65)] {
        assert!(matches!(publish(name), Err(Error::Parameter { field: "name", .. })), "{name}");
    }
    let path = folder.runs.path();
    fs::create_dir(path).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
    assert!(publish("fine").unwrap_err().to_string().contains("no other user may write"));
    assert!(folder.runs.processes().remove(0).unwrap_err().to_string().contains("no other user may write"));
    fs::set_permissions(path, fs::Permissions::from_mode(0o750)).unwrap();
    let publication = publish("fine").unwrap();
    assert!(folder.runs.clean().unwrap().is_empty(), "it lives");
    drop(publication);
    assert_eq!(fs::read_dir(path).unwrap().count(), 0);
}

#[test]
fn a_process_with_a_pool_cannot_publish_and_hears_why() {
    let this = "publish::a_process_with_a_pool_cannot_publish_and_hears_why";
    if in_child(this, "").is_some_and(|child| child.succeeded()) {
        return;
    }
    let folder = Folder::of_child();
    let early = pool(PoolParams { name: "early".into(), ..Default::default() }, 8);
    let refused = publish("late").unwrap_err();
    assert!(matches!(refused, Error::Busy { .. }));
    let said = "existing pools cannot be published (1, such as \"early\"): publish before the first";
    assert!(refused.to_string().starts_with(said), "{refused}");
    assert!(folder.runs.processes().is_empty());
    let out = early.alloc_page();
    drop(early);
    assert!(matches!(publish("late").unwrap_err(), Error::Busy { .. }), "a buffer is out");
    drop(out);
    let registry = Some(Registry::new());
    let elsewhere = pool(PoolParams { registry, ..Default::default() }, 8);
    assert!(matches!(publish("late"), Err(Error::Busy { .. })), "a pool in a registry of its own");
    drop(elsewhere);
    let _publication = publish("late").unwrap();
    let _pool = pool(PoolParams::default(), 8);
    assert_eq!((only(&folder.runs).pools.len(), only(&folder.runs).not_shown), (1, 0));
}
