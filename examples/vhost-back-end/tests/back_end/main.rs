//! The back end itself, with a front end that shares no code with `pagepool-net`.

#![expect(clippy::unwrap_used, reason = "a test fails where it cannot go on")]

mod front_end;

use std::fs::{read_dir, write};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use front_end::{FrontEnd, LIMIT, SIZE};
use pagepool_lab::TempFolder;
use pagepool_vhost_back_end::{BackEnd, Counts, FEATURES, Mode, Params};
use vhost::vhost_user::Frontend;
use virtio_bindings::virtio_net::VIRTIO_NET_F_MRG_RXBUF;
use virtio_bindings::virtio_ring::VIRTIO_RING_F_EVENT_IDX;

const MERGEABLE: u64 = 1 << VIRTIO_NET_F_MRG_RXBUF;
const EVENT_IDX: u64 = 1 << VIRTIO_RING_F_EVENT_IDX;

fn folder() -> TempFolder {
    TempFolder::new("pagepool-vhost").unwrap()
}

fn connect(socket: &Path, pairs: usize, features: u64, buffer: u32) -> FrontEnd {
    let messages = Frontend::connect(socket, 2 * pairs as u64).unwrap();
    FrontEnd::over(messages, socket.parent().unwrap(), pairs, features, buffer)
}

/// Packets of these lengths, each with bytes of its own.
fn packets(lengths: impl Iterator<Item = usize>) -> Vec<Vec<u8>> {
    let packet = |(number, len)| (0..len).map(|at| (number * 31 + at * 7) as u8).collect();
    lengths.enumerate().map(packet).collect()
}

fn files(folder: &TempFolder) -> usize {
    read_dir(folder.path()).unwrap().count()
}

/// Packets of many lengths come back, byte for byte, with these features and buffers.
fn echoes(features: u64, buffer: u32) {
    let folder = folder();
    let socket = folder.path().join("sock");
    let back_end = BackEnd::start(Params { features, ..Params::new(&socket, Mode::Echo) }).unwrap();
    let mut front_end = connect(&socket, 1, features, buffer);
    let sent = packets((0..1000).map(|number| 60 + number * 37 % 1441));
    assert!(front_end.echo(0, &sent) == sent, "all bytes are as they were");
    front_end.close();
    let counts = back_end.stop();
    assert_eq!(counts, Counts { connections: 1, taken: 1000, put: 1000, lost: 0, bad: 0 });
    assert_eq!(files(&folder), 0, "the socket is gone");
}

#[test]
fn packets_come_back_as_they_were() {
    echoes(FEATURES, 2048);
}

#[test]
fn packets_come_back_without_features() {
    echoes(0, 1600);
}

#[test]
fn packets_come_back_with_the_event_index() {
    echoes(EVENT_IDX, 1600);
}

#[test]
fn packets_come_back_in_several_buffers() {
    echoes(FEATURES, 256);
    echoes(MERGEABLE, 100);
}

#[test]
fn packets_in_several_buffers_wake_a_front_end() {
    let folder = folder();
    let socket = folder.path().join("sock");
    let back_end = BackEnd::start(Params::new(&socket, Mode::Generate { len: 600 })).unwrap();
    let mut front_end = connect(&socket, 1, FEATURES, 256);
    assert!((0..1000).all(|_| front_end.wait(0).len() == 600));
    front_end.close();
    assert!(back_end.stop().put >= 1000);
}

#[test]
fn what_never_fits_is_lost_and_counted() {
    let folder = folder();
    let socket = folder.path().join("sock");
    let back_end = BackEnd::start(Params::new(&socket, Mode::Echo)).unwrap();
    for (features, buffer, longest) in [(EVENT_IDX, 100, 88), (FEATURES, 64, 64 * usize::from(SIZE) - 12)] {
        let mut front_end = connect(&socket, 1, features, buffer);
        let mut packets = packets([longest, longest + 1, longest, 60].into_iter());
        assert!(packets.iter().all(|packet| front_end.send(0, packet)));
        packets.remove(1);
        for packet in packets {
            assert!(front_end.wait(0) == packet, "the others stay in order");
        }
        front_end.close();
    }
    assert_eq!(back_end.stop(), Counts { connections: 2, taken: 8, put: 6, lost: 2, bad: 0 });
}

#[test]
fn each_queue_pair_has_a_thread_and_counts() {
    let folder = folder();
    let socket = folder.path().join("sock");
    let back_end = BackEnd::start(Params { queues: 3, ..Params::new(&socket, Mode::Echo) }).unwrap();
    let mut front_end = connect(&socket, 3, FEATURES, 2048);
    for pair in [0, 2] {
        let sent = packets((0..100 * (pair + 1)).map(|number| 60 + number));
        assert!(front_end.echo(pair, &sent) == sent);
    }
    front_end.close();
    assert_eq!([0, 1, 2].map(|pair| back_end.pair(pair).counts().put), [100, 0, 300]);
    assert_eq!(back_end.stop().connections, 3);
}

