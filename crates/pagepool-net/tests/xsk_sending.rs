//! How AF_XDP devices send in copy mode: by a BPF program, and by the ring if that is better or alone
//! available.

use crate::veth;
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::veth::{CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON, CAP_SYS_ADMIN, Far, Tap, Veth};
use pagepool::{Arena, ArenaParams, Bound, Error, Pool, PoolParams, XdpBuff, XdpFrame, XdpFrameBulk};
use pagepool_lab::{DropRule, Hook, LinkSettings, TokenBucket};
use pagepool_link::Netlink;
use pagepool_net::{
    Attach, Device, Redirect, TxMode, TxQueue, Umem, UmemParams, XskDevice, XskMode, XskParams, ticks,
};

/// More than what the kernel begins a packet with, so that it grows, and still one buffer.
const MTU: usize = 3400;
/// Slots of each ring.
const SLOTS: u32 = 256;

/// The length of a packet with this number: what an Ethernet interface sends at least and at most, and all
/// between.
fn length(number: usize) -> usize {
    60 + number * 37 % (MTU + 14 - 59)
}

/// A device that sends so, and the pool of what it sends.
struct Near {
    veth: Rc<Veth>,
    device: XskDevice,
    pool: Bound,
}

fn open(veth: &Rc<Veth>, tx_mode: TxMode, umem: UmemParams) -> Result<Near, Error> {
    open_on("near0", veth, tx_mode, umem)
}

fn open_on(interface: &str, veth: &Rc<Veth>, tx_mode: TxMode, umem: UmemParams) -> Result<Near, Error> {
    let arena = Arena::new(ArenaParams { max_bytes: 8 << 20, commit_all: true, ..Default::default() })?;
    let several = umem.multi_buffer;
    let umem = Umem::new(UmemParams { mode: XskMode::Copy, ..umem }, &arena)?;
    let params = PoolParams { headroom: 256, domains: vec![umem.clone()], ..Default::default() };
    let pool = Pool::new(params, arena)?.bind();
    let redirect = Some(Redirect::attach(interface, Attach::Native, several)?);
    let rings = XskParams { rx_ring: SLOTS, tx_ring: SLOTS, ..Default::default() };
    // On a busy machine the kernel takes its time to end the last socket.
    let params =
        XskParams { interface: interface.into(), redirect, tx_mode, busy_limit: veth::LIMIT, ..rings };
    Ok(Near { veth: veth.clone(), device: XskDevice::open(params, &umem, &pool)?, pool })
}

/// Runs a test over a device that sends by a BPF program, if available.
fn by_program(name: &str, test: impl FnOnce(Near)) {
    if let Some(why) = veth::missing() {
        return println!("SKIP {name}: {why}");
    }
    if kernel() < (6, 15) {
        return println!("SKIP {name}: it needs Linux 6.15");
    }
    let veth = Veth::new(1, MTU);
    test(open(&veth, TxMode::BpfBatch, UmemParams::default()).expect("this kernel has all of it"));
}

/// The first two numbers of the kernel's version.
fn kernel() -> (u32, u32) {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("Linux has it");
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// A packet with a number, and bytes that follow from it.
fn packet(number: usize, len: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..len).map(|at| (at * 5 + number * 3) as u8).collect();
    bytes[..14].copy_from_slice(b"\x02to..\x01\x02from\x01\x88\xb5");
    bytes[14..18].copy_from_slice(&(number as u32).to_be_bytes());
    bytes
}

impl Near {
    fn frame(&self, number: usize) -> XdpFrame {
        let (len, page) = (length(number), self.pool.alloc_page().expect("pages enough"));
        let mut buff = XdpBuff::new(page, 256 + number % 64, len).expect("it fits");
        buff.data_mut().copy_from_slice(&packet(number, len));
        XdpFrame::from(buff)
    }

    fn send(&mut self, numbers: std::ops::Range<usize>) {
        let mut queue: TxQueue = numbers.map(|number| self.frame(number)).collect();
        drain(&mut self.device, &mut queue);
    }

    /// Buffers that wait to be sent, that were, and that are between.
    fn places(&self) -> [u64; 3] {
        let xsk = self.device.kernel_stats();
        [xsk.transmit, xsk.completed, xsk.tx_in_kernel + xsk.rejected]
    }

    fn is_by_program(&self) -> bool {
        self.device.tx_mode() == (TxMode::BpfBatch, None)
    }

