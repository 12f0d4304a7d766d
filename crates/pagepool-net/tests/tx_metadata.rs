//! Requests of packets that are sent: checksums and timestamps over a veth, and the layout of the requests,
//! as this kernel describes it. Zero copy needs hardware and is not tested here.

use crate::btf;
use crate::veth;
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::veth::{Far, Veth};
use pagepool::{AdjustError, Arena, ArenaParams, Bound, Error, Pool, PoolParams, XdpBuff, XdpFrameBulk};
use pagepool_net::{
    Device, TxChecksum, TxFeatures, TxMetadata, TxMetadataMode, TxMode, TxQueue, TxTimestamp, Umem,
    UmemParams, XskDevice, XskMode, XskParams,
};

/// Bytes of metadata.
const LEN: usize = 48;
/// Slots of the rings.
const SLOTS: u32 = 16;

fn with_metadata(mode: TxMetadataMode) -> UmemParams {
    UmemParams { tx_metadata: mode, mode: XskMode::Copy, ..Default::default() }
}

fn open(umem: UmemParams, tx_mode: TxMode) -> Result<(XskDevice, Bound), Error> {
    open_on("near0", umem, tx_mode)
}

fn open_on(interface: &str, umem: UmemParams, tx_mode: TxMode) -> Result<(XskDevice, Bound), Error> {
    let page_size = if umem.chunk_size == 2048 { 2048 } else { 4096 };
    let arena = ArenaParams { max_bytes: 4 << 20, page_size, commit_all: true, ..Default::default() };
    let arena = Arena::new(arena)?;
    let umem = Umem::new(umem, &arena)?;
    let params = PoolParams { headroom: 256, max_len: 1536, ..Default::default() };
    let pool = Pool::new(PoolParams { domains: vec![umem.clone()], ..params }, arena)?.bind();
    let busy_limit = veth::LIMIT; // on a busy machine the kernel takes its time to end the last socket
    let rings = XskParams { rx_ring: SLOTS, tx_ring: SLOTS, tx_mode, busy_limit, ..Default::default() };
    Ok((XskDevice::open(XskParams { interface: interface.into(), ..rings }, &umem, &pool)?, pool))
}

/// A device that sends from the near end, and the far one.
struct Bed {
    device: XskDevice,
    pool: Bound,
    far: Far,
    done: XdpFrameBulk,
    _veth: Rc<Veth>,
}

/// Runs a test where the kernel takes metadata.
fn over_veth(name: &str, umem: UmemParams, test: impl FnOnce(Bed)) {
    let old =
        || veth::older_than((6, 11)).map(|why| format!("metadata of packets that are sent requires {why}"));
    if let Some(why) = veth::missing().or_else(old) {
        return println!("SKIP {name}: {why}");
    }
    let veth = Veth::new(1, 1500);
    let (device, pool) = open(umem, TxMode::Auto).expect("this kernel has all of it");
    let far = veth.far_end(0);
    test(Bed { device, pool, far, done: XdpFrameBulk::new(), _veth: veth });
}

impl Bed {
    fn packet(&self, bytes: &[u8]) -> XdpBuff {
        let mut packet =
            XdpBuff::received(self.pool.alloc_page().expect("pages enough"), bytes.len()).expect("room");
        packet.data_mut().copy_from_slice(bytes);
        packet
    }

    /// As docs/guide.md has it.
    fn stamped(&self, bytes: &[u8], number: u64) -> Result<XdpBuff, AdjustError> {
        let mut packet = self.packet(bytes);
        let checksum = TxChecksum::prepare(packet.data_mut()); // TCP, UDP: writes the pseudo-header sum
        let asks = TxMetadata { checksum, timestamp: Some(number), ..Default::default() };
        asks.write(&mut packet)?; // last: uses 48 bytes of headroom, and fixes the packet's start
        Ok(packet)
    }

    fn asking(&self, bytes: &[u8], asks: TxMetadata) -> XdpBuff {
        let mut packet = self.packet(bytes);
        asks.write(&mut packet).expect("headroom");
        packet
    }

    /// Sends packets, and waits until they are completed; says how many were refused.
    fn send(&mut self, mut packets: Vec<XdpBuff>) -> usize {
        let (before, all) = (self.device.stats().tx_completed, packets.len());
        let mut queue = TxQueue::new();
        queue.push_burst(&mut packets);
        let start = Instant::now();
        let completed = |device: &XskDevice| (device.stats().tx_completed - before) as usize;
        while completed(&self.device) + (queue.refused() as usize) < all && start.elapsed() < veth::LIMIT {
            self.device.transmit(&mut queue);
            self.device.complete(&mut self.done, 64);
            self.done.flush();
        }
        assert_eq!(completed(&self.device) + queue.refused() as usize, all, "{:?}", self.device.stats());
        queue.refused() as usize
    }

