//! AF_XDP over veth pairs with several queues. What an AF_XDP socket sends from a queue of one end arrives at
//!        the queue of
//! the same number of the other; what an ordinary socket sends takes a queue by the CPU that it is sent on.

use crate::veth;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::veth::Veth;
use pagepool::{Arena, ArenaParams, Bound, Pool, PoolParams, XdpBuff, XdpFrame, XdpFrameBulk};
use pagepool_lab::FrameSocket;
use pagepool_net::{
    Attach, Device, DeviceExt, Redirect, TxQueue, Umem, UmemParams, XskDevice, XskMode, XskParams,
};
use pagepool_testing::FarEnd;

/// Longest a packet may take; and how many go through each queue, in bursts that the rings have room for.
const LIMIT: Duration = veth::LIMIT;
const BURSTS: usize = 40;
const BURST: usize = 50;

fn needs_veth(name: &str, test: impl FnOnce()) {
    match veth::missing() {
        Some(why) => println!("SKIP {name}: {why}"),
        None => test(),
    }
}

/// Memory, registered.
struct Memory {
    arena: Arc<Arena>,
    umem: Arc<Umem>,
}

impl Memory {
    fn new(name: &str) -> Arc<Self> {
        let params = ArenaParams { max_bytes: 8 << 20, commit_all: true, ..Default::default() };
        let arena = Arena::new(params).expect("8 MiB");
        let params = UmemParams { name: name.into(), mode: XskMode::Copy, ..Default::default() };
        Arc::new(Self { umem: Umem::new(params, &arena).expect("memory to lock"), arena })
    }

    fn pool(&self) -> Bound {
        let domains = vec![self.umem.clone() as _];
        let params = PoolParams { headroom: 256, wakeup: true, domains, ..Default::default() };
        Pool::new(params, self.arena.clone()).expect("parameters in range").bind()
    }

    /// The device of a queue, with its first buffers, and its pool.
    fn open(&self, redirect: &Arc<Redirect>, interface: &str, queue: u32) -> (XskDevice, Bound) {
        let rings = XskParams { rx_ring: 256, tx_ring: 256, ..Default::default() };
        let redirect = Some(redirect.clone());
        let params = XskParams { interface: interface.into(), queue, redirect, busy_limit: LIMIT, ..rings };
        let pool = self.pool();
        let mut device = XskDevice::open(params, &self.umem, &pool).expect("a free queue");
        device.receive(&pool, &mut Vec::new(), 0);
        (device, pool)
    }
}

fn attach(interface: &str) -> Arc<Redirect> {
    Redirect::attach(interface, Attach::Native, false).expect("nothing is attached")
}

/// A packet of a queue with a number, and bytes and a length that follow from both.
fn packet(queue: u32, number: usize) -> Vec<u8> {
    let len = 60 + (number * 37 + queue as usize * 11) % 1400;
    let mut bytes: Vec<u8> = (0..len).map(|at| (at * 5 + number * 3 + queue as usize * 101) as u8).collect();
    bytes[..14].copy_from_slice(b"\x02to..\x01\x02from\x01\x88\xb5");
    bytes[14..18].copy_from_slice(&(number as u32).to_be_bytes());
    bytes[18..22].copy_from_slice(&queue.to_be_bytes());
    bytes
}

/// The queue and the number of a packet that is as it was made.
fn unpack(bytes: &[u8]) -> (u32, usize) {
    let word = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    let (number, queue) = (word(14) as usize, word(18));
    assert_eq!(bytes, packet(queue, number), "packet {number} of queue {queue} is as it was made");
    (queue, number)
}

fn frame(pool: &Bound, bytes: &[u8]) -> XdpFrame {
    let mut page = pool.alloc_page().expect("pages enough");
    page.packet_mut().expect("the CPU reads it")[..bytes.len()].copy_from_slice(bytes);
    XdpFrame::from(XdpBuff::received(page, bytes.len()).expect("it fits"))
}

