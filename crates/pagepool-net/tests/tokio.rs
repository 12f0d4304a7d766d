//! Tasks of an executor that has no reactor for descriptors: they share a pool, and wait for its pages.
#![cfg(not(loom))]
#![expect(clippy::unwrap_used, reason = "a test fails where it cannot go on")]

use std::rc::Rc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use pagepool::{Arena, ArenaParams, Bound, PageBuf, Pool, PoolParams};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::{LocalSet, spawn_local, yield_now};

/// Longer than all of the waits take on a machine that is ever so busy.
const LIMIT: Duration = Duration::from_secs(600);
/// Packets of each task.
const PACKETS: usize = 10_000;

/// Receives packets, and hands them to another thread and to a task on this one in turns.
async fn receive(pool: Rc<Bound>, to_thread: mpsc::Sender<PageBuf>, to_task: UnboundedSender<PageBuf>) {
    for packet in 0..PACKETS {
        let mut page = pool.wait_for(Bound::alloc_page).await; // sleeps until a page is free
        page.bytes_mut().unwrap()[0] = packet as u8;
        match packet % 3 {
            0 => to_task.send(page).unwrap(),
            _ => to_thread.send(page).unwrap(),
        }
    }
}

#[test]
fn tasks_wait_for_pages_that_end_on_any_thread() {
    let arena = Arena::new(ArenaParams { max_bytes: 8 << 12, ..Default::default() }).unwrap();
    let pool = Rc::new(Pool::new(PoolParams::default(), arena).unwrap().bind()); // over 8 pages
    let (to_thread, work) = mpsc::channel::<PageBuf>();
    let returner = thread::spawn(move || work.into_iter().for_each(drop));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let tasks = async {
        let (to_task, mut pages) = unbounded_channel::<PageBuf>();
        let receivers =
            [(); 3].map(|()| spawn_local(receive(pool.clone(), to_thread.clone(), to_task.clone())));
        drop(to_task);
        while let Some(page) = pages.recv().await {
            yield_now().await;
            drop(page); // on the owner's thread
        }
        for receiver in receivers {
            receiver.await.unwrap();
        }
    };
    let limited = async { tokio::time::timeout(LIMIT, tasks).await };
    LocalSet::new().block_on(&runtime, limited).expect("a task sleeps, and nobody wakes it");
    drop(to_thread);
    returner.join().unwrap();
    assert_eq!(pool.inflight().out, 0);
    println!("{} attempts found nothing, for {} packets", pool.stats().alloc_failed, 3 * PACKETS);
}
