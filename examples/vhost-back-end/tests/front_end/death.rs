//! The back end dies while packets are on their way, and another one goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use pagepool::XdpFrame;
use pagepool_vhost_back_end::{BackEnd, Mode, Params};

use crate::host::Host;
use crate::{LIMIT, files, open, place, short_rings};

#[test]
fn another_back_end_goes_on_with_the_pool() {
    let (folder, socket) = place();
    let mut back_end = BackEnd::start(Params::new(&socket, Mode::Echo)).unwrap();
    let mut host = Host::open(&socket, "", &short_rings());
    for _ in 0..10 {
        host.exchange(500);
        let counts = back_end.stop();
        assert_eq!((counts.lost, counts.bad), (0, 0));
        host.run_until(usize::MAX, |host| host.device.stats().in_rx + host.device.stats().in_tx == 0);
        back_end = BackEnd::start(Params::new(&socket, Mode::Echo)).unwrap();
    }
    host.exchange(500);
    host.end();
    drop(back_end);
    assert_eq!(files(&folder), 0);
}

#[test]
fn buffers_held_by_another_thread_return_later() {
    let (_folder, socket) = place();
    let back_end = BackEnd::start(Params::new(&socket, Mode::Echo)).unwrap();
    let mut host = Host::open(&socket, "", &short_rings());
    host.keep = 20;
    host.exchange(100);
    drop(back_end);
    host.run_until(usize::MAX, |host| host.device.stats().in_rx == 0);
    let held: Vec<_> = host.kept.drain(..).map(XdpFrame::from).collect();
    assert_eq!(held.len(), 20);
    let (bytes, out) = (held[7].len(), host.pool.inflight().out);
    let _back_end = BackEnd::start(Params::new(&socket, Mode::Echo)).unwrap();
    let other = thread::spawn(move || {
        assert_eq!(held[7].len(), bytes);
        drop(held);
    });
    other.join().unwrap();
    assert!(host.pool.inflight().out <= out - 20, "they have returned");
    host.keep = 0;
    host.exchange(100);
    host.end();
}

#[test]
fn two_queue_pairs_on_two_threads_go_on() {
    let (_folder, socket) = place();
    let params = Params { queues: 2, ..Params::new(&socket, Mode::Echo) };
    let mut back_end = BackEnd::start(params.clone()).unwrap();
    let opened = open(&socket, "", &[0, 1], &short_rings());
    assert_eq!(opened.len(), 2);
    let enough = Arc::new(AtomicBool::new(false));
    let run = |device| {
        let enough = enough.clone();
        thread::spawn(move || {
            let mut host = Host::new(device);
            host.run_until(usize::MAX, |_| enough.load(Ordering::Relaxed));
            host.end();
        })
    };
    let threads: Vec<_> = opened.into_iter().map(run).collect();
    for _ in 0..4 {
        for pair in [0, 1] {
            assert!(back_end.pair(pair).wait(LIMIT, |_, counts| counts.put > 1000), "pair {pair}");
        }
        back_end.stop();
        back_end = BackEnd::start(params.clone()).unwrap();
    }
    enough.store(true, Ordering::Relaxed);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let counts = back_end.stop();
    assert_eq!((counts.lost, counts.bad), (0, 0));
}
