//! The switch of the tests, with a vhost-user device at its socket.

use std::path::Path;
use std::time::Duration;

use pagepool::{Arena, ArenaParams, Backing, Bound, Error, PoolParams, XdpFrameBulk};
use pagepool_lab::{FakeSwitch, Fault, Frame, Lie, SwitchParams, TempFolder, Work, request};
use pagepool_net::{Device, DeviceExt, OpenParams, OpenedDevice, TxQueue, open_device};

const LIMIT: Duration = Duration::from_secs(60);

fn open(path: &Path, more: &str) -> Result<OpenedDevice, Error> {
    let backing = Backing::Memfd { huge: false };
    let arena = ArenaParams { max_bytes: 8 << 20, commit_all: true, backing, ..Default::default() };
    let arena = Arena::new(arena).expect("8 MiB");
    let pool = PoolParams { headroom: 256, wakeup: true, ..Default::default() };
    let params = OpenParams { rx_ring: 64, tx_ring: 64, pool, multi_buffer: true, ..Default::default() };
    open_device(&format!("vhost_user:{}{more}", path.display()), &params, &arena)
}

fn folder() -> TempFolder {
    TempFolder::new("pagepool-switch").expect("a folder")
}

/// A front end.
struct FrontEnd {
    device: Box<dyn Device>,
    pool: Bound,
    received: Vec<Vec<u8>>,
}

impl FrontEnd {
    fn new(OpenedDevice { device, pool, .. }: OpenedDevice) -> Self {
        Self { device, pool: pool.bind(), received: Vec::new() }
    }

    fn at(path: &Path) -> Self {
        Self::new(open(path, "").unwrap_or_else(|error| panic!("{error}")))
    }

    fn turn(&mut self) {
        let mut packets = Vec::with_capacity(64);
        if self.device.receive(&self.pool, &mut packets, 64) == 0 {
            self.device.wait(&self.pool, Duration::from_millis(100));
        }
        for packet in packets.drain(..) {
            let mut bytes = vec![0; packet.len()];
            packet.copy_to(&mut bytes);
            self.received.push(bytes);
        }
    }

    fn turn_until(&mut self, done: impl Fn(&Self) -> bool) {
        let start = std::time::Instant::now();
        while !done(self) {
            assert!(start.elapsed() < LIMIT, "{:?} {:?}", self.device.stats(), self.received.len());
            self.turn();
        }
    }

    fn send(&mut self, bytes: &[u8]) {
        let mut queue = TxQueue::with_capacity(4, 4);
        let mut packet = self.pool.alloc_page().expect("a page");
        packet.packet_mut().expect("unshared")[..bytes.len()].copy_from_slice(bytes);
        queue.push(pagepool::XdpBuff::received(packet, bytes.len()).expect("it fits"));
        assert_eq!(self.device.transmit(&mut queue), 1);
        let mut done = XdpFrameBulk::new();
        self.device.complete(&mut done, 64);
        done.flush();
    }
}

#[test]
fn packets_go_through_the_switch_in_both_directions() {
    let folder = folder();
    let path = folder.path().join("s");
    let switch = FakeSwitch::listen(&path, SwitchParams::default()).expect("it listens");
    let mut front = FrontEnd::at(&path);
    for number in 0..100u8 {
        switch.send(&[number; 60][..]);
    }
    front.turn_until(|front| front.received.len() == 100);
    assert!(front.received.iter().zip(0..).all(|(bytes, number)| bytes[..] == [number; 60]));
    for number in 0..30 {
        front.send(&[number; 60]);
        assert_eq!(switch.receive(LIMIT), Some(Frame::from(&[number; 60][..])));
    }
    let long: Vec<u8> = (0..9000).map(|at| (at / 7) as u8).collect();
    switch.send(&long[..]);
    front.turn_until(|front| front.received.len() == 101);
    assert_eq!(front.received[100], long);
    let counts = switch.counts();
    assert_eq!((counts.connections, counts.taken, counts.delivered), (1, 30, 101));
}

