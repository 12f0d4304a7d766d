//! Packets that a polling thread hands to a worker through `handoff`: what programs do. The worker reads the
//! first line of each, and drops it.

use std::hint::{black_box, spin_loop};

use pagepool::{Bound, XdpBuff, XdpFrame, XdpFrameBulk};
use pagepool_net::{HandoffRx, HandoffTx, handoff};

use super::remote::{BY_MESSAGE, filled};
use crate::measure::touch;
use crate::measure::workload::{Ready, Workload};
use crate::rivals::spsc::{BURST, CAPACITY};
use crate::workloads::pools;

pub const TABLE: &[Workload] = &[
    Workload::new("handoff_single", one_by_one)
        .about("frames through a handoff, written; the second core reads and drops each")
        .rules(BY_MESSAGE),
    Workload::new("handoff_burst", in_bursts)
        .about(
            "frames through a handoff, written; the second core receives bursts, reads, and returns in bulk",
        )
        .batch(BURST)
        .rules(BY_MESSAGE),
];

const LENGTH: usize = 60;

pub fn one_by_one() -> Result<Ready, String> {
    relay(|frames, n| {
        let mut got = 0;
        while got < n {
            let Some(frame) = frames.recv() else {
                spin_loop();
                continue;
            };
            black_box(touch::read(Some(frame.data())));
            got += 1;
        }
    })
}

pub fn in_bursts() -> Result<Ready, String> {
    let (mut burst, mut done) = (Vec::<XdpFrame>::with_capacity(BURST), XdpFrameBulk::new());
    relay(move |frames, n| {
        let mut got = 0;
        while got < n {
            let new = frames.recv_burst(&mut burst);
            if new == 0 {
                spin_loop();
                continue;
            }
            let words = burst.iter().map(|frame| touch::read(Some(frame.data())));
            black_box(words.fold(0, u64::wrapping_add));
            burst.drain(..).for_each(|frame| done.push(frame));
            done.flush();
            got += new;
        }
    })
}

fn relay(mut consume: impl FnMut(&mut HandoffRx, usize) + Send + 'static) -> Result<Ready, String> {
    let pool = filled()?;
    let counters = pools::counters_of(&pool);
    let (mut outlet, mut inlet) = handoff(CAPACITY).map_err(|error| error.to_string())?;
    let produce = move |n| {
        for _ in 0..n / BURST {
            (0..BURST as u64).for_each(|at| send(&mut outlet, packet(&pool, at)));
            outlet.flush();
        }
    };
    Ok(Ready::two_cores(produce, move |n| consume(&mut inlet, n)).counting(counters))
}

#[inline(always)]
fn packet(pool: &Bound, at: u64) -> XdpFrame {
    let mut packet = XdpBuff::received(pools::page(pool), LENGTH).expect("a page has room for it");
    touch::write(Some(packet.data_mut()), at);
    packet.into()
}

#[inline(always)]
fn send(outlet: &mut HandoffTx, mut frame: XdpFrame) {
    while let Err(back) = outlet.send(frame) {
        frame = back;
        spin_loop();
    }
}
