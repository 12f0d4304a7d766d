//! Packets over AF_XDP without a card: the forwarder polls, and the kernel's side of the rings is simulated
//! on the polling thread. Figures include its time and instructions.

use std::hint::black_box;
use std::sync::Arc;

use pagepool::{Arena, ArenaParams, Pool, PoolParams, XdpBuff};
use pagepool_cli::report::error_chain;
use pagepool_net::testing::{umem_in_memory, xsk_in_memory};
use pagepool_net::{Action, Forwarder, Ingress, PacketHandler, PortId, Umem, UmemParams};

use crate::measure::workload::{Ready, Workload};
use crate::workloads::owner::CACHE_ONLY;
use crate::workloads::pools;

const BUDGET: usize = 64;
const SLOTS: u32 = 1024;

#[derive(Clone, Copy)]
struct Chunks {
    /// Bytes of a chunk, which is a page.
    size: usize,
    len: u32,
    /// Per packet.
    buffers: usize,
}

const PAGES: Chunks = Chunks { size: 4096, len: 60, buffers: 1 };
const SMALL: Chunks = Chunks { size: 2048, ..PAGES };
const TWO: Chunks = Chunks { len: 6000, buffers: 2, ..PAGES };

/// Receive and drop, send back, or send by another port; each over pages of 4 KiB, of 2 KiB and in two
/// buffers.
pub const TABLE: &[Workload] = &[
    row("xsk_drop", || ready(1, PAGES, drop)).about("receive 60 bytes over AF_XDP's rings, drop"),
    row("xsk_drop_2048", || ready(1, SMALL, drop)).about("receive 60 bytes in chunks of 2048 bytes, drop"),
    row("xsk_drop_two", || ready(1, TWO, drop)).about("receive 6000 bytes in two buffers, drop; per buffer"),
    row("xsk_echo", || ready(1, PAGES, echo)).about("receive 60 bytes, send them by the same port"),
    row("xsk_echo_2048", || ready(1, SMALL, echo))
        .about("receive 60 bytes in chunks of 2048 bytes, send them by the same port"),
    row("xsk_echo_two", || ready(1, TWO, echo))
        .about("receive 6000 bytes in two buffers, send them by the same port; per buffer"),
    row("xsk_forward", || ready(2, PAGES, forward)).about("receive 60 bytes, send them by another port"),
    row("xsk_forward_2048", || ready(2, SMALL, forward))
        .about("receive 60 bytes in chunks of 2048 bytes, send them by another port"),
    row("xsk_forward_two", || ready(2, TWO, forward))
        .about("receive 6000 bytes in two buffers, send them by another port; per buffer"),
];

const fn row(name: &'static str, ready: fn() -> Result<Ready, String>) -> Workload {
    Workload::new(name, ready).batch(BUDGET).rules(CACHE_ONLY)
}

fn drop(_: PortId) -> Action {
    Action::Drop
}

fn echo(_: PortId) -> Action {
    Action::Tx
}

fn forward(port: PortId) -> Action {
    Action::Redirect(PortId(1 - port.0))
}

/// One type for all rows: with a second, the compiler inlines less into the loop.
pub(super) fn forwarder(action: fn(PortId) -> Action) -> Forwarder<impl PacketHandler> {
    Forwarder::new(move |packet: &mut XdpBuff, at: Ingress| {
        black_box(&*packet);
        action(at.port)
    })
}

/// A forwarder with this many ports and full receive rings. In each poll packets arrive at the first port,
/// and the rings send what they have.
fn ready(ports: usize, chunks: Chunks, action: fn(PortId) -> Action) -> Result<Ready, String> {
    let memory = ArenaParams { max_bytes: 64 << 20, page_size: chunks.size, ..Default::default() };
    let arena =
        Arena::new(ArenaParams { commit_all: true, ..memory }).map_err(|error| error_chain(&error))?;
    let umem = UmemParams { multi_buffer: chunks.buffers > 1, ..Default::default() };
    let umem = umem_in_memory(umem, &arena).map_err(|error| error_chain(&error))?;
    let mut forwarder = forwarder(action);
    let (mut kernels, mut counters) = (Vec::new(), Vec::new());
    for _ in 0..ports {
        let pool =
            Pool::new(params(&umem, chunks), arena.clone()).map_err(|error| error_chain(&error))?.bind();
        let (device, kernel) = xsk_in_memory(&umem, SLOTS).map_err(|error| error_chain(&error))?;
        counters.push(pools::counters_of(&pool));
        forwarder.add_port(device, pool);
        kernels.push(kernel);
    }
    forwarder.poll();
    let packets = BUDGET / chunks.buffers;
    let run = move |n| {
        for _ in 0..n / BUDGET {
            assert_eq!(kernels[0].deliver(packets, chunks.len), packets, "the ring has buffers");
            assert!(forwarder.poll() >= packets);
            kernels.iter_mut().for_each(|kernel| _ = kernel.send());
        }
    };
    Ok(Ready::one_core(run).counting(counters.swap_remove(0)))
}

fn params(umem: &Arc<Umem>, chunks: Chunks) -> PoolParams {
    PoolParams {
        domains: vec![umem.clone()],
        chains: if chunks.buffers > 1 { SLOTS as usize } else { 0 },
        headroom: 256,
        colour: false,
        ..PoolParams::default()
    }
}