#[test]
fn a_front_end_that_listens_is_found_and_found_again() {
    let folder = folder();
    let path = folder.path().join("s");
    let switch = FakeSwitch::connect(&path, SwitchParams { work: Work::Echo, ..Default::default() });
    let switch = switch.expect("a thread");
    let mut front = FrontEnd::new(open(&path, ",server=1").expect("it listens"));
    front.turn_until(|_| switch.counts().connections == 1);
    switch.send(&[1; 60][..]);
    front.turn_until(|front| front.received.len() == 1);
    switch.disconnect();
    switch.send(&[2; 60][..]);
    front.turn_until(|front| front.received.len() == 2);
    assert_eq!((front.device.stats().link_lost, switch.counts().connections), (1, 2));
    switch.stop();
    front.turn_until(|front| front.device.stats().link_lost == 2);
}

/// The error of a start with this fault; none if it succeeded.
fn error_with(path: &Path, fault: Fault) -> Option<String> {
    let params = SwitchParams { fault: Some(fault), ..Default::default() };
    let _switch = FakeSwitch::listen(path, params).expect("it listens");
    open(path, "").err().map(|error| error.to_string())
}

#[test]
fn faults_make_errors_that_name_a_message() {
    let folder = folder();
    let path = folder.path().join("s");
    for (number, name) in request::ALL {
        match error_with(&path, Fault::Close(number)) {
            // Before acknowledgements are negotiated, the front end learns it from the next message.
            Some(text) => assert!(text.contains(name) || text.contains("VHOST_USER_GET_"), "{name}: {text}"),
            None => assert_eq!(number, request::GET_VRING_BASE, "{name} is of the start"),
        }
    }
    let kick = request::SET_VRING_KICK;
    let kinds = [
        (Fault::Refuse(kick), "refused it"),
        (Fault::Nonsense(kick), "gave an answer to another message"),
        (Fault::Silent(kick), "did not answer within 1 s"),
    ];
    for (fault, wanted) in kinds {
        let text = error_with(&path, fault).expect("it is of the start");
        assert!(text.contains("VHOST_USER_SET_VRING_KICK") && text.contains(wanted), "{text}");
    }
}

#[test]
fn a_hung_switch_keeps_the_buffers() {
    let folder = folder();
    let path = folder.path().join("s");
    let switch = FakeSwitch::listen(&path, SwitchParams::default()).expect("it listens");
    let mut front = FrontEnd::at(&path);
    front.turn();
    switch.set_fault(Some(Fault::Silent(request::GET_VRING_BASE)));
    front.device.close();
    let stats = front.device.stats();
    assert!(stats.kept > 0 && stats.closed_with == 0, "{stats:?}");
}

#[test]
fn lies_end_the_connection_or_are_counted() {
    let folder = folder();
    let path = folder.path().join("s");
    let switch = FakeSwitch::listen(&path, SwitchParams::default()).expect("it listens");
    let mut front = FrontEnd::at(&path);
    switch.set_lie(Some(Lie::Index(1000)));
    switch.send(&[1; 60][..]);
    front.turn_until(|front| front.device.stats().link_lost == 1);
    for lie in [Lie::Head(u32::MAX), Lie::Length(u32::MAX), Lie::Buffers(17), Lie::Twice] {
        switch.set_lie(Some(lie));
        let before = switch.counts().delivered;
        switch.send(&[1; 60][..]);
        front.turn_until(|_| switch.counts().delivered > before);
        (0..3).for_each(|_| front.turn());
    }
    switch.scribble(7);
    (0..10).for_each(|_| front.turn());
    switch.set_lie(None);
    switch.disconnect();
    let had = front.received.len();
    (0..3).for_each(|_| switch.send(&[2; 60][..]));
    front.turn_until(|front| front.received[had..].iter().any(|bytes| bytes[..] == [2; 60]));
}