    /// How often the kernel found nothing on the transmit ring, which is once per call that sent all of it.
    fn calls_by_ring(&self) -> u64 {
        self.device.kernel_stats().tx_ring_empty
    }
}

/// Polls until everything was sent.
fn drain(device: &mut XskDevice, queue: &mut TxQueue) {
    let (mut done, start) = (XdpFrameBulk::new(), Instant::now());
    while (!queue.is_empty() || device.stats().in_tx > 0) && start.elapsed() < veth::LIMIT {
        device.transmit(queue);
        device.complete(&mut done, 64);
        done.flush();
    }
    assert_eq!((queue.len(), device.stats().in_tx), (0, 0), "{:?}", device.kernel_stats());
}

/// The numbers of so many packets that arrive, each as it was made, and of those behind them.
fn arrived(far: &mut Far, count: usize) -> Vec<usize> {
    let number_of = |bytes: Vec<u8>| {
        let number = u32::from_be_bytes(bytes[14..18].try_into().expect("four bytes")) as usize;
        assert_eq!(bytes, packet(number, length(number)), "packet {number} arrives as it was");
        number
    };
    far.arriving(count).into_iter().map(number_of).collect()
}

#[test]
fn bursts_of_every_size_arrive_in_order_as_they_were() {
    by_program("bursts by a program", |mut near| {
        let (mut far, mut next, mut without_ring) = (near.veth.far_end(0), 0, 0);
        for size in (1..140).chain([SLOTS as usize, 2 * SLOTS as usize + 3, 1, 2, 3, 4]) {
            let calls = near.calls_by_ring();
            near.send(next..next + size);
            assert_eq!(arrived(&mut far, size), (next..next + size).collect::<Vec<_>>(), "a burst of {size}");
            let by_ring = near.calls_by_ring() - calls;
            let rounds = 1 + size as u64 / u64::from(SLOTS);
            assert!(by_ring <= rounds, "{size}: the last few at most");
            assert!(size >= 4 || by_ring == 1, "{size} are few");
            without_ring += usize::from(by_ring == 0);
            next += size;
        }
        assert!(without_ring > 100, "{without_ring} bursts took no call of the ring");
        let stats = near.device.stats();
        assert_eq!(
            (stats.tx_packets, stats.tx_completed, stats.tx_bad_descriptor),
            (next as u64, next as u64, 0)
        );
        let mut queue = (0..100).map(|number| near.frame(number)).collect();
        assert_eq!(
            (near.device.transmit(&mut queue), near.places()),
            (100, [0, 100, 0]),
            "sent, and not taken"
        );
        drain(&mut near.device, &mut queue);
        assert_eq!((near.places(), near.device.stats().tx_completed), ([0; 3], next as u64 + 100));
        near.device.close();
        assert_eq!((near.device.stats().closed_with, near.pool.inflight().out), (0, 0));
    });
}

#[test]
fn a_tap_sees_packets_sent_by_a_program_and_none_of_the_ring() {
    by_program("taps", |mut near| {
        let tap = Tap::new("near0");
        let heard = |near: &mut Near, expected| {
            near.send(0..32);
            tap.heard(expected)
        };
        assert_eq!((heard(&mut near, 32), near.is_by_program()), (32, true));
        let veth = near.veth.clone();
        drop(near);
        let mut near = open(&veth, TxMode::Ring, UmemParams::default()).expect("a free queue");
        assert_eq!((heard(&mut near, 0), near.is_by_program()), (0, false));
    });
}

/// Longer than between two looks for filters and taps.
const A_LOOK: Duration = Duration::from_millis(50);

#[test]
fn small_bursts_use_the_ring_only_while_there_is_no_tap() {
    by_program("taps beside few packets", |mut near| {
        let by_ring = |near: &mut Near| {
            let calls = near.calls_by_ring();
            near.send(0..2);
            near.calls_by_ring() - calls
        };
        assert_eq!(by_ring(&mut near), 1);
        let tap = Tap::new("near0");
        std::thread::sleep(A_LOOK);
        let sizes = [1, 2, 3, 64, 1, 5, 2, 70, 3, 7];
        for size in sizes {
            near.send(0..size / 2); // a tap has room for fifty long packets
            let first = tap.heard(size / 2);
            near.send(size / 2..size);
            assert_eq!((first + tap.heard(size - first), near.is_by_program()), (size, true));
        }
        drop(tap);
        // A child of another test, between `fork` and `exec`, may have it for a moment.
        veth::wait_until("few go by the ring", || {
            std::thread::sleep(A_LOOK);
            by_ring(&mut near) == 1
        });
    });
}

