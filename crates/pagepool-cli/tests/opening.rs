//! What a command takes from an interface while it opens, when it ends, and if it is refused: nothing is lost
//! of a stream that runs meanwhile, but what the kernel has in hand when an XDP program is attached.

mod between;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use between::{Place, far_ends, frames, hosts, number, ok, send};
use pagepool_lab::{FrameBatch, FrameSocket, Tally, TwoHosts, TwoHostsParams};
use pagepool_net::{Attach, Redirect};

/// Frames of the stream in a millisecond.
const A_MILLISECOND: u64 = 4;
/// What may be lost at the start and at the stop, each.
const GAP: u64 = 5 * A_MILLISECOND;
/// More than any stream has.
const MOST: u64 = 1 << 20;

fn many_queues(test: &str) -> Option<TwoHosts> {
    hosts(test, &TwoHostsParams { queues: 8, ..TwoHostsParams::default() })
}

/// Has a stream run to `near0` during the work. Gives how many frames were sent, which of them the stack of
/// `near0` got, and what the work gives.
fn during_a_stream<T>(hosts: &TwoHosts, work: impl FnOnce() -> T) -> (u64, Tally, T) {
    let stack = ok(hosts.run_between(|| FrameSocket::open_here("near0")));
    let (over, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let (start, [far, _], mut number) = (Instant::now(), far_ends(hosts), 0);
            let (frames, mut frame) = (frames(hosts, 0, 64), [0; 64]);
            while !over.load(Ordering::Relaxed) && number < MOST {
                let due = start.elapsed().as_millis() as u64 * A_MILLISECOND;
                // What is late on a busy machine is left out: a burst would be lost for other reasons.
                let next = due.clamp(number, number + A_MILLISECOND);
                for number in number..next {
                    frames.write(number, &mut frame);
                    send(&far, &frame);
                }
                number = next;
                sent.store(number, Ordering::Relaxed);
                std::thread::sleep(Duration::from_micros(500));
            }
        });
        let reads = threads.spawn(|| {
            let (mut tally, mut batch) = (Tally::new(MOST), FrameBatch::new(64));
            while !over.load(Ordering::Relaxed) || stack.wait(Duration::from_millis(200)) {
                stack.wait(Duration::from_millis(20));
                while ok(stack.receive_many(&mut batch)) > 0 {
                    batch.frames().for_each(|frame| {
                        tally.take(frame);
                    });
                }
            }
            tally
        });
        std::thread::sleep(Duration::from_millis(200));
        let done = work();
        std::thread::sleep(Duration::from_millis(300));
        over.store(true, Ordering::Relaxed);
        let tally = reads.join().expect("the link is up");
        (sent.load(Ordering::Relaxed), tally, done)
    })
}

#[test]
fn start_and_stop_lose_at_most_five_milliseconds() {
    let name = "start_and_stop_lose_at_most_five_milliseconds";
    let Some(hosts) = many_queues(name) else { return };
    let (sent, stack, document) = during_a_stream(&hosts, || {
        let running = Place::Between(&hosts).start(name, &["drop", "near0", "--verify=1048576"])?;
        std::thread::sleep(Duration::from_millis(500));
        Some(running.interrupt())
    });
    let Some(document) = document else { return };
    let taken = number(&document["numbered"], "good");
    let lost = sent.saturating_sub(stack.good + taken);
    println!("{sent} sent: the stack got {}, the command {taken}, nobody {lost}", stack.good);
    assert!(stack.good > 0 && taken > 100 * A_MILLISECOND, "{document}");
    assert_eq!(stack.good + taken + lost, sent, "nobody gets a frame twice: {document}");
    assert!(lost <= 2 * GAP, "{lost} of {sent} frames were lost: {document}");
}

#[test]
fn a_command_that_is_refused_takes_no_packet() {
    let name = "a_command_that_is_refused_takes_no_packet";
    let Some(hosts) = many_queues(name) else { return };
    let attached = hosts.run_between(|| Redirect::attach("near1", Attach::Native, false));
    let Ok(attached) = attached else { return println!("SKIP {name}: {}", attached.unwrap_err()) };
    let program = attached.program_id().expect("it was attached here");
    let (sent, stack, said) =
        during_a_stream(&hosts, || Place::Between(&hosts).error(&["forward", "near0", "near1"]));
    assert!(said.contains(&format!("the XDP program with id {program} is attached to near1")), "{said}");
    assert_eq!(stack.missing(sent), 0, "of {sent}: {said}");
}

#[test]
fn a_command_that_the_second_driver_refuses_takes_no_packet() {
    let name = "a_command_that_the_second_driver_refuses_takes_no_packet";
    let Some(hosts) = many_queues(name) else { return };
    // The kernel refuses an XDP program of one buffer where the other end's packets are longer than a page.
    let long = hosts.b.link.index;
    hosts.b.namespace.run(move || ok(ok(pagepool_net::link::Netlink::open()).set_mtu(long, 9000)));
    let arguments = ["forward", "near0", "near1", "--attach", "native"];
    let (sent, stack, said) = during_a_stream(&hosts, || Place::Between(&hosts).error(&arguments));
    if said.contains("CAP_") {
        return println!("SKIP {name}: {said}");
    }
    assert!(said.contains("the driver of near1 refuses the program"), "{said}");
    assert_eq!(stack.missing(sent), 0, "of {sent}: {said}");
}