    fn receive(&mut self) -> Vec<u8> {
        self.far.next()
    }
}

/// A datagram over IPv4 or IPv6 of `len` bytes of UDP, with no checksum.
fn datagram(v6: bool, len: u8) -> Vec<u8> {
    let mut frame = vec![2; 12];
    let udp = [0x10, 1, 0x20, 2, 0, len, 0, 0];
    if v6 {
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, len, 17, 64]);
        frame.extend((0..32).map(|at| at * 7));
    } else {
        frame.extend([8, 0, 0x45, 0, 0, 20 + len, 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1, 198, 51, 100, 2]);
    }
    frame.extend(udp);
    frame.extend((8..len).map(|at| at.wrapping_mul(37)));
    frame
}

/// The sum over pseudo-header and payload, which is 0xffff if the checksum is right.
fn sum(frame: &[u8], v6: bool) -> u16 {
    let (addresses, udp) = if v6 { (22..54, 54) } else { (26..34, 34) };
    let word = |pair: &[u8]| u64::from(pair[0]) << 8 | u64::from(pair.get(1).copied().unwrap_or(0));
    let words = |bytes: &[u8]| bytes.chunks(2).map(word).sum::<u64>();
    let mut sum = words(&frame[addresses]) + 17 + (frame.len() - udp) as u64 + words(&frame[udp..]);
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    sum as u16
}

#[test]
fn a_requested_checksum_is_right_at_the_other_end() {
    for chunk_size in [4096, 2048, 3072] {
        let umem = UmemParams {
            chunk_size,
            unaligned: chunk_size == 3072,
            ..with_metadata(TxMetadataMode::SoftwareChecksum)
        };
        over_veth("checksums", umem, |mut bed| {
            for (v6, len) in [(false, 40), (true, 41), (false, 9), (true, 8)] {
                let mut frame = datagram(v6, len);
                assert_ne!(sum(&frame, v6), 0xffff, "it has none");
                let checksum = TxChecksum::prepare(&mut frame).expect("UDP has one");
                let asks = TxMetadata { checksum: Some(checksum), ..Default::default() };
                let sent = vec![bed.asking(&frame, asks), bed.packet(&frame)];
                assert_eq!(bed.send(sent), 0);
                let [with, without] = [bed.receive(), bed.receive()];
                assert_eq!(sum(&with, v6), 0xffff, "{chunk_size}, {v6}, {len}");
                let at = usize::from(checksum.start + checksum.offset);
                assert_eq!(
                    (with.len(), &with[..at], &with[at + 2..]),
                    (frame.len(), &frame[..at], &frame[at + 2..])
                );
                assert_eq!(without, frame, "who asks for nothing gets nothing");
            }
        });
    }
}

#[test]
fn without_software_a_veth_leaves_the_checksum_to_the_receiver() {
    over_veth("checksums of a driver", with_metadata(TxMetadataMode::On), |mut bed| {
        let mut frame = datagram(false, 40);
        let asks = TxMetadata { checksum: TxChecksum::prepare(&mut frame), ..Default::default() };
        let sent = vec![bed.asking(&frame, asks)];
        assert_eq!((bed.send(sent), bed.receive()), (0, frame), "the pseudo-header checksum");
    });
}

/// Nanoseconds of the clock that the timestamps.
fn tai() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes a time.
    #[expect(unsafe_code, reason = "a clock that the standard library does not have")]
    let done = unsafe { libc::clock_gettime(libc::CLOCK_TAI, &raw mut now) };
    assert_eq!(done, 0);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[test]
fn the_time_at_which_a_packet_left_comes_back_under_its_number() {
    over_veth("timestamps", with_metadata(TxMetadataMode::On), |mut bed| {
        let checksum = Some(TxChecksum { start: 34, offset: 6 });
        let frame = datagram(false, 40);
        let before = tai();
        let stamped = [u64::MAX, 0].map(|number| bed.stamped(&frame, number).expect("headroom"));
        let others = [bed.asking(&frame, TxMetadata { checksum, ..Default::default() }), bed.packet(&frame)];
        assert_eq!(bed.send(stamped.into_iter().chain(others).collect()), 0);
        let mut times: Vec<TxTimestamp> = Vec::new();
        assert_eq!(bed.device.take_tx_timestamps(&mut times), 0);
        let mut numbers: Vec<_> = times.iter().map(|time| time.number).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, [0, u64::MAX], "of those that asked");
        // The clock that the kernel reads without a lock may be a little behind, or ahead.
        let (least, most) = (before - 1_000_000, tai() + 1_000_000);
        assert!(times.iter().all(|time| (least..=most).contains(&time.at)), "{before}: {times:?}");

        times.clear();
        for number in 0..u64::from(SLOTS) + 3 {
            let sent = vec![bed.stamped(&frame, number).expect("headroom")];
            bed.send(sent);
        }
        assert_eq!(bed.device.take_tx_timestamps(&mut times), 3, "nobody took them");
        assert!(times.iter().map(|time| time.number).eq(3..3 + u64::from(SLOTS)));
        assert_eq!((bed.device.take_tx_timestamps(&mut times), times.len()), (0, SLOTS as usize));
    });
}