#[test]
fn no_packet_bypasses_rules_of_nftables_once_they_were_found() {
    by_program("rules at the egress", |near| {
        let veth = near.veth.clone();
        drop(near);
        let auto = || open(&veth, TxMode::Auto, UmemParams::default()).expect("a free queue");
        let (mut near, mut far) = (auto(), veth.far_end(0));
        near.send(0..2);
        let few = arrived(&mut far, 2).len();
        assert_eq!((few, near.is_by_program(), near.calls_by_ring()), (2, true, 1));
        let rule = match DropRule::add(Hook::Egress, "near0") {
            Ok(rule) => rule,
            Err(why) => return println!("SKIP rules of nftables: {why}"),
        };
        std::thread::sleep(A_LOOK);
        for size in [1, 2, 64, 3, 1] {
            near.send(0..size);
        }
        let dropped = near.device.stats().tx_dropped;
        assert_eq!((arrived(&mut far, 0), dropped, near.is_by_program()), (vec![], 71, true));
        drop(near);
        let near = auto();
        let (mode, why) = near.device.tx_mode();
        assert!(mode == TxMode::Ring && why.as_ref().is_some_and(|why| why.contains("nftables")), "{why:?}");
        drop((near, rule));
        assert!(auto().is_by_program(), "they are gone");
    });
}

/// Gives near0 a token bucket; says whether the kernel has some.
fn limit(bucket: TokenBucket) -> bool {
    let mut netlink = Netlink::open().expect("a namespace of our own");
    let index = netlink.link("near0").expect("it is there").index;
    match netlink.add_token_bucket(index, bucket) {
        Ok(()) => true,
        Err(error) if error.errno() == Some(libc::ENOENT) => {
            println!("SKIP token buckets: {error}");
            false
        }
        Err(error) => panic!("{error}"),
    }
}

fn limit_no_more() {
    let mut netlink = Netlink::open().expect("a namespace of our own");
    let index = netlink.link("near0").expect("it is there").index;
    netlink.delete_qdisc(index).expect("it was added");
}

#[test]
fn packets_stay_in_order_while_a_qdisc_is_added_and_removed() {
    by_program("a queueing discipline halfway", |near| {
        let veth = near.veth.clone();
        drop(near);
        for tx_mode in [TxMode::Auto, TxMode::BpfBatch] {
            let mut near = open(&veth, tx_mode, UmemParams::default()).expect("a free queue");
            let mut far = veth.far_end(0);
            let mut next = 0;
            let mut send = |near: &mut Near, sizes: &[usize]| {
                for &size in sizes {
                    near.send(next..next + size);
                    next += size;
                }
                next
            };
            let mixed = [64, 1, 10, 2, 64, 3, 1];
            let first = send(&mut near, &mixed);
            assert_eq!(arrived(&mut far, first), (0..first).collect::<Vec<_>>());
            assert!(near.calls_by_ring() > 0, "a few go by the ring");
            // It holds up packets for some milliseconds; on the ring others would overtake them.
            if !limit(TokenBucket { rate: 10_000_000, burst: 10_000, limit: 8 << 20 }) {
                return;
            }
            let calls = near.calls_by_ring();
            let second = send(&mut near, &[64, 1]); // a burst, and the first that could overtake it
            let second = send(&mut near, &mixed).max(second);
            for number in first..second {
                assert_eq!(far.next(), packet(number, length(number)), "packet {number} is the next one");
            }
            assert_eq!((near.calls_by_ring() - calls, near.is_by_program()), (0, true), "all pass the queue");
            limit_no_more();
            let third = send(&mut near, &mixed);
            assert_eq!(arrived(&mut far, third - second), (second..third).collect::<Vec<_>>());
            assert!(near.calls_by_ring() > calls, "a few go by the ring again");
            assert_eq!(near.device.stats().tx_dropped, 0);
        }
    });
}

#[test]
fn what_a_queueing_discipline_drops_is_lost_and_counted() {
    by_program("drops of a queueing discipline", |mut near| {
        // Five seconds' worth is sent at once: however slowly that goes, it is too much.
        if !limit(TokenBucket { rate: 100_000, burst: 10_000, limit: 20_000 }) {
            return;
        }
        let mut far = near.veth.far_end(0);
        near.send(0..300);
        let stats = near.device.stats();
        let got = arrived(&mut far, 300 - stats.tx_dropped as usize);
        println!("{} of 300 arrived, {} were dropped", got.len(), stats.tx_dropped);
        assert!(got.is_sorted() && stats.tx_dropped > 0);
        assert_eq!((got.len() as u64 + stats.tx_dropped, stats.tx_completed), (300, 300));
    });
}

