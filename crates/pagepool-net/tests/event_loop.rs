//! Handoffs and forwarders in an event loop that gets each event once, as tokio's is: no wake-up is
//! missed, and who sends pays for a wake-up only if somebody sleeps.

// UNSAFETY: an epoll set of its own, and the count of an event counter.
#![allow(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test fails where it cannot go on")]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use pagepool::{Arena, ArenaParams, Bound, DmaDomain, Pool, PoolParams, XdpBuff, XdpFrame};
use pagepool_net::{
    Action, Armed, Forwarder, HandoffRx, Ingress, MemNicParams, NicDomain, PacketHandler, PortId, handoff,
    mem_nic,
};

/// Longer than anything takes that is not lost.
const LIMIT: Duration = Duration::from_secs(60);

/// A reactor: the descriptor is in its set from the beginning, and each change of it is reported once.
struct Reactor(OwnedFd);

impl Reactor {
    fn of(fd: BorrowedFd<'_>) -> Self {
        // SAFETY: the call takes an integer.
        let made = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        assert!(made >= 0, "{}", io::Error::last_os_error());
        // SAFETY: the call just made this descriptor, and it has no other owner.
        let set = unsafe { OwnedFd::from_raw_fd(made) };
        let mut event = libc::epoll_event { events: (libc::EPOLLIN | libc::EPOLLET) as u32, u64: 0 };
        let (at, add) = (&raw mut event, libc::EPOLL_CTL_ADD);
        // SAFETY: the kernel reads the event, and both descriptors are open.
        let added = unsafe { libc::epoll_ctl(set.as_raw_fd(), add, fd.as_raw_fd(), at) };
        assert_eq!(added, 0, "{}", io::Error::last_os_error());
        Self(set)
    }

    /// Whether the descriptor was reported within that time.
    fn is_woken(&self, limit: Duration) -> bool {
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        let time = libc::c_int::try_from(limit.as_millis()).unwrap();
        // SAFETY: the kernel writes at most one event.
        unsafe { libc::epoll_wait(self.0.as_raw_fd(), &raw mut event, 1, time) == 1 }
    }
}

/// How often the sender wrote the event counter since it was set to 0, which this does.
fn signals(packets: &HandoffRx) -> u64 {
    let mut count = 0u64;
    // SAFETY: the kernel writes eight bytes or none.
    unsafe { libc::read(packets.as_fd().as_raw_fd(), (&raw mut count).cast(), 8) };
    count
}

fn pool(domains: Vec<Arc<dyn DmaDomain>>) -> Bound {
    let arena = Arena::new(ArenaParams { max_bytes: 4 << 20, ..Default::default() }).unwrap();
    Pool::new(PoolParams { wakeup: true, domains, ..Default::default() }, arena).unwrap().bind()
}

fn frame(pool: &Bound) -> XdpFrame {
    XdpFrame::from(XdpBuff::received(pool.alloc_page().unwrap(), 60).unwrap())
}

#[test]
fn a_receiver_in_an_event_loop_misses_no_frame() {
    const FRAMES: usize = 20_000;
    let (outlet, mut packets) = handoff(64).unwrap();
    let (reactor, taken) = (Reactor::of(packets.as_fd()), AtomicU64::new(0));
    let mut sleeps = 0;
    std::thread::scope(|threads| {
        let taken = &taken;
        threads.spawn(move || {
            let (pool, mut outlet) = (pool(vec![]), outlet); // its drop is the end
            for number in 0..FRAMES {
                let (mut next, start) = (Some(frame(&pool)), Instant::now());
                while let Some(frame) = next.take() {
                    next = outlet.send(frame).err(); // full: the other side is on its way
                    assert!(start.elapsed() < LIMIT, "frame {number}");
                }
                // Often it sleeps, often it is about to, and sometimes it is far behind.
                let waits = number % 3 == 0;
                if waits || number % 7 == 0 {
                    outlet.flush();
                }
                while waits && taken.load(Ordering::Relaxed) <= number as u64 {
                    assert!(start.elapsed() < LIMIT, "frame {number} was flushed, and nobody took it");
                    std::thread::yield_now();
                }
                // The next one comes at another moment of what the other side does before it sleeps.
                (0..number % 512).for_each(|_| std::hint::spin_loop());
            }
        });
        loop {
            while let Some(frame) = packets.recv() {
                drop(frame);
                taken.fetch_add(1, Ordering::Relaxed);
            }
            match packets.arm() {
                Armed::Ready => {}
                Armed::Gone => break,
                Armed::Idle { .. } => {
                    sleeps += 1;
                    assert!(reactor.is_woken(LIMIT), "after frame {taken:?}, and nothing woke it");
                }
            }
        }
    });
    println!("{sleeps} sleeps");
    assert_eq!(taken.into_inner(), FRAMES as u64);
    assert!(sleeps > 1, "it never slept: this proves nothing");
}

