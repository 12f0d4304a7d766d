//! A device over rings in plain memory, whose kernel side the caller plays. It measures what a packet costs
//! in this process, without a card or capabilities.
//!
//! What   acts like the driver of a zero-copy card: takes buffers off the fill ring in order, returns them as
//!        packets, and completes sent packets in order. It requests no calls, and writes no packet data.
//! Who    one thread uses both sides.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;

use pagepool::{Error, Provider};

use super::descriptor::Descriptor;
use super::device::XskDevice;
use super::params::{UmemParams, XDP_HEADROOM, XskParams};
use super::receiver::RxRings;
use super::sender::TxRings;
use super::sys::ring::{Consumer, Producer};
use super::sys::socket::{CONTINUED, Mapped};
use super::umem::Umem;
use crate::sys::remedy::failed;

/// The MTU without and with packets of several buffers.
const MTU: u32 = 1500;
const JUMBO_MTU: u32 = 9000;
/// In unaligned mode, the first bit of a packet's offset in an address.
const OFFSET_SHIFT: u32 = 48;

/// Makes a UMEM that no kernel knows, for [`xsk_in_memory`].
pub fn umem_in_memory<P: Provider + ?Sized>(
    params: UmemParams,
    provider: &Arc<P>,
) -> Result<Arc<Umem>, Error> {
    Umem::unregistered(params, provider).map(Arc::new)
}

/// Makes a device with rings of `slots` slots, and the kernel's side of it.
///
/// ```
/// use pagepool::{Arena, ArenaParams, Pool, PoolParams};
/// use pagepool_net::testing::{umem_in_memory, xsk_in_memory};
/// use pagepool_net::{Device, UmemParams};
///
/// let arena = Arena::new(ArenaParams { commit_all: true, ..Default::default() })?;
/// let umem = umem_in_memory(UmemParams::default(), &arena)?;
/// let params = PoolParams { headroom: 256, domains: vec![umem.clone()], ..Default::default() };
/// let pool = Pool::new(params, arena)?.bind();
/// let (mut device, mut kernel) = xsk_in_memory(&umem, 64)?;
/// let mut packets = Vec::with_capacity(64);
/// device.receive(&pool, &mut packets, 64); // the first buffers
/// assert_eq!(kernel.deliver(3, 60), 3);
/// assert_eq!(device.receive(&pool, &mut packets, 64), 3);
/// # drop(packets);
/// # Ok::<(), pagepool::Error>(())
/// ```
pub fn xsk_in_memory(umem: &Arc<Umem>, slots: u32) -> Result<(XskDevice, XskKernelSide), Error> {
    let system = |call, source| failed(call, source, "its rings in memory could not be created");
    let params =
        XskParams { interface: "memory".into(), rx_ring: slots, tx_ring: slots, ..Default::default() };
    let memory = |source| system("mmap", source);
    let [fill, of_fill] = Mapped::pair::<1>(2 * slots).map_err(memory)?;
    let [received, of_received] = Mapped::pair::<2>(slots).map_err(memory)?;
    let [send, of_send] = Mapped::pair::<2>(slots).map_err(memory)?;
    let [done, of_done] = Mapped::pair::<1>(slots).map_err(memory)?;
    let rx = RxRings { fill: Producer::new(fill, 2 * slots), received: Consumer::new(received, slots) };
    let tx = TxRings { send: Producer::new(send, slots), done: Consumer::new(done, slots) };
    let kernel = XskKernelSide {
        fill: Consumer::new(of_fill, 2 * slots),
        received: Producer::new(of_received, slots),
        send: Consumer::new(of_send, slots),
        done: Producer::new(of_done, slots),
        before: u64::from(umem.params().headroom + XDP_HEADROOM),
        most: umem.packet_capacity() as u32,
        unaligned: umem.params().unaligned,
    };
    let mtu = if umem.params().multi_buffer { JUMBO_MTU } else { MTU };
    // Not AF_XDP: its options fail, and general ones work.
    let fd: OwnedFd = UnixDatagram::unbound().map_err(|source| system("socket", source))?.into();
    Ok((XskDevice::over_rings(&params, umem, fd, (rx, tx), mtu), kernel))
}