#[test]
fn packets_to_a_veth_with_a_down_peer_are_lost_and_counted() {
    by_program("drops at a far end that is down", |near| {
        let veth = near.veth.clone();
        drop(near);
        for tx_mode in [TxMode::Ring, TxMode::BpfBatch] {
            let mut near = open(&veth, tx_mode, UmemParams::default()).expect("a free queue");
            let mut there = veth.far().netlink().expect("a namespace of our own");
            let far = there.link("far0").expect("it is there").index;
            there.set_up(far, false).expect("it is ours");
            [1, 2, 70, 3].iter().for_each(|&size| near.send(0..size));
            let stats = near.device.stats();
            assert_eq!((stats.tx_dropped, stats.tx_completed), (76, 76), "{tx_mode:?}");
            there.set_up(far, true).expect("it is ours");
            veth.set_up("near0", true); // which waits for both ends
        }
    });
}

#[test]
fn a_call_sends_64_packets_or_96_kib_at_most() {
    by_program("the bound of a call", |mut near| {
        let frame = |pool: &Bound, len| {
            XdpFrame::from(XdpBuff::new(pool.alloc_page().expect("pages enough"), 256, len).expect("it fits"))
        };
        for (len, calls) in [(60, 2), (1514, 2), (MTU, 3)] {
            let mut queue: TxQueue = (0..68).map(|_| frame(&near.pool, len)).collect();
            let before = near.device.stats().calls;
            assert_eq!(near.device.transmit(&mut queue), 68);
            assert_eq!(near.device.stats().calls - before, calls, "{len} bytes each");
            drain(&mut near.device, &mut queue);
            near.device.close();
            let again = open(&near.veth, TxMode::BpfBatch, UmemParams::default());
            near = again.expect("a free queue"); // whose ring begins anew: a call does not go beyond its end
        }
    });
}

#[test]
fn a_packet_without_a_whole_header_is_lost_alone() {
    by_program("packets without a header", |mut near| {
        let mut far = near.veth.far_end(0);
        let short = |len| {
            let page = near.pool.alloc_page().expect("pages enough");
            XdpFrame::from(XdpBuff::new(page, 256, len).expect("it fits"))
        };
        for at in [0, 1, 7] {
            let mut queue: TxQueue = (0..at).map(|number| near.frame(number)).collect();
            queue.extend([1, 13].map(short));
            queue.extend((at..10).map(|number| near.frame(number)));
            drain(&mut near.device, &mut queue);
            assert_eq!(arrived(&mut far, 10), (0..10).collect::<Vec<_>>(), "{at}");
        }
        let stats = near.device.stats();
        assert_eq!((stats.tx_completed, near.is_by_program()), (36, true), "{stats:?}");
        println!("{} of 6 were dropped", stats.tx_dropped);
    });
}

#[test]
fn a_thread_in_another_namespace_sends_by_the_ring_only() {
    by_program("another namespace", |near| {
        let mut far = near.veth.far_end(0);
        let Near { device, pool, veth } = near;
        let pool = pool.unbind();
        // An interface there has the same number, for both namespaces have a loopback and one more.
        let number = |netlink: Result<Netlink, _>, name| {
            netlink.and_then(|mut netlink| netlink.link(name)).expect("it is there").index
        };
        assert_eq!(number(Netlink::open(), "near0"), number(veth.far().netlink(), "far0"));
        let work = move || {
            let mut near = (device, pool.bind());
            let frames = |pool: &Bound| {
                let frame = |number: usize| {
                    let page = pool.alloc_page().expect("pages enough");
                    let mut buff = XdpBuff::new(page, 256, length(number)).expect("it fits");
                    buff.data_mut().copy_from_slice(&packet(number, length(number)));
                    XdpFrame::from(buff)
                };
                (0..100).map(frame).collect::<TxQueue>()
            };
            assert_eq!(near.0.tx_mode(), (TxMode::BpfBatch, None));
            drain(&mut near.0, &mut frames(&near.1));
            let why = Some("the device was polled in another network namespace".into());
            assert_eq!(near.0.tx_mode(), (TxMode::Ring, why));
            (near.0, near.1.unbind())
        };
        let (device, pool) = veth.far().run(work);
        let all = arrived(&mut far, 100);
        assert_eq!(all, (0..100).collect::<Vec<_>>(), "at the far end, by way of the near one");
        assert_eq!((device.stats().tx_completed, pool.handle().inflight().out), (100, 0));
    });
}