#[test]
fn a_sender_signals_once_for_each_sleep_and_never_else() {
    const ROUNDS: u64 = 1000;
    let pool = pool(vec![]);
    let (mut outlet, mut packets) = handoff(64).unwrap();
    let mut send = |packets: &mut HandoffRx, rounds: u64| {
        for _ in 0..rounds {
            outlet.send(frame(&pool)).unwrap();
            outlet.flush();
            assert!(packets.recv().is_some());
        }
    };
    send(&mut packets, ROUNDS);
    assert_eq!(signals(&packets), 0, "nobody waits");
    assert!(matches!(packets.arm(), Armed::Idle { .. }));
    send(&mut packets, ROUNDS);
    assert_eq!(signals(&packets), 1, "of {ROUNDS} flushes the first woke it");
    assert!(matches!(packets.arm(), Armed::Idle { .. }));
    send(&mut packets, 1);
    assert!(matches!(packets.arm(), Armed::Idle { .. }), "the signal is old");
    assert_eq!(signals(&packets), 0);
    drop(outlet);
    assert_eq!(signals(&packets), 1, "the sender is gone");
    assert!(matches!(packets.arm(), Armed::Gone));
}

#[test]
fn a_receiver_that_finds_a_frame_before_sleep_gets_no_signal() {
    let pool = pool(vec![]);
    let (mut outlet, mut packets) = handoff(64).unwrap();
    (0..32).for_each(|_| outlet.send(frame(&pool)).unwrap()); // as many go into the ring without a flush
    assert!(matches!(packets.arm(), Armed::Ready));
    outlet.flush();
    assert_eq!(signals(&packets), 0);
    outlet.send(frame(&pool)).unwrap();
    drop(outlet);
    assert!(matches!(packets.arm(), Armed::Ready), "frames come before the end");
    assert_eq!(std::iter::from_fn(|| packets.recv()).count(), 33);
    assert!(matches!(packets.arm(), Armed::Gone));
}

/// What came to a forwarder so far: packets of both ports, frames of another thread, calls of its waker.
fn seen<P: PacketHandler>(forwarder: &Forwarder<P>, calls: u64) -> u64 {
    let stats = [0, 1].map(|port| forwarder.stats(PortId(port)).unwrap());
    stats.iter().map(|stats| stats.rx + stats.redirect_in).sum::<u64>() + calls
}

/// Runs a forwarder in an event loop until it saw so much; says how often it slept.
fn run<P: PacketHandler>(
    forwarder: &mut Forwarder<P>,
    called: &AtomicBool,
    saw: &AtomicU64,
    until: u64,
) -> u64 {
    let reactor = Reactor::of(forwarder.wake_fd().unwrap());
    let (mut calls, mut sleeps) = (0, 0);
    while saw.load(Ordering::Relaxed) < until {
        while forwarder.poll() > 0 {}
        calls += u64::from(called.swap(false, Ordering::Acquire));
        let before = saw.swap(seen(forwarder, calls), Ordering::Release);
        match forwarder.arm().unwrap() {
            Armed::Gone => panic!("both NICs are there"),
            Armed::Idle { at_most, .. } if saw.load(Ordering::Relaxed) < until => {
                sleeps += 1;
                assert!(reactor.is_woken(at_most.min(LIMIT)), "after event {before}, and nothing woke it");
            }
            _ => {}
        }
    }
    sleeps
}

#[test]
fn a_forwarder_in_an_event_loop_misses_nothing() {
    const EVENTS: u64 = 4000;
    let (mut outlet, inlet) = handoff(64).unwrap();
    let mut forwarder = Forwarder::new(|_: &mut XdpBuff, _: Ingress| Action::Drop);
    let mut wires = ["mem0", "mem1"].map(|name| {
        let domain = NicDomain::new(name);
        let (nic, wire) = mem_nic(MemNicParams::default(), domain.clone()).unwrap();
        forwarder.add_port(nic, pool(vec![domain]));
        wire
    });
    forwarder.add_handoff(PortId(1), inlet).unwrap();
    forwarder.poll(); // the first buffers
    let (waker, called, saw) = (forwarder.waker().unwrap(), AtomicBool::new(false), AtomicU64::new(0));
    let sleeps = std::thread::scope(|threads| {
        threads.spawn(|| {
            let pool = pool(vec![]);
            for event in 0..EVENTS {
                let start = Instant::now();
                match event % 4 {
                    wire @ (0 | 1) => assert!(wires[wire as usize].deliver(&[0; 60])),
                    2 => {
                        outlet.send(frame(&pool)).unwrap();
                        outlet.flush();
                    }
                    _ => {
                        called.store(true, Ordering::Release);
                        waker.wake();
                    }
                }
                while saw.load(Ordering::Acquire) <= event {
                    assert!(start.elapsed() < LIMIT, "event {event} was not seen");
                    std::thread::yield_now();
                }
                wires[1].take(|_| ());
            }
        });
        run(&mut forwarder, &called, &saw, EVENTS)
    });
    println!("{sleeps} sleeps for {EVENTS} events");
    assert!(sleeps > 1, "it never slept: this proves nothing");
    forwarder.close_all();
    assert!(matches!(forwarder.arm().unwrap(), Armed::Gone));
}
