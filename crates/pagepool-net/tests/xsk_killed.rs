//! A process that has a queue is killed, and the next one takes it at once: its XDP program is gone with it,
//! and a queue that the kernel takes apart still is waited for.

use crate::veth;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use crate::veth::Veth;
use pagepool::{Arena, ArenaParams, Bound, Pool, PoolParams};
use pagepool_net::{
    Action, Attach, Device, Forwarder, Redirect, Umem, UmemParams, XskDevice, XskMode, XskParams,
};
use pagepool_testing::FarEnd;

/// Says that this process is the one to be killed.
const CHILD: &str = "PAGEPOOL_TO_BE_KILLED";
const ROUNDS: u64 = 20;
/// No child outlives that, whatever becomes of the test, and nothing is waited for longer.
const LIMIT: Duration = veth::LIMIT;

/// What the lives follow from: always the same, or a random number if `PAGEPOOL_RANDOM_SEEDS` is 1.
fn seed() -> u64 {
    let random = std::env::var_os("PAGEPOOL_RANDOM_SEEDS").is_some_and(|is| is == "1");
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let seed = now.ok().filter(|_| random).map_or(7, |time| time.as_nanos() as u64);
    println!("seed {seed}");
    seed
}

/// The parts of an echo process: a pool, and a device on the interface's only queue.
fn open() -> (XskDevice, Bound) {
    let params = ArenaParams { max_bytes: 4 << 20, commit_all: true, ..Default::default() };
    let arena = Arena::new(params).expect("memory");
    let params = UmemParams { mode: XskMode::Copy, ..Default::default() };
    let umem = Umem::new(params, &arena).expect("memory to lock");
    let domains: Vec<Arc<dyn pagepool::DmaDomain>> = vec![umem.clone()];
    let params = PoolParams { headroom: 256, wakeup: true, domains, ..Default::default() };
    let pool = Pool::new(params, arena).expect("parameters in range").bind();
    let redirect = Some(Redirect::attach("near0", Attach::Auto, false).expect("no program is left there"));
    let params = XskParams {
        interface: "near0".into(),
        rx_ring: 256,
        tx_ring: 256,
        redirect,
        busy_limit: LIMIT, // on a busy machine the kernel takes its time
        ..Default::default()
    };
    (XskDevice::open(params, &umem, &pool).expect("a queue that is free, or will be soon"), pool)
}

/// Sends back what comes, until so much did or the time is over; says how much.
fn echo(packets: u64, limit: Duration) -> u64 {
    let (device, pool) = open();
    let mut forwarder = Forwarder::new(|_: &mut _, _| Action::Tx);
    let port = forwarder.add_port(device, pool);
    let start = Instant::now();
    let done = |forwarder: &Forwarder<_>| {
        forwarder.device(port).map_or(0, |nic: &dyn Device| nic.stats().tx_completed)
    };
    while done(&forwarder) < packets && start.elapsed() < limit {
        if forwarder.poll() == 0 {
            let _ = forwarder.wait(Duration::from_millis(1));
        }
    }
    done(&forwarder)
}

#[test]
fn the_next_process_takes_the_queue_of_one_that_was_killed() {
    if std::env::var_os(CHILD).is_some() {
        echo(u64::MAX, LIMIT);
        return;
    }
    if let Some(why) = veth::missing() {
        return println!("SKIP killed: {why}");
    }
    let seed = seed();
    let veth = Veth::new(1, 1500);
    let mut far = veth.far_end(0);
    // The first one lives until it answers; the others at most twice as long: they are killed before, while
    // and after they open the queue, however busy the machine is.
    let (mut bytes, mut opening) = (Vec::new(), None);
    for round in 0..ROUNDS {
        let mut child = Command::new(std::env::current_exe().expect("a test is a program"));
        child
            .args(["--exact", "xsk_killed::the_next_process_takes_the_queue_of_one_that_was_killed"])
            .env(CHILD, "1");
        // in this thread's namespace
        let mut child = child.stdout(Stdio::null()).spawn().expect("the same program");
        let (start, mut answers) = (Instant::now(), false);
        let dice = (seed ^ round).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let life = opening.map_or(LIMIT, |opening: Duration| 2 * opening * dice as u32 / u32::MAX);
        while start.elapsed() < life && (opening.is_some() || !answers) {
            far.send(&[round as u8; 60]); // refused where there is no room
            answers |= far.receive(&mut bytes);
        }
        assert!(opening.is_some() || answers, "the first one answers within {LIMIT:?}");
        opening = opening.or(Some(start.elapsed()));
        assert!(child.try_wait().expect("it is a child").is_none(), "it ended by itself");
        child.kill().expect("it is a child");
        child.wait().expect("it is a child");
        while far.receive(&mut bytes) {}

        let next = std::thread::scope(|threads| {
            let next = threads.spawn(|| echo(10, LIMIT));
            let start = Instant::now();
            while !next.is_finished() && start.elapsed() < 2 * LIMIT {
                far.send(&[round as u8; 60]);
                std::thread::sleep(Duration::from_millis(1));
            }
            next.join().expect("the next start works")
        });
        assert!(next >= 10, "round {round}: {next} packets came back");
    }
}