#[test]
fn what_waits_on_the_ring_goes_before_what_a_program_could_send() {
    by_program("order", |mut near| {
        let mut far = near.veth.far_end(0);
        for round in 0..5 {
            near.veth.set_up("near0", false);
            let first = round * 200;
            let mut queue: TxQueue = (first..first + 100).map(|number| near.frame(number)).collect();
            near.device.transmit(&mut queue);
            assert_eq!(near.places(), [100, 0, 0], "they wait");
            queue.extend((first + 100..first + 200).map(|number| near.frame(number)));
            near.veth.set_up("near0", true);
            near.device.transmit(&mut queue);
            drain(&mut near.device, &mut queue);
            assert_eq!(arrived(&mut far, 200), (first..first + 200).collect::<Vec<_>>(), "round {round}");
        }
        assert!(near.is_by_program());
    });
}

#[test]
fn an_unavailable_bpf_batch_is_refused_and_auto_falls_back() {
    if let Some(why) = veth::missing() {
        return println!("SKIP refused programs: {why}");
    }
    let veth = Veth::new(1, MTU);
    let several = UmemParams { multi_buffer: true, ..Default::default() };
    let refused = |near: Result<Near, Error>| near.map(drop).unwrap_err().to_string();
    if let Some(why) = veth::no_multi_buffer() {
        println!("SKIP refused programs, of several buffers: {why}");
    } else {
        let error = refused(open(&veth, TxMode::BpfBatch, several.clone()));
        assert!(error.contains("tx_mode is bpf-batch, but must be ring or auto"), "{error}");
        let near = open(&veth, TxMode::Auto, several).expect("a free queue");
        let why = Some("packets may have several buffers".into());
        assert_eq!(near.device.tx_mode(), (TxMode::Ring, why));
    }
    let refused = |capabilities: &[u32]| {
        let opened = || {
            let arena =
                Arena::new(ArenaParams { max_bytes: 1 << 20, commit_all: true, ..Default::default() })?;
            let umem = Umem::new(UmemParams { mode: XskMode::Copy, ..Default::default() }, &arena)?;
            let pool = PoolParams { headroom: 256, domains: vec![umem.clone()], ..Default::default() };
            let pool = Pool::new(pool, arena)?.bind();
            let device = |tx_mode| {
                let rings =
                    XskParams { rx_ring: 8, tx_ring: 8, busy_limit: veth::LIMIT, ..Default::default() };
                XskDevice::open(XskParams { interface: "near0".into(), tx_mode, ..rings }, &umem, &pool)
            };
            let error = device(TxMode::BpfBatch).map(drop).unwrap_err().to_string();
            let device = device(TxMode::Auto)?; // over the same memory
            assert_eq!((device.tx_mode(), umem.sockets()), ((TxMode::Ring, Some(error.clone())), 1));
            Ok::<_, Error>(error)
        };
        veth::without(capabilities, opened).expect("the ring is available")
    };
    let error = refused(&[CAP_PERFMON, CAP_SYS_ADMIN]);
    assert!(error.contains("CAP_PERFMON") && error.contains("6.15"), "{error}");
    let error = refused(&[CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON, CAP_SYS_ADMIN]);
    assert!(error.contains("no CAP_BPF and CAP_NET_ADMIN and CAP_PERFMON"), "{error}");
}

#[test]
fn auto_uses_the_ring_if_the_egress_path_is_unknown() {
    by_program("unknown queueing disciplines", |near| {
        drop(near);
        // The sockets that listen to the kernel's messages are the ones with an address of this length.
        let len = size_of::<libc::sockaddr_nl>() as u32;
        let unheard = veth::Refused { call: libc::SYS_bind, argument: (2, len), errno: libc::EACCES };
        let modes = veth::refused(&[unheard], || {
            [TxMode::Auto, TxMode::BpfBatch].map(|tx_mode| {
                let arena = ArenaParams { max_bytes: 1 << 20, commit_all: true, ..Default::default() };
                let arena = Arena::new(arena).expect("1 MiB");
                let umem = UmemParams { mode: XskMode::Copy, ..Default::default() };
                let umem = Umem::new(umem, &arena).expect("memory of an arena");
                let rings =
                    XskParams { rx_ring: 8, tx_ring: 8, busy_limit: veth::LIMIT, ..Default::default() };
                let params = XskParams { interface: "near0".into(), tx_mode, ..rings };
                let pool = PoolParams { headroom: 256, domains: vec![umem.clone()], ..Default::default() };
                let pool = Pool::new(pool, arena).expect("parameters in range").bind();
                XskDevice::open(params, &umem, &pool).expect("a free queue").tx_mode()
            })
        });
        let why = "it is unknown what packets sent by near0 pass: Permission denied (os error 13)";
        assert_eq!(modes, [(TxMode::Ring, Some(why.into())), (TxMode::BpfBatch, None)]);
    });
}