#[test]
fn unsupported_requests_are_dropped_and_block_no_packet() {
    over_veth("refused requests", with_metadata(TxMetadataMode::On), |mut bed| {
        let served = TxFeatures { checksum: true, timestamp: true, launch_time: false };
        assert_eq!(bed.device.tx_features(), served, "a veth has no clock to wait for");
        let frame = datagram(false, 40);
        let at = |start| TxMetadata { checksum: Some(TxChecksum { start, offset: 6 }), ..Default::default() };
        let most = frame.len() as u16 - 8;
        let late = TxMetadata { launch_time: Some(tai()), ..Default::default() };
        let at_start = XdpBuff::new(bed.pool.alloc_page().expect("a page"), LEN - 1, 60).expect("room");
        let sent = vec![
            bed.asking(&frame, late),
            bed.asking(&frame, at(most)),
            bed.asking(&frame, at(most + 1)),
            bed.asking(&frame, at(u16::MAX)),
            at_start,
            bed.asking(&frame, TxMetadata::default()),
            XdpBuff::new(bed.pool.alloc_page().expect("a page"), LEN, 60).expect("room"),
        ];
        assert_eq!(bed.send(sent), 4);
        let stats = bed.device.stats();
        assert_eq!((stats.tx_bad_metadata, stats.tx_packets, stats.tx_unmapped), (4, 3, 0));
        let lens = [bed.receive().len(), bed.receive().len(), bed.receive().len()];
        assert_eq!(lens, [frame.len(), frame.len(), 60]);
        assert_eq!(bed.device.kernel_stats().tx_invalid_descs, 0);
        drop(bed.device);
        assert_eq!(bed.pool.inflight().out, 0);
    });
}

#[test]
fn requests_of_packets_of_several_buffers_are_in_the_first() {
    let umem = UmemParams { multi_buffer: true, ..with_metadata(TxMetadataMode::On) };
    over_veth("requests of several buffers", umem, |mut bed| {
        let mut packet =
            bed.asking(&datagram(false, 40), TxMetadata { timestamp: Some(5), ..Default::default() });
        let mut more = bed.pool.alloc_page().expect("a page");
        more.packet_mut().expect("memory")[..100].fill(9);
        let at = more.packet_offset();
        packet.add_frag(more, at, 100).expect("room");
        assert_eq!(bed.send(vec![packet]), 0);
        assert_eq!(bed.receive()[74..], [9; 100]);
        let mut times = Vec::new();
        bed.device.take_tx_timestamps(&mut times);
        assert_eq!(times.iter().map(|time| time.number).collect::<Vec<_>>(), [5]);
    });
}

#[test]
fn a_socket_without_metadata_ignores_it() {
    over_veth("requests that nobody reads", with_metadata(TxMetadataMode::Off), |mut bed| {
        assert_eq!(bed.device.tx_features(), TxFeatures::default());
        let frame = datagram(false, 40);
        let all = TxMetadata {
            checksum: Some(TxChecksum { start: 34, offset: 6 }),
            timestamp: Some(1),
            launch_time: Some(2),
            ..Default::default()
        };
        let sent = vec![bed.asking(&frame, all)];
        assert_eq!((bed.send(sent), bed.receive()), (0, frame));
        let mut times = Vec::new();
        assert_eq!((bed.device.take_tx_timestamps(&mut times), times), (0, vec![]));
    });
}

#[test]
fn packets_with_requests_go_by_the_ring() {
    over_veth("requests and BPF batch", with_metadata(TxMetadataMode::On), |mut bed| {
        let (mode, why) = bed.device.tx_mode();
        let why = why.expect("a veth's packets go by BPF batch otherwise");
        assert!(mode == TxMode::Ring && why.contains("packets may carry requests"), "{why}");
        bed.device.close();
        let refused =
            open(with_metadata(TxMetadataMode::On), TxMode::BpfBatch).map(drop).unwrap_err().to_string();
        assert!(
            refused.contains("tx_mode is bpf-batch") && refused.contains("leave tx_metadata off"),
            "{refused}"
        );
    });
}

