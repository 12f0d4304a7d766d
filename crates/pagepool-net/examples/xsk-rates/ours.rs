//! Our forwarder over one or two interfaces, until standard input ends.

use std::hint::spin_loop;
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use pagepool::{Arena, ArenaParams, Bound, PAGE_SIZE, Pool, PoolParams, XdpBuff, put_bulk};
use pagepool_net::{
    Action, Attach, BUDGET, Forwarder, Ingress, PacketHandler, PartCycles, PortId, Redirect, TxMode, Umem,
    UmemParams, Wake, XskDevice, XskMode, XskParams, swap_macs, ticks,
};

use crate::{named, option};

/// Pauses after an idle round, while the other end has the rings' lines to itself.
pub const PAUSES: u32 = 8;
/// Idle rounds before a sleep, and its limit.
const PATIENCE: u64 = 64;
pub const NAP: Duration = Duration::from_millis(2);

/// Slots of each ring, and packets of one buffer per burst, as in the commands.
const RING: u64 = 1024;
const BURST: u64 = 256;

/// Most bytes of a packet that a veth receives in one page.
const ONE_BUFFER: u64 = 3502;

pub fn run(words: &[&str]) -> Result<String, String> {
    let what = words.first().copied().unwrap_or("drop");
    let links: Vec<_> = words.iter().skip(1).take_while(|word| !word.starts_with("--")).collect();
    let several = option(words, "--mtu", 1500)? > ONE_BUFFER;
    let (ring, burst) = (option(words, "--ring", RING)?, if several { BUDGET as u64 } else { BURST });
    let budget = option(words, "--budget", burst)?;
    if what == "send" {
        let name = links.first().ok_or("send needs a name, such as vhost_user:/run/sw0.sock")?;
        return named::send(name, ring as u32, option(words, "--size", 64)? as usize, &end_of_input());
    }
    let program = What::of(what)?;
    let mut forwarder = Forwarder::with_handler(program);
    let opened = match links.iter().any(|link| link.contains(':')) {
        true => named::open(&mut forwarder, &links, ring as u32),
        false => open(&mut forwarder, &links, several, ring as u32, words.contains(&"--by-ring")),
    };
    opened.map_err(|error| error.to_string())?;
    forwarder.set_budget(budget as usize).map_err(|error| error.to_string())?;
    let stop = end_of_input();
    let patience = option(words, "--patience", PATIENCE)?;
    forwarder.poll();
    forwarder.sample(u32::from(!words.contains(&"--unmeasured")));
    let (mut idle, mut slept, start) = (0, 0, ticks());
    while !stop.load(Ordering::Relaxed) {
        idle = if forwarder.poll() > 0 { 0 } else { idle + 1 };
        if idle > 0 {
            (0..PAUSES).for_each(|_| spin_loop());
        }
        if idle > patience {
            let before = ticks();
            let wake = forwarder.wait(NAP);
            slept += ticks() - before;
            if wake == Wake::Gone {
                break;
            }
        }
    }
    Ok(report(&forwarder.cycles(), ticks() - start, slept))
}

/// True once standard input has ended.
fn end_of_input() -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    let stops = stop.clone();
    thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new()); // waits only for its end
        stops.store(true, Ordering::Relaxed);
    });
    stop
}

#[derive(Clone, Copy)]
enum What {
    Drop,
    Echo,
    Forward,
}

impl What {
    fn of(word: &str) -> Result<Self, String> {
        match word {
            "drop" => Ok(Self::Drop),
            "echo" => Ok(Self::Echo),
            "forward" => Ok(Self::Forward),
            _ => Err("use drop, echo or forward".into()),
        }
    }
}

impl PacketHandler for What {
    #[inline]
    fn handle(&mut self, packet: &mut XdpBuff, at: Ingress) -> Action {
        match self {
            Self::Drop => Action::Drop,
            Self::Forward => Action::Redirect(PortId(1 - at.port.0)),
            Self::Echo => {
                swap_macs(packet.data_mut());
                Action::Tx
            }
        }
    }

    fn reads(&self) -> bool {
        !matches!(self, Self::Drop)
    }
}

/// Pages of a pool, and bytes of the arena of that many pools.
pub fn memory(pools: usize, several: bool, ring: u32) -> (usize, u64) {
    let buffers = if several { 4 } else { 1 };
    let pages = 2 * ring as usize + buffers * (ring as usize + 4 * BURST as usize) + 256;
    let bytes = ((pools * pages + 256) * PAGE_SIZE).next_multiple_of(1 << pagepool::REGION_SHIFT);
    (pages, bytes as u64)
}

/// Puts that many pages into the pool's cache and ring.
pub fn warm(pool: &Bound, pages: usize) {
    let mut buffers = Vec::with_capacity(pages);
    pool.alloc_bulk(&mut buffers, pages);
    put_bulk(&mut buffers);
}

/// Opens a pool and a socket for each interface, over one memory.
fn open<P: PacketHandler>(
    forwarder: &mut Forwarder<P>,
    links: &[&&str],
    several: bool,
    ring: u32,
    by_ring: bool,
) -> Result<(), pagepool::Error> {
    let (pages, max_bytes) = memory(links.len(), several, ring);
    let arena = Arena::new(ArenaParams { max_bytes, commit_all: true, ..Default::default() })?;
    let umem = UmemParams { mode: XskMode::Copy, multi_buffer: several, ..Default::default() };
    let umem = Umem::new(umem, &arena)?;
    for link in links {
        let params = PoolParams {
            ring_size: pages,
            headroom: 256,
            chains: if several { pages } else { 0 },
            wakeup: true,
            domains: vec![umem.clone()],
            ..PoolParams::default()
        };
        let pool = Pool::new(params, arena.clone())?.bind();
        warm(&pool, pages);
        let redirect = Some(Redirect::attach(link, Attach::Auto, several)?);
        let params = XskParams {
            interface: (**link).into(),
            rx_ring: ring,
            tx_ring: ring,
            redirect,
            tx_mode: if by_ring { TxMode::Ring } else { TxMode::Auto },
            ..Default::default()
        };
        forwarder.add_port(XskDevice::open(params, &umem, &pool)?, pool);
    }
    Ok(())
}

/// Ticks per packet by part, and how full the bursts were.
fn report(spent: &PartCycles, took: u64, slept: u64) -> String {
    let each = |ticks: u64, of: u64| ticks as f64 / of.max(1) as f64;
    let rx = |ticks| each(ticks, spent.rx_packets);
    format!(
        concat!(
            r#"{{"receive":{:.1},"handler":{:.1},"return":{:.1},"transmit":{:.1},"call":{:.1},"idle":{:.1},"#,
            r#""slept":{:.1},"took":{:.1},"burst":{:.1},"call_each":{:.0},"rx":{},"tx":{}}}"#
        ),
        rx(spent.receive_ticks),
        rx(spent.handler_ticks),
        rx(spent.return_ticks),
        rx(spent.transmit_ticks),
        rx(spent.call_ticks),
        rx(spent.idle_ticks),
        rx(slept),
        rx(took),
        each(spent.rx_packets, spent.rx_bursts),
        each(spent.call_ticks, spent.calls),
        spent.rx_packets,
        spent.tx_packets,
    )
}