/// Sends back what comes, until it must stop; returns how many there were, after all buffers have returned.
fn echo(mut device: XskDevice, pool: &Bound, stop: &AtomicBool) -> usize {
    let (mut packets, mut queue, mut done) = (Vec::with_capacity(64), TxQueue::new(), XdpFrameBulk::new());
    let (mut count, start) = (0, Instant::now());
    while !stop.load(Ordering::Relaxed) && start.elapsed() < 3 * LIMIT {
        count += device.receive(pool, &mut packets, 64);
        queue.extend(packets.drain(..).map(XdpFrame::from));
        device.transmit(&mut queue);
        device.complete(&mut done, 256);
        done.flush();
        let _ = device.wait(pool, Duration::from_millis(2));
    }
    drop((device, queue));
    assert_eq!(pool.inflight().out, 0, "all buffers returned");
    count
}

/// Sends bursts from queues, and waits for as many packets as come back of each; gives those, in their order.
fn bursts(devices: &mut [(XskDevice, Bound)], echoed: &[usize]) -> Vec<Vec<(u32, usize)>> {
    let mut back: Vec<Vec<_>> = devices.iter().map(|_| Vec::new()).collect();
    let (mut packets, mut done) = (Vec::with_capacity(64), XdpFrameBulk::new());
    for burst in 0..BURSTS {
        for (device, pool) in &mut *devices {
            let queue: u32 =
                device.info().name.rsplit(':').next().and_then(|n| n.parse().ok()).expect("IF:QUEUE");
            let mut frames: TxQueue =
                (0..BURST).map(|n| frame(pool, &packet(queue, burst * BURST + n))).collect();
            assert_eq!(device.transmit(&mut frames), BURST);
        }
        let start = Instant::now();
        let due = |back: &[Vec<_>]| {
            back.iter().zip(echoed).any(|(back, &of)| back.len() < (burst + 1) * BURST * of)
        };
        while (due(&back) || devices.iter().any(|(device, _)| device.stats().in_tx > 0))
            && start.elapsed() < LIMIT
        {
            for ((device, pool), back) in devices.iter_mut().zip(&mut back) {
                device.complete(&mut done, 256);
                device.receive(pool, &mut packets, 64);
                back.extend(packets.drain(..).map(|packet| unpack(packet.data())));
            }
            done.flush();
        }
    }
    back
}

/// All packets of a queue, in their order.
fn all_of(queue: u32) -> Vec<(u32, usize)> {
    (0..BURSTS * BURST).map(|number| (queue, number)).collect()
}

/// Echoes on the near queues, on a thread for each; the far end sends on queues 0 and 1. Gives what came back
/// to each of those, and what each near queue saw.
fn through(veth: &Rc<Veth>, near: &[(u32, Arc<Memory>)]) -> (Vec<Vec<(u32, usize)>>, Vec<usize>) {
    let (stop, redirect) = (AtomicBool::new(false), attach("near0"));
    let echoed: Vec<_> = (0..2).map(|queue| usize::from(near.iter().any(|(q, _)| *q == queue))).collect();
    let ready = std::sync::Barrier::new(near.len() + 1);
    std::thread::scope(|threads| {
        let echoes: Vec<_> = near
            .iter()
            .map(|(queue, memory)| {
                let (stop, redirect, ready) = (&stop, &redirect, &ready);
                threads.spawn(move || {
                    let (device, pool) = memory.open(redirect, "near0", *queue);
                    ready.wait();
                    echo(device, &pool, stop)
                })
            })
            .collect();
        ready.wait();
        let back = veth.far().spawn("far", move || {
            let (memory, redirect) = (Memory::new("far"), attach("far0"));
            let mut devices: Vec<_> = (0..2).map(|queue| memory.open(&redirect, "far0", queue)).collect();
            let back = bursts(&mut devices, &echoed);
            for (mut device, pool) in devices {
                device.close();
                assert_eq!(pool.inflight().out, 0, "all buffers returned");
            }
            back
        });
        let back = back.expect("a thread").join();
        stop.store(true, Ordering::Relaxed);
        let counts = echoes.into_iter().map(|thread| thread.join().expect("no panic")).collect();
        (back.expect("no panic"), counts)
    })
}

