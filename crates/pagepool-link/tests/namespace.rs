//! Network namespaces, against the kernel.

#![expect(clippy::unwrap_used, reason = "a test fails where it cannot go on")]

use std::cell::RefCell;
use std::net::TcpListener;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pagepool_lab::or_skip;
use pagepool_link::{Namespace, Netlink};

/// Nothing here takes as long.
const LIMIT: Duration = Duration::from_secs(60);

/// A namespace, if this machine can have one.
fn namespace(test: &str) -> Option<Namespace> {
    or_skip(test, Namespace::new("test"))
}

fn names(netlink: &mut Netlink) -> Vec<String> {
    netlink.links().unwrap().into_iter().map(|link| link.name).collect()
}

/// The namespaces that threads of this process are in.
fn namespaces_of_threads() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    // A thread may end meanwhile.
    let of = |task: std::fs::DirEntry| std::fs::read_link(task.path().join("ns/net")).ok();
    tasks.filter_map(|task| of(task.unwrap())).map(|at| at.to_string_lossy().into_owned()).collect()
}

/// Takes its time when it is dropped, then says so.
struct SlowEnd(Arc<AtomicBool>);

impl Drop for SlowEnd {
    fn drop(&mut self) {
        thread::sleep(Duration::from_millis(50));
        self.0.store(true, Ordering::Release);
    }
}

thread_local! {
    /// What ends with a thread.
    static AT_THE_END: RefCell<Option<SlowEnd>> = const { RefCell::new(None) };
}

#[test]
fn a_namespace_is_its_own_and_ends_when_dropped() {
    let Some(lab) = namespace("a_namespace_is_its_own_and_ends_when_dropped") else { return };
    let is_in = |id: u64| namespaces_of_threads().iter().any(|at| *at == format!("net:[{id}]"));
    let id = lab.run(|| std::fs::metadata("/proc/thread-self/ns/net").unwrap().ino());
    assert!(is_in(id));
    assert_eq!(names(&mut lab.netlink().unwrap()), ["lo"]);
    let spawned = lab.spawn("inside", || names(&mut Netlink::open().unwrap())).unwrap();
    assert_eq!(spawned.join().unwrap(), ["lo"]);
    let panicked =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| lab.run(|| panic!("for the test"))));
    assert!(panicked.is_err());
    assert_eq!(lab.run(|| 7), 7, "it goes on after a panic");
    let ended = Arc::new(AtomicBool::new(false));
    let end = SlowEnd(ended.clone());
    lab.run(move || AT_THE_END.set(Some(end)));
    drop(lab);
    assert!(ended.load(Ordering::Acquire), "its thread was joined");
    // The kernel lets go of a thread, and so of what it was in, some time after it can be joined.
    let start = Instant::now();
    while is_in(id) {
        assert!(start.elapsed() < LIMIT, "a thread is in it, {LIMIT:?} after it was dropped");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn work_may_start_more_work_and_hold_the_namespace() {
    let Some(lab) = namespace("work_may_start_more_work_and_hold_the_namespace") else { return };
    let lab = Arc::new(lab);
    let inner = lab.clone();
    assert_eq!(lab.run(move || inner.run(|| 3)), 3);
    let inner = lab.clone();
    let (done, ended) = std::sync::mpsc::channel();
    let work = lab.spawn("asks", move || inner.run(move || done.send(()).unwrap())).unwrap();
    ended.recv_timeout(LIMIT).unwrap();
    work.join().unwrap();
    assert_eq!(Arc::strong_count(&lab), 1);
}

#[test]
fn sockets_stay_in_the_namespace_they_were_made_in() {
    let Some(lab) = namespace("sockets_stay_in_the_namespace_they_were_made_in") else { return };
    let mut netlink = lab.netlink().unwrap();
    let loopback = netlink.link("lo").unwrap().index;
    netlink.set_up(loopback, true).unwrap();
    let listener = lab.run(|| TcpListener::bind("127.0.0.1:0")).unwrap();
    let at = listener.local_addr().unwrap();
    assert!(lab.run(move || std::net::TcpStream::connect_timeout(&at, LIMIT)).is_ok());
    let elsewhere = Namespace::new("elsewhere").unwrap();
    assert!(elsewhere.run(move || std::net::TcpStream::connect_timeout(&at, LIMIT)).is_err());
}