#[test]
fn a_test_moves_packets_by_itself() {
    let folder = folder();
    let socket = folder.path().join("sock");
    let back_end = BackEnd::start(Params::new(&socket, Mode::Manual)).unwrap();
    let (pair, mut packet) = (back_end.pair(0), Vec::new());
    assert!(!pair.put(&[1; 60]) && !pair.take(&mut packet), "nobody is connected");
    let mut front_end = connect(&socket, 1, FEATURES, 2048);
    assert!(pair.wait(LIMIT, |connected, _| connected));
    assert!(front_end.send(0, &[7; 100]) && pair.take(&mut packet) && packet == [7; 100]);
    assert!(!pair.take(&mut packet));
    let put = (0..SIZE + 3).filter(|&number| pair.put(&[number as u8; 60])).count();
    assert_eq!(put, usize::from(SIZE), "as many as there are buffers");
    assert_eq!(pair.counts(), Counts { connections: 1, taken: 1, put: SIZE.into(), lost: 3, bad: 0 });
    front_end.sleep(0);
    assert!((0..SIZE).all(|number| front_end.receive(0) == Some(vec![number as u8; 60])));
    front_end.close();
    assert!(pair.wait(LIMIT, |connected, _| !connected));
}

#[test]
fn one_front_end_follows_another() {
    let folder = folder();
    let socket = folder.path().join("sock");
    let back_end = BackEnd::start(Params::new(&socket, Mode::Echo)).unwrap();
    for round in 0..20 {
        let mut front_end = connect(&socket, 1, FEATURES, 2048);
        let sent = packets((0..100).map(|number| 60 + number));
        assert!(front_end.echo(0, &sent) == sent);
        if round % 2 == 0 {
            front_end.close(); // the others leave without a word
        }
    }
    assert_eq!(back_end.stop(), Counts { connections: 20, taken: 2000, put: 2000, lost: 0, bad: 0 });
}

#[test]
fn it_connects_to_a_front_end_that_listens() {
    let folder = folder();
    let socket = folder.path().join("sock");
    let back_end = BackEnd::start(Params { connect: true, ..Params::new(&socket, Mode::Echo) }).unwrap();
    let listener = UnixListener::bind(&socket).unwrap();
    for _ in 0..3 {
        let messages = Frontend::from_stream(listener.accept().unwrap().0, 2);
        let mut front_end = FrontEnd::over(messages, folder.path(), 1, FEATURES, 2048);
        let sent = packets((0..100).map(|number| 60 + number));
        assert!(front_end.echo(0, &sent) == sent);
    }
    assert_eq!(back_end.stop().put, 300);
    assert_eq!(files(&folder), 1, "the socket belongs to the front end");
}

#[test]
fn a_file_in_place_of_the_socket_stays() {
    let folder = folder();
    let socket = folder.path().join("sock");
    write(&socket, "text").unwrap();
    assert!(BackEnd::start(Params::new(&socket, Mode::Drop)).is_err());
    assert_eq!(std::fs::read(&socket).unwrap(), b"text");
    std::fs::remove_file(&socket).unwrap();
    let first = BackEnd::start(Params::new(&socket, Mode::Drop)).unwrap();
    let second = BackEnd::start(Params::new(&socket, Mode::Drop));
    assert_eq!(second.map(drop).unwrap_err().kind(), std::io::ErrorKind::AddrInUse);
    drop(first);
    drop(UnixListener::bind(&socket).unwrap()); // as a killed process leaves it
    BackEnd::start(Params::new(&socket, Mode::Drop)).unwrap();
}

/// The program, once it is ready.
fn program(arguments: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vhost-back-end"));
    let piped = command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stderr.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert!(line.ends_with("ready\n"), "{line}");
    child
}

/// What it prints after a signal.
fn end(mut program: Child, signal: &str) -> String {
    let pid = program.id().to_string();
    assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    let mut text = String::new();
    program.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert!(program.wait().unwrap().success());
    text
}

#[test]
fn the_program_prints_its_counts() {
    let folder = folder();
    let socket = folder.path().join("sock");
    let path = socket.to_str().unwrap();
    let dropping = program(&[path, "drop"]);
    let mut front_end = connect(&socket, 1, FEATURES, 2048);
    for packet in packets((0..100).map(|number| 60 + number)) {
        while !front_end.send(0, &packet) {
            front_end.sleep(0);
        }
    }
    front_end.close();
    let line = end(dropping, "-TERM");
    assert!(
        line.starts_with("1 connections, ") && line.ends_with(" taken, 0 put, 0 lost, 0 bad\n"),
        "{line}"
    );
    let generating = program(&[path, "--queues", "2", "generate", "--len", "1514"]);
    let mut front_end = connect(&socket, 2, FEATURES, 2048);
    for number in 0..1000u64 {
        let packet = front_end.wait(1);
        assert_eq!((packet.len(), &packet[14..22]), (1514, &number.to_be_bytes()[..]));
    }
    front_end.close();
    assert!(end(generating, "-INT").starts_with("2 connections, 0 packets taken, "));
    assert_eq!(files(&folder), 0);
}

#[test]
fn wrong_arguments_are_named() {
    for (arguments, text) in [
        (&["/nowhere/sock", "echo"][..], "/nowhere/sock: No such file"),
        (&["sock", "hold"], "\"hold\" is none of echo, drop, generate; usage:"),
        (&["sock", "generate", "--len", "59"], "--len is 59, but must be 60..=9018"),
        (&["sock", "echo", "--queues", "33"], "33 queue pairs, but there must be 1 to 32"),
        (&["sock"], "1 words, but there must be 2; usage:"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_vhost-back-end")).args(arguments).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(error.contains(text) && output.status.code() == Some(2), "{arguments:?}: {error}");
    }
}
