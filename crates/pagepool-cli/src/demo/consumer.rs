//! The thread that packets are passed to. It reads and drops them, so they are returned from another thread
//! than the pool's owner.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use pagepool::{PageBuf, XdpBuff, put_bulk};
use pagepool_net::BUDGET;
use rtrb::Consumer;

use super::content::{Content, ContentCheck};
use crate::traffic::SharedState;

/// Empty looks before the thread sleeps, and how long it sleeps. No packet waits to be dropped.
const PATIENCE: u32 = 256;
const NAP: Duration = Duration::from_micros(50);

/// Starts the thread. It ends when the queue is empty and its producer is gone.
pub fn start(
    queue: Consumer<XdpBuff>,
    content: &Content,
    state: Arc<SharedState>,
) -> std::io::Result<JoinHandle<()>> {
    let check = content.clone().check(false);
    std::thread::Builder::new().name("consumer".into()).spawn(move || consume(queue, check, &state))
}

fn consume(mut queue: Consumer<XdpBuff>, mut check: ContentCheck, state: &SharedState) {
    let mut read = Vec::with_capacity(BUDGET);
    let mut idle = 0;
    loop {
        let last = queue.is_abandoned(); // read before the queue: if it is set, no more will come
        let taken = burst(&mut queue, &mut check, &mut read, state);
        idle = if taken > 0 { 0 } else { idle + 1 };
        match idle {
            0 => {}
            _ if last => return,
            1..PATIENCE => std::thread::yield_now(),
            _ => std::thread::sleep(NAP),
        }
    }
}

/// Reads a burst at most, and returns its buffers together.
fn burst(
    queue: &mut Consumer<XdpBuff>,
    check: &mut ContentCheck,
    read: &mut Vec<PageBuf>,
    state: &SharedState,
) -> u64 {
    let (mut taken, mut corrupt) = (0, 0);
    while read.len() < BUDGET
        && let Ok(packet) = queue.pop()
    {
        let frags = packet.frags().iter().map(|frag| frag.data());
        let good = check.is_good(std::iter::once(packet.data()).chain(frags));
        taken += 1;
        corrupt += u64::from(!good);
        read.push(packet.into_buffer());
    }
    put_bulk(read);
    state.count_arrived(taken, corrupt);
    taken
}
