//! What a packet costs in this process over AF_XDP, by part of the loop, without a card: the program plays
//! the kernel, whose time counts in no part. Cycles are of the time-stamp counter.
//!
//! `cargo run --profile dist -p pagepool-net --example ring-rates [packets in a burst [rounds]]`

use std::sync::Arc;

use pagepool::{Arena, ArenaParams, Error, Pool, PoolParams, XdpBuff};
use pagepool_net::testing::{XskKernelSide, umem_in_memory, xsk_in_memory};
use pagepool_net::{Action, Forwarder, Ingress, PartCycles, PortId, Umem, UmemParams};

/// Slots of each ring.
const SLOTS: u32 = 1024;
/// Bytes of a packet in one buffer, and of one in several.
const LEN: u32 = 60;
const JUMBO: u32 = 9014;
/// Each row is measured this often; the table shows the fastest.
const TIMES: usize = 9;

struct Row {
    name: &'static str,
    ports: usize,
    action: fn(PortId) -> Action,
    umem: UmemParams,
    /// Bytes of the packets, in turn.
    lens: [u32; 2],
}

fn rows() -> Vec<Row> {
    let pages = UmemParams::default;
    let halves = || UmemParams { chunk_size: 2048, ..pages() };
    let unaligned = || UmemParams { chunk_size: 3072, unaligned: true, ..pages() };
    let several = || UmemParams { multi_buffer: true, ..pages() };
    let across: fn(PortId) -> Action = |port| Action::Redirect(PortId(port.0 ^ 1));
    let row = |name, ports, action, umem: UmemParams| {
        let len = if umem.multi_buffer { JUMBO } else { LEN };
        Row { name, ports, action, umem, lens: [len; 2] }
    };
    let in_turns = |row| Row { lens: [LEN, JUMBO], ..row };
    vec![
        row("drop", 1, |_| Action::Drop, pages()),
        row("drop, chunks of 2048", 1, |_| Action::Drop, halves()),
        row("drop, unaligned", 1, |_| Action::Drop, unaligned()),
        row("echo", 1, |_| Action::Tx, pages()),
        row("echo, chunks of 2048", 1, |_| Action::Tx, halves()),
        row("forward", 2, across, pages()),
        row("forward, chunks of 2048", 2, across, halves()),
        row("forward, unaligned", 2, across, unaligned()),
        row("drop, several buffers", 1, |_| Action::Drop, several()),
        row("echo, several buffers", 1, |_| Action::Tx, several()),
        row("forward, several buffers", 2, across, several()),
        in_turns(row("forward, one buffer, then several", 2, across, several())),
        row("forward, 64 ports of which 62 idle", 64, across, pages()),
    ]
}

/// A port per kernel side; packets arrive at the first port.
struct Bed<P> {
    forwarder: Forwarder<P>,
    /// Bytes of the packets, in turn.
    lens: [u32; 2],
    kernels: Vec<XskKernelSide>,
}

fn bed(row: &Row, burst: usize) -> Result<Bed<impl FnMut(&mut XdpBuff, Ingress) -> Action + use<>>, Error> {
    let max_bytes = (row.ports as u64 * 20) << 20;
    let page_size = if row.umem.chunk_size == 2048 { 2048 } else { 4096 };
    let arena = Arena::new(ArenaParams { max_bytes, page_size, commit_all: true, ..Default::default() })?;
    let umem: Arc<Umem> = umem_in_memory(row.umem.clone(), &arena)?;
    let action = row.action;
    let mut forwarder = Forwarder::new(move |packet: &mut XdpBuff, at: Ingress| {
        std::hint::black_box(&*packet);
        action(at.port)
    });
    forwarder.set_budget(burst)?;
    let mut kernels = Vec::new();
    for _ in 0..row.ports {
        let domains = vec![umem.clone() as _];
        let colour = row.umem.unaligned;
        let params = PoolParams {
            headroom: 256,
            ring_size: 4096,
            wakeup: true,
            colour,
            domains,
            chains: if row.umem.multi_buffer { SLOTS as usize } else { 0 },
            ..Default::default()
        };
        let (device, kernel) = xsk_in_memory(&umem, SLOTS)?;
        forwarder.add_port(device, Pool::new(params, arena.clone())?.bind());
        kernels.push(kernel);
    }
    forwarder.poll();
    Ok(Bed { forwarder, lens: row.lens, kernels })
}

impl<P: pagepool_net::PacketHandler> Bed<P> {
    fn rounds(&mut self, rounds: usize, burst: usize) {
        for _ in 0..rounds {
            self.deliver(burst);
            assert!(self.forwarder.poll() >= burst);
            self.kernels.iter_mut().take(2).for_each(|kernel| _ = kernel.send());
        }
    }

    fn deliver(&mut self, burst: usize) {
        let (kernel, [first, second]) = (&mut self.kernels[0], self.lens);
        let delivered = match first == second {
            true => kernel.deliver(burst, first),
            false => (0..burst).map(|at| kernel.deliver(1, self.lens[at % 2])).sum(),
        };
        assert_eq!(delivered, burst, "the fill ring has buffers");
    }

    fn measure(&mut self, rounds: usize, burst: usize) -> PartCycles {
        self.forwarder.sample(1);
        let before = self.forwarder.cycles();
        self.rounds(rounds, burst);
        self.forwarder.cycles().since(&before)
    }
}

fn total(spent: &PartCycles) -> u64 {
    spent.receive_ticks + spent.handler_ticks + spent.transmit_ticks + spent.return_ticks + spent.idle_ticks
}

/// Prints the table.
pub fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let mut number = |default: usize| words.next().map_or(Ok(default), |word| word.parse());
    let (burst, rounds) = (number(64)?, number(20_000)?);
    if !(1..=SLOTS as usize).contains(&burst) || rounds < TIMES {
        let asked = format!("{burst} packets in a burst, {rounds} rounds");
        return Err(format!("{asked}, but must be 1 to {SLOTS} packets, {TIMES} rounds or more").into());
    }
    println!("cycles per packet, bursts of {burst}\n");
    println!(
        "{:<36}{:>8}{:>8}{:>9}{:>8}{:>8}{:>8}",
        "", "receive", "handler", "transmit", "return", "idle", "total"
    );
    for row in rows() {
        let mut bed = bed(&row, burst)?;
        bed.rounds(rounds / 10, burst);
        let runs = (0..TIMES).map(|_| bed.measure(rounds / TIMES, burst));
        let Some(best) = runs.min_by_key(total) else { continue };
        let parts =
            [best.receive_ticks, best.handler_ticks, best.transmit_ticks, best.return_ticks, best.idle_ticks];
        let each = |ticks: u64| ticks as f64 / best.rx_packets as f64;
        let [receive, handler, transmit, back, idle] = parts.map(each);
        let all = each(total(&best));
        println!(
            "{:<36}{receive:>8.1}{handler:>8.1}{transmit:>9.1}{back:>8.1}{idle:>8.1}{all:>8.1}",
            row.name
        );
    }
    Ok(())
}