#[test]
fn a_kernel_without_it_says_which_version_has_it() {
    let name = "a_kernel_without_it_says_which_version_has_it";
    if veth::older_than((6, 8)).is_none() {
        return println!("SKIP {name}: this kernel has it");
    }
    if let Some(why) = veth::missing() {
        return println!("SKIP {name}: {why}");
    }
    let _veth = Veth::new(1, 1500);
    for mode in [TxMetadataMode::On, TxMetadataMode::SoftwareChecksum] {
        let refused = open(with_metadata(mode), TxMode::Auto).map(drop).unwrap_err().to_string();
        assert!(
            refused.contains("requires Linux 6.11") && refused.contains("TxMetadataMode::Off"),
            "{refused}"
        );
    }
    open(with_metadata(TxMetadataMode::Off), TxMode::Auto).map(drop).expect("without it works");
}

fn bytes_of(asks: TxMetadata) -> Vec<u8> {
    let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() }).expect("1 MiB");
    let pool = Pool::new(PoolParams { headroom: 128, ..Default::default() }, arena).expect("a pool").bind();
    let mut packet = XdpBuff::received(pool.alloc_page().expect("a page"), 60).expect("room");
    asks.write(&mut packet).expect("headroom");
    packet.meta().to_vec()
}

#[test]
fn requests_lie_where_this_kernel_looks_for_them() {
    let Some(types) = btf::of_kernel() else {
        return println!("SKIP layout: there are no types of the kernel");
    };
    let Some(members) = types.members("xsk_tx_metadata") else {
        return println!("SKIP layout: this kernel has no struct xsk_tx_metadata (Linux 6.8)");
    };
    let place = |name: &str| members.iter().find(|(member, _)| member == name).map(|(_, at)| *at);
    let asks = TxMetadata {
        checksum: Some(TxChecksum { start: 0x1234, offset: 0x5678 }),
        timestamp: Some(0x9abc),
        launch_time: Some(0xdef0),
        ..Default::default()
    };
    let bytes = bytes_of(asks);
    let half = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
    let word = |at: usize| u64::from_ne_bytes(*bytes[at..].first_chunk().expect("eight bytes"));
    assert_eq!(bytes.len(), LEN);
    assert_eq!(place("request.csum_start").map(half), Some(0x1234), "{members:?}");
    assert_eq!(place("request.csum_offset").map(half), Some(0x5678));
    assert_eq!(place("completion.tx_timestamp"), place("request.csum_start"), "where the time is read");
    match place("request.launch_time") {
        Some(at) => assert_eq!((word(at), word(place("flags").expect("a field"))), (0xdef0, 7)),
        None => println!("SKIP launch time: it requires Linux 6.15"),
    }
    let at = types
        .members("xdp_umem_reg")
        .and_then(|all| all.into_iter().find(|(name, _)| name == "tx_metadata_len"));
    assert_eq!(at.map(|(_, at)| at), Some(std::mem::offset_of!(libc::xdp_umem_reg, tx_metadata_len)));
    let flags = types.values("netdev_xsk_flags").expect("an enumeration");
    let value = |name: &str| flags.iter().find(|(of, _)| of == name).map(|(_, value)| *value);
    assert_eq!(
        [value("NETDEV_XSK_FLAGS_TX_TIMESTAMP"), value("NETDEV_XSK_FLAGS_TX_CHECKSUM")],
        [Some(1), Some(2)]
    );
    assert!(value("NETDEV_XSK_FLAGS_TX_LAUNCH_TIME_FIFO").is_none_or(|value| value == 4));
}

#[test]
fn metadata_flags_match_the_requests_and_need_headroom() {
    let flags = |asks| u64::from_ne_bytes(*bytes_of(asks).first_chunk().expect("eight bytes"));
    let checksum = Some(TxChecksum { start: 1, offset: 2 });
    let one = [
        TxMetadata { timestamp: Some(0), ..Default::default() },
        TxMetadata { checksum, ..Default::default() },
        TxMetadata { launch_time: Some(0), ..Default::default() },
    ];
    assert_eq!((one.map(flags), flags(TxMetadata::default())), ([1, 2, 4], 0));

    let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() }).expect("1 MiB");
    let pool = Pool::new(PoolParams::default(), arena).expect("a pool").bind();
    let packet = |offset| XdpBuff::new(pool.alloc_page().expect("a page"), offset, 60).expect("room");
    let mut tight = packet(LEN - 4);
    assert_eq!(TxMetadata::default().write(&mut tight), Err(AdjustError::NoRoom));
    assert_eq!((tight.meta().len(), tight.headroom()), (0, LEN - 4), "nothing was changed");
    let mut enough = packet(LEN);
    enough.adjust_meta(-8).expect("room");
    one.iter().for_each(|asks| asks.write(&mut enough).expect("in place of other metadata"));
    assert_eq!((enough.meta().len(), enough.headroom()), (LEN, 0));
}

