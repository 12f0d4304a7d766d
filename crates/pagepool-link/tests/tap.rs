//! TAPs whose frames have headers, and TAPs with several queues, against the kernel.

#![expect(clippy::unwrap_used, reason = "a test fails where it cannot go on")]

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use pagepool_lab::{FrameSocket, or_skip};
use pagepool_link::{Namespace, Netlink, Tap};

const HEADER: usize = 12;
const LIMIT: Duration = Duration::from_secs(60);

/// A namespace that may have TAPs, or none after a line that says why.
fn namespace(test: &str) -> Option<Namespace> {
    let tried = Namespace::new("tap").and_then(|place| place.run(|| Tap::open("trial0")).map(|_| place));
    or_skip(test, tried)
}

fn open(place: &Namespace, queues: usize) -> Vec<Tap> {
    place.run(move || Tap::open_with_header("t0", queues)).unwrap()
}

/// Makes a TAP that stays, if there is a program that does.
fn make(place: &Namespace, options: &'static [&str]) -> bool {
    let words = [&["tuntap", "add", "t0", "mode", "tap"], options].concat();
    place.run(move || Command::new("ip").args(words).output().is_ok_and(|done| done.status.success()))
}

#[test]
fn each_frame_has_a_header_in_both_directions() {
    let Some(place) = namespace("each_frame_has_a_header_in_both_directions") else { return };
    let taps = open(&place, 1);
    let socket = FrameSocket::open(&place, "t0").unwrap();
    assert!(taps[0].is_new() && taps[0].has_header() && taps.len() == 1);
    assert!(socket.send(&[7; 60]).unwrap() && taps[0].wait(LIMIT));
    let mut bytes = [0xff; 2048];
    assert_eq!(taps[0].receive(&mut bytes).unwrap(), Some(HEADER + 60));
    assert_eq!((&bytes[1..10], &bytes[HEADER..HEADER + 60]), (&[0; 9][..], &[7; 60][..]));
    let mut sent = [0; HEADER + 60];
    sent[HEADER..].fill(9);
    assert!(taps[0].send(&sent).unwrap() && socket.wait(LIMIT));
    assert_eq!(socket.receive(&mut bytes).unwrap(), Some(60));
    assert_eq!(bytes[..60], [9; 60]);
}

#[test]
fn a_tap_ends_with_the_last_of_its_queues() {
    let Some(place) = namespace("a_tap_ends_with_the_last_of_its_queues") else { return };
    let mut netlink = place.netlink().unwrap();
    let mut taps = open(&place, 3);
    let index = netlink.link("t0").unwrap().index;
    let mut is_up = || netlink.link_at(index).unwrap().is_some_and(|link| link.is_up);
    while taps.pop().is_some() && !taps.is_empty() {
        assert!(is_up(), "{} queues", taps.len());
    }
    // A child that another test has just forked keeps the last one open until it executes its program.
    let begun = Instant::now();
    while is_up() {
        assert!(begun.elapsed() < LIMIT, "no queue");
        thread::sleep(Duration::from_millis(1));
    }
    let one = place.run(|| Tap::open("t0")).unwrap();
    assert!(!one.has_header(), "a TAP of its own");
    let busy = place.run(|| Tap::open_with_header("t0", 1)).unwrap_err().to_string();
    assert!(busy.contains("another program uses this TAP"), "{busy}");
}

#[test]
fn a_tap_made_for_several_queues_is_opened_with_one() {
    let test = "a_tap_made_for_several_queues_is_opened_with_one";
    let Some(place) = namespace(test) else { return };
    if !make(&place, &["multi_queue"]) {
        return println!("SKIP {test}: no `ip` that makes TAPs");
    }
    assert_eq!(open(&place, 1).iter().map(Tap::is_new).collect::<Vec<_>>(), [false]);
    assert_eq!(open(&place, 2).len(), 2);
    place.run(|| Netlink::open()?.link("t0").and_then(|link| Netlink::open()?.delete(link.index))).unwrap();
    assert!(make(&place, &[]));
    let said = place.run(|| Tap::open_with_header("t0", 2)).unwrap_err().to_string();
    assert!(said.contains("or without it for several"), "{said}");
}

#[test]
fn a_file_is_attached_to_another_tap_of_its_name() {
    let test = "a_file_is_attached_to_another_tap_of_its_name";
    let Some(place) = namespace(test) else { return };
    let (taps, mut netlink) = (open(&place, 1), place.netlink().unwrap());
    let first = netlink.link("t0").unwrap().index;
    netlink.delete(first).unwrap();
    assert!(taps[0].receive(&mut [0; 64]).is_err(), "there is no interface");
    if !make(&place, &[]) {
        return println!("SKIP {test}: no `ip` that makes TAPs");
    }
    taps[0].attach_again().unwrap();
    let second = netlink.link("t0").unwrap();
    assert!(second.index != first && !second.is_up, "it is left as it is");
    netlink.set_up(second.index, true).unwrap();
    let socket = FrameSocket::open(&place, "t0").unwrap();
    assert!(socket.send(&[7; 60]).unwrap() && taps[0].wait(LIMIT));
    assert_eq!(taps[0].receive(&mut [0; 2048]).unwrap(), Some(HEADER + 60), "with a header, as before");
}