/// The kernel's side of a socket's rings.
#[derive(Debug)]
pub struct XskKernelSide {
    fill: Consumer<Mapped, 1>,
    received: Producer<Mapped, 2>,
    send: Consumer<Mapped, 2>,
    done: Producer<Mapped, 1>,
    before: u64,
    /// Bytes of a packet in one buffer.
    most: u32,
    unaligned: bool,
}

impl XskKernelSide {
    /// Delivers packets of `len` bytes, each in as many buffers as it needs, as far as there are buffers and
    /// slots. Returns how many.
    pub fn deliver(&mut self, packets: usize, len: u32) -> usize {
        let each = len.div_ceil(self.most).max(1) as usize;
        let most = packets * each;
        let n = self.fill.peek(most.min(self.received.room(most))) / each;
        let (into, unaligned) = (self.before, self.unaligned);
        for (at, [chunk]) in (0..n * each).map(self.fill.read(n * each)).enumerate() {
            let (of_packet, addr) =
                (at % each, if unaligned { chunk | (into << OFFSET_SHIFT) } else { chunk + into });
            let len = (len - of_packet as u32 * self.most).min(self.most);
            let options = if of_packet + 1 < each { CONTINUED } else { 0 };
            self.received.push(Descriptor { addr, len, options }.to_words());
        }
        self.fill.release();
        self.received.submit();
        n
    }

    /// Sends what is on the transmit ring, as far as completions have room. Returns how many buffers.
    pub fn send(&mut self) -> usize {
        let n = self.send.peek(self.done.room(usize::MAX));
        for words in (0..n).map(self.send.read(n)) {
            self.done.push([Descriptor::of_words(words).addr]);
        }
        self.send.release();
        self.done.submit();
        n
    }
}

#[cfg(test)]
mod tests {
    use pagepool::{Arena, ArenaParams, Bound, MAX_FRAGS, Pool, PoolParams, XdpBuff, XdpFrameBulk};

    use super::*;
    use crate::device::{Device, TxQueue};
    use crate::xsk::tx_metadata::TxMetadataMode;
    use crate::{TxChecksum, TxMetadata};

    impl XskKernelSide {
        /// Delivers one buffer of a packet that continues.
        fn deliver_part(&mut self, len: u32) {
            assert_eq!(self.fill.peek(1), 1, "the fill ring has buffers");
            let [chunk] = self.fill.read(1)(0);
            let addr =
                if self.unaligned { chunk | (self.before << OFFSET_SHIFT) } else { chunk + self.before };
            self.received.push(Descriptor { addr, len, options: CONTINUED }.to_words());
            self.fill.release();
            self.received.submit();
        }
    }

    fn bed(params: UmemParams) -> (XskDevice, XskKernelSide, Bound) {
        let page_size = if params.chunk_size == 2048 { 2048 } else { 4096 };
        let arena = ArenaParams { max_bytes: 4 << 20, page_size, commit_all: true, ..Default::default() };
        let arena = Arena::new(arena).unwrap();
        let umem = umem_in_memory(params, &arena).unwrap();
        let domains = vec![umem.clone() as _];
        let pool = PoolParams { domains, headroom: 256, max_len: 1536, ..Default::default() };
        let (device, kernel) = xsk_in_memory(&umem, 64).unwrap();
        (device, kernel, Pool::new(pool, arena).unwrap().bind())
    }