/// Has a queue below an interface of its own hold what is sent; says why not.
fn slow_link(bytes_per_second: u32) -> Result<(), String> {
    let rate = format!("{}bit", 8 * bytes_per_second);
    let commands = [
        &["ip", "link", "add", "link", "near0", "name", "over0", "type", "macvlan"][..],
        &["ip", "link", "set", "over0", "up"],
        &[
            "tc", "qdisc", "add", "dev", "near0", "root", "tbf", "rate", &rate, "burst", "1600", "limit",
            "99999",
        ],
    ];
    for words in commands {
        let done = std::process::Command::new(words[0]).args(&words[1..]).output();
        let done = done.map_err(|why| format!("{}: {why}", words[0]))?;
        if !done.status.success() {
            return Err(format!("{words:?}: {}", String::from_utf8_lossy(&done.stderr)));
        }
    }
    Ok(())
}

/// Closes a device of which three packets that ask for the time are on their way; gives it and its pool.
fn closed_over(
    name: &str,
    bytes_per_second: u32,
    timestamp: Option<u64>,
) -> Option<(XskDevice, Bound, Duration)> {
    let old =
        || veth::older_than((6, 11)).map(|why| format!("metadata of packets that are sent requires {why}"));
    if let Some(why) = veth::missing().or_else(old) {
        println!("SKIP {name}: {why}");
        return None;
    }
    let _veth = Veth::new(1, 1500);
    if let Err(why) = slow_link(bytes_per_second) {
        println!("SKIP {name}: {why}");
        return None;
    }
    let (mut device, pool) =
        open_on("over0", with_metadata(TxMetadataMode::On), TxMode::Auto).expect("this kernel has all of it");
    let mut queue = TxQueue::new();
    let packet = |_| {
        let mut packet = XdpBuff::received(pool.alloc_page().expect("pages enough"), 1400).expect("room");
        packet.data_mut().fill(2);
        TxMetadata { timestamp, ..Default::default() }.write(&mut packet).expect("headroom");
        packet
    };
    queue.push_burst(&mut (0..3).map(packet).collect());
    assert_eq!(device.transmit(&mut queue), 3, "{:?}", device.stats());
    let start = Instant::now();
    device.close();
    Some((device, pool, start.elapsed()))
}

#[test]
fn a_close_waits_for_the_times_that_the_kernel_still_writes() {
    // The second packet waits for a tenth of a second, the third for another.
    let Some((device, pool, _)) = closed_over("packets on their way", 14_000, Some(1)) else { return };
    let page = |_| {
        let mut page = XdpBuff::new(pool.alloc_page().expect("pages enough"), 0, 1792).expect("room");
        page.data_mut().fill(0xaa);
        page
    };
    let pages: Vec<_> = (0..8).map(page).collect(); // among them the three that were sent
    std::thread::sleep(Duration::from_millis(400));
    let written = pages.iter().filter(|page| page.data().iter().any(|&byte| byte != 0xaa)).count();
    assert_eq!(written, 0, "pages that others have by now");
    drop(pages);
    let stats = device.stats();
    assert_eq!((stats.tx_completed, stats.in_tx, pool.inflight().out), (3, 0, 0), "{stats:?}");
}

#[test]
fn close_leaks_pages_that_the_kernel_may_still_write() {
    // The third packet waits for a minute.
    let Some((device, pool, took)) = closed_over("packets held for long", 30, Some(1)) else { return };
    let stats = device.stats();
    assert!((1..=2).contains(&stats.in_tx), "one was sent at once: {stats:?}");
    assert_eq!((pool.inflight().out, stats.in_tx + stats.tx_completed), (stats.in_tx, 3), "{stats:?}");
    assert!(took >= Duration::from_secs(1), "{took:?}");
}

#[test]
fn packets_without_a_timestamp_request_return_at_once() {
    let Some((device, pool, _)) = closed_over("packets without a time", 30, None) else { return };
    let stats = device.stats();
    assert_eq!((stats.in_tx, pool.inflight().out), (0, 0), "{stats:?}");
    assert!(stats.closed_with >= 2, "nobody waited: {stats:?}");
}