#[test]
fn where_packets_pass_a_queue_all_go_by_the_program_or_none() {
    by_program("queueing disciplines", |near| {
        let veth = near.veth.clone();
        drop(near);
        let version = std::process::Command::new("tc").arg("-V").output();
        if !version.is_ok_and(|said| String::from_utf8_lossy(&said.stdout).contains("iproute2")) {
            return println!("SKIP queueing disciplines: no tc of iproute2");
        }
        for words in [&["root", "pfifo"][..], &["clsact"]] {
            let kind = words[words.len() - 1];
            let tc = |what: &str| {
                let mut tc = std::process::Command::new("tc");
                let done = tc.args(["qdisc", what, "dev", "near0"]).args(words).output()?;
                Ok::<_, std::io::Error>((
                    done.status.success(),
                    String::from_utf8_lossy(&done.stderr).into_owned(),
                ))
            };
            match tc("add") {
                Err(why) => panic!("tc ran a moment ago: {why}"),
                Ok((false, why)) if why.contains("unknown") => {
                    println!("SKIP queueing disciplines: {why}");
                    continue;
                }
                Ok((done, why)) => assert!(done, "{why}"),
            }
            let near = open(&veth, TxMode::Auto, UmemParams::default()).expect("a free queue");
            let why = near.device.tx_mode().1.expect("there is a reason");
            assert!(why.contains("sent by near0 pass the qdisc") && why.contains(kind), "{why}");
            drop(near);
            let mut near = open(&veth, TxMode::BpfBatch, UmemParams::default()).expect("a free queue");
            let (mut far, mut next) = (veth.far_end(0), 0);
            for size in 1..100 {
                near.send(next..next + size);
                assert_eq!(arrived(&mut far, size), (next..next + size).collect::<Vec<_>>(), "{kind}");
                next += size;
            }
            assert_eq!((near.calls_by_ring(), near.is_by_program()), (0, true), "{kind}");
            drop(near);
            assert!(tc("del").is_ok_and(|(done, _)| done));
        }
    });
}

#[test]
#[ignore = "measures time: .ci/timing runs it alone"]
fn a_program_costs_this_cpu_about_what_the_ring_does() {
    if let Some(why) = veth::missing() {
        return println!("SKIP the cost of bursts: {why}");
    }
    if kernel() < (6, 15) {
        return println!("SKIP the cost of bursts: it needs Linux 6.15");
    }
    if cfg!(debug_assertions) {
        return println!("SKIP the cost of bursts: it measures, and this was built for debugging");
    }
    let veth = Veth::new(2, MTU);
    let near = |interface, tx_mode| {
        open_on(interface, &veth, tx_mode, UmemParams::default()).expect("this kernel has all of it")
    };
    let mut ways = [near("near0", TxMode::Ring), near("near1", TxMode::BpfBatch)];
    let mut medians = [0; 2];
    for burst in [4, 8, 16, 64] {
        let mut spent = [Vec::new(), Vec::new()];
        for _ in 0..300 {
            for (way, spent) in ways.iter_mut().zip(&mut spent) {
                let mut queue = (0..burst).map(|_| way.frame(0)).collect(); // 60 bytes
                let before = ticks();
                assert_eq!(way.device.transmit(&mut queue), burst);
                spent.push((ticks() - before) / burst as u64);
                drain(&mut way.device, &mut queue);
            }
        }
        spent.iter_mut().for_each(|spent| spent.sort_unstable());
        medians = spent.map(|spent| spent[spent.len() / 2]);
        println!(
            "{burst:2} packets at once: {} cycles each by the ring, {} by a program",
            medians[0], medians[1]
        );
    }
    assert!(medians[1] < medians[0] * 3 / 2, "64 packets: {medians:?}");
}
