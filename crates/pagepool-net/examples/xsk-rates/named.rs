//! Ports that are opened by name, such as `vhost_user:/run/sw0.sock`, and a sender over one of them.

use std::hint::spin_loop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pagepool::{Arena, ArenaParams, Backing, Batch, Bound, Error, PoolParams, XdpBuff, XdpFrameBulk};
use pagepool_net::{
    Device, DeviceExt, Forwarder, OpenParams, OpenedDevice, PacketHandler, TxQueue, Wake, open_devices, ticks,
};

use crate::ours::{NAP, PAUSES, memory, warm};

/// Rounds of a sender without room before it sleeps, or finds that the other side is gone. It seldom sleeps:
/// the other side makes room all the time.
const PATIENCE: u64 = 1 << 16;

/// The first bytes of each packet: as many as the Ethernet, IPv4 and UDP headers that testpmd writes. The
/// Ethernet type is the one for local experiments.
const HEADERS: [u8; 42] = {
    let mut bytes = [0; 42];
    (bytes[0], bytes[6], bytes[11]) = (2, 2, 1);
    (bytes[12], bytes[13]) = (0x88, 0xb5);
    bytes
};

/// Opens the names, each with a pool, over one arena that another process can map.
pub fn open<P: PacketHandler>(forwarder: &mut Forwarder<P>, names: &[&&str], ring: u32) -> Result<(), Error> {
    for OpenedDevice { device, pool, .. } in devices(names, ring)? {
        let pool = pool.bind();
        warm(&pool, memory(names.len(), false, ring).0);
        forwarder.add_port(device, pool);
    }
    Ok(())
}

fn devices(names: &[&&str], ring: u32) -> Result<Vec<OpenedDevice>, Error> {
    let (pages, max_bytes) = memory(names.len(), false, ring);
    let backing = Backing::Memfd { huge: false };
    let arena = Arena::new(ArenaParams {
        max_bytes,
        backing,
        commit_all: true,
        prefault: true,
        ..Default::default()
    })?;
    let pool = PoolParams { ring_size: pages, headroom: 256, wakeup: true, ..PoolParams::default() };
    let params = OpenParams { rx_ring: ring, tx_ring: ring, pool, ..Default::default() };
    let queues: Vec<_> = names.iter().map(|name| (**name, &[0][..])).collect();
    Ok(open_devices(&queues, &params, &arena)?.into_iter().flatten().collect())
}

/// Sends packets of `size` bytes until told to stop. Writes the headers of each.
pub fn send(name: &str, ring: u32, size: usize, stop: &Arc<AtomicBool>) -> Result<String, String> {
    let opened = devices(&[&name], ring).map_err(|error| error.to_string())?;
    let OpenedDevice { mut device, pool, .. } = opened.into_iter().next().ok_or("no queue was opened")?;
    let pool = pool.bind();
    warm(&pool, memory(1, false, ring).0);
    let longest = device.info().max_packet.min(pool.alloc_page().map_or(0, |page| page.packet_capacity()));
    if !(HEADERS.len()..=longest).contains(&size) {
        return Err(format!("--size is {size}, but must be from {} to {longest}", HEADERS.len()));
    }
    let mut sender = Sender {
        packets: Vec::with_capacity(Batch::MAX),
        queue: TxQueue::with_capacity(2 * Batch::MAX, Batch::MAX),
        done: XdpFrameBulk::new(),
    };
    let (mut idle, mut busy, mut sent) = (0, 0, 0);
    while !stop.load(Ordering::Relaxed) {
        let start = ticks();
        let moved = sender.round(&mut *device, &pool, size);
        if moved > 0 {
            (idle, busy, sent) = (0, busy + (ticks() - start), sent + moved);
            continue;
        }
        idle += 1;
        (0..PAUSES).for_each(|_| spin_loop());
        if idle % PATIENCE == 0 && device.wait(&pool, NAP) == Wake::Gone {
            break;
        }
    }
    Ok(format!(r#"{{"all":{:.1},"tx":{sent}}}"#, busy as f64 / sent.max(1) as f64))
}

struct Sender {
    packets: Vec<XdpBuff>,
    queue: TxQueue,
    done: XdpFrameBulk,
}

impl Sender {
    /// Completes what was sent, and sends more. Returns how many packets it sent.
    fn round(&mut self, device: &mut dyn Device, pool: &Bound, size: usize) -> usize {
        device.complete(&mut self.done, usize::MAX);
        self.done.flush();
        if self.queue.is_empty() {
            let mut batch = pool.alloc_batch(Batch::MAX);
            while let Some(buffer) = batch.pop() {
                let Ok(mut packet) = XdpBuff::received(buffer, size) else { continue };
                packet.data_mut()[..HEADERS.len()].copy_from_slice(&HEADERS);
                self.packets.push(packet);
            }
            self.queue.push_burst(&mut self.packets);
        }
        device.transmit(&mut self.queue)
    }
}
