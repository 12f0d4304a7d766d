//! Packets over virtio queues, whose device half is simulated on the polling thread. Figures include its time
//! and instructions.

use std::hint::black_box;
use std::sync::Arc;

use pagepool::{Arena, ArenaParams, Bound, DmaDomain, Pool, PoolParams, XdpBuff, XdpFrameBulk};
use pagepool_cli::report::error_chain;
use pagepool_net::testing::{
    VirtioHalf, VirtioNet, VirtioSizes, VirtioStep, virtio_domain, virtio_in_memory,
};
use pagepool_net::{Action, Device, PortId, TxQueue};

use super::rings::forwarder;
use crate::measure::workload::{Ready, Workload};
use crate::workloads::owner::CACHE_ONLY;
use crate::workloads::pools;

const BUDGET: usize = 64;
const SLOTS: usize = 1024;
const LEN: usize = 60;

/// Receive and drop, send back, send by another port; send without a forwarder.
pub const TABLE: &[Workload] = &[
    row("virtio_drop", || ready(1, |_| Action::Drop)).about("receive 60 bytes over virtio queues, drop"),
    row("virtio_echo", || ready(1, |_| Action::Tx)).about("receive 60 bytes, send them by the same port"),
    row("virtio_forward", || ready(2, |at| Action::Redirect(PortId(1 - at.0))))
        .about("receive 60 bytes, send them by another port"),
    row("virtio_receive", receive).about("the device alone: receive 60 bytes, drop"),
    row("virtio_send", send).about("the device alone: send 60 bytes, take them back"),
];

const fn row(name: &'static str, ready: fn() -> Result<Ready, String>) -> Workload {
    Workload::new(name, ready).batch(BUDGET).rules(CACHE_ONLY)
}

/// A device, its pool, and its other half.
fn queue(arena: &Arc<Arena>, domain: &Arc<dyn DmaDomain>) -> Result<(VirtioNet, Bound, VirtioHalf), String> {
    let params =
        PoolParams { domains: vec![domain.clone()], headroom: 256, colour: false, ..Default::default() };
    let pool = Pool::new(params, arena.clone()).map_err(|error| error_chain(&error))?.bind();
    let sizes = VirtioSizes { rx_ring: SLOTS, tx_ring: SLOTS, max_buffers: 1 };
    let (device, half) = virtio_in_memory(sizes, arena, domain).map_err(|error| error_chain(&error))?;
    Ok((device, pool, half))
}

fn alone() -> Result<(VirtioNet, Bound, VirtioHalf), String> {
    let arena = arena()?;
    queue(&arena, &virtio_domain(&arena))
}

fn arena() -> Result<Arc<Arena>, String> {
    Arena::new(ArenaParams { max_bytes: 64 << 20, commit_all: true, ..Default::default() })
        .map_err(|error| error_chain(&error))
}

/// Completes a burst of received packets, without writing one.
fn deliver(half: &mut VirtioHalf) {
    half.step(|wire: &mut VirtioStep<'_>| {
        for _ in 0..BUDGET {
            let head = wire.take_posted().expect("the ring has buffers");
            wire.complete_received(head.into(), LEN + 12);
        }
    });
}

/// Completes all that is to be sent, without reading it.
fn finish(half: &mut VirtioHalf) {
    half.step(|wire: &mut VirtioStep<'_>| {
        while let Some(head) = wire.take_sent() {
            wire.complete_sent(head.into());
        }
    });
}

fn ready(ports: usize, action: fn(PortId) -> Action) -> Result<Ready, String> {
    let arena = arena()?;
    let domain = virtio_domain(&arena);
    let mut forwarder = forwarder(action);
    let (mut halves, mut counters) = (Vec::new(), Vec::new());
    for _ in 0..ports {
        let (device, pool, half) = queue(&arena, &domain)?;
        counters.push(pools::counters_of(&pool));
        forwarder.add_port(device, pool);
        halves.push(half);
    }
    forwarder.poll();
    let run = move |n| {
        for _ in 0..n / BUDGET {
            deliver(&mut halves[0]);
            assert!(forwarder.poll() >= BUDGET);
            halves.iter_mut().for_each(finish);
        }
    };
    Ok(Ready::one_core(run).counting(counters.swap_remove(0)))
}

fn receive() -> Result<Ready, String> {
    let (mut device, pool, mut half) = alone()?;
    let mut packets = Vec::with_capacity(BUDGET);
    device.receive(&pool, &mut packets, 0);
    Ok(pools::one_core_over(pool, move |pool, n| {
        for _ in 0..n / BUDGET {
            deliver(&mut half);
            assert_eq!(device.receive(pool, &mut packets, BUDGET), BUDGET);
            pagepool::put_packets(black_box(&mut packets));
        }
    }))
}

fn send() -> Result<Ready, String> {
    let (mut device, pool, mut half) = alone()?;
    let mut packets = Vec::with_capacity(BUDGET);
    let (mut queue, mut done) = (TxQueue::with_capacity(BUDGET, BUDGET), XdpFrameBulk::new());
    Ok(pools::one_core_over(pool, move |pool, n| {
        for _ in 0..n / BUDGET {
            let mut batch = pool.alloc_batch(BUDGET);
            let pages = std::iter::from_fn(|| batch.pop());
            packets.extend(pages.filter_map(|page| XdpBuff::received(page, LEN).ok()));
            queue.push_burst(&mut packets);
            assert_eq!(device.transmit(&mut queue), BUDGET);
            finish(&mut half);
            assert_eq!(device.complete(&mut done, BUDGET), BUDGET);
            done.flush();
        }
    }))
}