#[test]
fn two_queues_of_one_umem_are_polled_by_two_threads() {
    needs_veth("two queues", || {
        let veth = Veth::with_queues(1, 1500, 2);
        let memory = Memory::new("near");
        let (back, counts) = through(&veth, &[(0, memory.clone()), (1, memory.clone())]);
        assert_eq!(back, [all_of(0), all_of(1)], "each once, in order, by its own queue");
        assert_eq!((counts, memory.umem.sockets()), (vec![BURSTS * BURST; 2], 0));
    });
}

#[test]
fn queues_of_one_interface_may_have_a_umem_each() {
    needs_veth("two UMEMs", || {
        let veth = Veth::with_queues(1, 1500, 2);
        let (back, counts) = through(&veth, &[(0, Memory::new("first")), (1, Memory::new("second"))]);
        assert_eq!((back, counts), (vec![all_of(0), all_of(1)], vec![BURSTS * BURST; 2]));
    });
}

#[test]
fn what_comes_by_a_queue_without_a_device_goes_to_the_stack() {
    needs_veth("queue 1 alone", || {
        let veth = Veth::with_queues(1, 1500, 2);
        let stack = FrameSocket::open_here("near0").expect("it is there");
        let (back, counts) = through(&veth, &[(1, Memory::new("near"))]);
        assert_eq!((back, counts), (vec![Vec::new(), all_of(1)], vec![BURSTS * BURST]));
        let (mut bytes, mut passed) = (vec![0; 2048], Vec::new());
        let mut take = |passed: &mut Vec<_>| {
            while let Some(len) = stack.receive(&mut bytes).expect("the interface is there") {
                passed.push(unpack(&bytes[..len]));
            }
        };
        veth::wait_until("what goes to the stack", || {
            take(&mut passed);
            passed.len() >= BURSTS * BURST
        });
        take(&mut passed);
        assert_eq!(passed, all_of(0), "all of queue 0, and nothing of the other");
    });
}

#[test]
fn a_queue_beyond_the_last_is_refused_with_how_many_there_are() {
    needs_veth("a queue too many", || {
        let _veth = Veth::with_queues(1, 1500, 3);
        let params = XskParams { interface: "near0".into(), queue: 3, ..Default::default() };
        let memory = Memory::new("near");
        let refused =
            XskDevice::open(params, &memory.umem, &memory.pool()).map(drop).unwrap_err().to_string();
        let expected = "queue is 3, but must be 0 to 2: near0 has 3 receive and 3 transmit queues";
        assert_eq!(refused, expected);
    });
}

#[test]
fn senders_on_two_cpus_reach_two_queues() {
    let cpus = veth::cpus();
    if cpus.len() < 2 {
        return println!("SKIP two CPUs: this thread may run on one only");
    }
    needs_veth("two CPUs", || {
        let veth = Veth::with_queues(1, 1500, 2);
        let (memory, redirect) = (Memory::new("near"), attach("near0"));
        let mut devices = [0, 1].map(|queue| memory.open(&redirect, "near0", queue));
        let mut far = veth.far_end(0);
        let mut seen: [Vec<(u32, usize)>; 2] = Default::default();
        for number in 0..400 {
            let cpu = cpus[number % 2];
            pagepool_lab::pin(cpu).expect("it may run there");
            assert!(far.send(&packet(cpu as u32 % 2, number)));
            let (mut packets, start) = (Vec::with_capacity(8), Instant::now());
            while packets.is_empty() && start.elapsed() < LIMIT {
                for ((device, pool), seen) in devices.iter_mut().zip(&mut seen) {
                    let had = packets.len();
                    device.receive(pool, &mut packets, 8);
                    seen.extend(packets[had..].iter().map(|packet| unpack(packet.data())));
                }
            }
        }
        let total: usize = seen.iter().map(Vec::len).sum();
        assert_eq!(total, 400, "each once");
        for (queue, seen) in (0..).zip(&seen) {
            assert!(seen.iter().all(|(of, _)| *of == queue), "a queue by the CPU: {queue} has {seen:?}");
        }
        let both = cpus[0] % 2 != cpus[1] % 2;
        assert!(!both || seen.iter().all(|seen| seen.len() == 200), "both queues have traffic");
    });
}