    #[test]
    fn the_first_buffer_of_a_packet_says_that_it_has_requests() {
        let params = UmemParams { multi_buffer: true, tx_metadata: TxMetadataMode::On, ..Default::default() };
        let (mut device, mut kernel, pool) = bed(params);
        let packet = || XdpBuff::received(pool.alloc_page().unwrap(), 60).unwrap();
        let with = |requests: TxMetadata| {
            let mut packet = packet();
            requests.write(&mut packet).unwrap();
            packet
        };
        let mut several = with(TxMetadata { launch_time: Some(1), ..Default::default() });
        let more = pool.alloc_page().unwrap();
        let at = more.packet_offset();
        several.add_frag(more, at, 60).unwrap();
        let checksum = Some(TxChecksum { start: 14, offset: 44 });
        let mut packets = vec![
            with(TxMetadata { checksum, ..Default::default() }),
            packet(),
            several,
            with(TxMetadata::default()),
            with(TxMetadata { timestamp: Some(3), ..Default::default() }),
        ];
        let mut queue = TxQueue::new();
        queue.push_burst(&mut packets);
        assert_eq!((device.transmit(&mut queue), queue.refused()), (5, 0));
        let n = kernel.send.peek(64);
        let sent: Vec<_> = (0..n).map(kernel.send.read(n)).map(Descriptor::of_words).collect();
        // Linux: XDP_PKT_CONTD is 1, XDP_TX_METADATA 2.
        assert_eq!(sent.iter().map(|buffer| buffer.options).collect::<Vec<_>>(), [2, 0, 3, 0, 0, 2]);
        kernel.send.release();
        sent.iter().for_each(|buffer| kernel.done.push([buffer.addr]));
        kernel.done.submit();
        let (mut done, mut times) = (XdpFrameBulk::new(), Vec::new());
        assert_eq!(device.complete(&mut done, 64), 5);
        assert_eq!((device.take_tx_timestamps(&mut times), times), (0, vec![]), "none was written");
    }

    fn several() -> [UmemParams; 3] {
        let pages = UmemParams { multi_buffer: true, ..Default::default() };
        let halves = UmemParams { chunk_size: 2048, ..pages.clone() };
        [pages.clone(), halves, UmemParams { chunk_size: 3072, unaligned: true, ..pages }]
    }

    #[test]
    fn all_buffers_of_packets_with_several_buffers_return() {
        for params in several() {
            let (mut device, mut kernel, pool) = bed(params.clone());
            let (mut packets, mut done) = (Vec::with_capacity(8), XdpFrameBulk::new());
            let mut queue = TxQueue::with_capacity(64, 64);
            device.receive(&pool, &mut packets, 8);
            // The rings end within a packet again and again, and so do bursts.
            let (mut received, mut sent) = (0, 0);
            for round in 0..200 {
                let len = [9014, 60, 4000, 7000][round % 4];
                let arrived = kernel.deliver(1 + round % 7, len);
                assert!(arrived > 0, "{params:?}, round {round}");
                let mut left = arrived;
                while left > 0 {
                    let got = device.receive(&pool, &mut packets, 1 + round % 5);
                    assert!(
                        got > 0 && packets.iter().all(|packet| packet.len() == len as usize),
                        "{params:?}"
                    );
                    left -= got;
                    sent += got;
                    queue.push_burst(&mut packets);
                    assert_eq!((device.transmit(&mut queue), queue.refused()), (got, 0), "{params:?}");
                    assert!(kernel.send() >= got);
                    assert_eq!(device.complete(&mut done, usize::MAX), got, "{params:?}, round {round}");
                    done.flush();
                }
                received += arrived;
            }
            let stats = device.stats();
            assert_eq!((stats.rx_packets, stats.tx_completed), (received as u64, sent as u64));
            assert_eq!((stats.in_tx, stats.calls, stats.tx_bad_descriptor), (0, 0, 0), "{stats:?}");
            drop(device);
            assert_eq!(pool.inflight().out, 0, "{params:?}");
        }
    }

    #[test]
    fn short_and_long_packets_in_turns_go_out_in_their_order() {
        for params in several() {
            let (mut device, mut kernel, pool) = bed(params.clone());
            let (mut packets, mut done) = (Vec::with_capacity(8), XdpFrameBulk::new());
            let mut queue = TxQueue::with_capacity(64, 64);
            device.receive(&pool, &mut packets, 8);
            let lens = [60, 9014, 60, 61, 4000, 62, 9013];
            for round in 0..20 {
                lens.iter().for_each(|&len| assert_eq!(kernel.deliver(1, len), 1, "{params:?}, {round}"));
                assert_eq!(device.receive(&pool, &mut packets, 8), lens.len(), "{params:?}");
                queue.push_burst(&mut packets);
                assert_eq!((device.transmit(&mut queue), queue.refused()), (lens.len(), 0), "{params:?}");
                let n = kernel.send.peek(kernel.done.room(64));
                let (mut sent, mut len) = (Vec::new(), 0);
                for buffer in (0..n).map(kernel.send.read(n)).map(Descriptor::of_words) {
                    kernel.done.push([buffer.addr]);
                    len += buffer.len;
                    if buffer.options == 0 {
                        sent.push(std::mem::take(&mut len));
                    }
                }
                kernel.send.release();
                kernel.done.submit();
                assert_eq!(sent, lens, "{params:?}, round {round}");
                assert_eq!(device.complete(&mut done, usize::MAX), lens.len(), "{params:?}, round {round}");
                done.flush();
            }
            drop(device);
            assert_eq!(pool.inflight().out, 0, "{params:?}");
        }
    }

    #[test]
    fn a_packet_of_too_many_buffers_is_dropped_without_a_leak() {
        for params in several() {
            let (mut device, mut kernel, pool) = bed(params.clone());
            let mut packets = Vec::with_capacity(8);
            device.receive(&pool, &mut packets, 8);
            let most = (MAX_FRAGS + 1) as u32 * kernel.most;
            for round in 1..10 {
                let delivered = [most, most + 1, 60].map(|len| kernel.deliver(1, len));
                assert_eq!(delivered, [1; 3], "{params:?}");
                while device.receive(&pool, &mut packets, 1) > 0 {}
                let lens: Vec<_> = packets.drain(..).map(|packet| packet.len() as u32).collect();
                assert_eq!(lens, [most, 60], "{params:?}, round {round}");
                assert_eq!(device.stats().rx_too_many_buffers, round, "{params:?}");
                device.receive(&pool, &mut packets, 1); // takes buffers for those that were returned
                let out = pool.inflight().out;
                assert_eq!(out, 64, "{params:?}, round {round}: what the kernel has");
            }
            // A packet that never ends.
            kernel.deliver(1, 9014);
            kernel.deliver_part(100);
            device.receive(&pool, &mut packets, 8);
            packets.clear();
            drop(device);
            assert_eq!(pool.inflight().out, 0, "{params:?}");
        }
    }

    #[test]
    fn packets_come_and_go_in_every_kind_of_chunk() {
        let halves = UmemParams { chunk_size: 2048, ..Default::default() };
        let unaligned = UmemParams { chunk_size: 3072, unaligned: true, ..Default::default() };
        for params in [UmemParams::default(), halves, unaligned] {
            let (mut device, mut kernel, pool) = bed(params.clone());
            let (mut packets, mut done) = (Vec::with_capacity(64), XdpFrameBulk::new());
            let mut queue = TxQueue::with_capacity(64, 64);
            device.receive(&pool, &mut packets, 64);
            for _ in 0..50 {
                assert_eq!(kernel.deliver(40, 60), 40, "{params:?}");
                assert_eq!(device.receive(&pool, &mut packets, 64), 40, "{params:?}");
                assert!(packets.iter().all(|packet| packet.len() == 60));
                queue.push_burst(&mut packets);
                assert_eq!(
                    (device.transmit(&mut queue), queue.refused(), kernel.send()),
                    (40, 0, 40),
                    "{params:?}"
                );
                assert_eq!(device.complete(&mut done, usize::MAX), 40, "{params:?}");
                done.flush();
            }
            let stats = device.stats();
            assert_eq!((stats.rx_packets, stats.tx_completed, stats.in_tx, stats.calls), (2000, 2000, 0, 0));
            drop(device);
            assert_eq!(pool.inflight().out, 0, "{params:?}");
        }
    }
}
