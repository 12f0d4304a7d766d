//! vhost-user devices over a switch in this process that hangs, closes, refuses, lies and dies.

#![expect(clippy::unwrap_used, reason = "a test fails where it cannot go on")]

use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use pagepool::{Arena, ArenaParams, Backing, Bound, Error, PoolParams, XdpBuff, XdpFrame, XdpFrameBulk};
use pagepool_lab::{FakeSwitch, Fault, Frame, Lie, SwitchParams, TempFolder, Work, request};
use pagepool_net::{Device, DeviceExt, OpenParams, OpenedDevice, TxQueue, Wake, open_devices};

/// Longer than anything takes that is not lost.
const LIMIT: Duration = Duration::from_secs(60);

fn arena(backing: Backing) -> Arc<Arena> {
    Arena::new(ArenaParams { max_bytes: 8 << 20, backing, ..Default::default() }).unwrap()
}

fn params() -> OpenParams {
    let pool = PoolParams { wakeup: true, headroom: 256, chains: 64, ..Default::default() };
    OpenParams { rx_ring: 64, tx_ring: 64, pool, ..Default::default() }
}

/// A folder with the path of a socket in it.
struct Place(TempFolder);

impl Place {
    fn new() -> Self {
        Self(TempFolder::new("pagepool-vhost").unwrap())
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("sw0.sock")
    }

    fn name(&self) -> String {
        format!("vhost_user:{}", self.path().display())
    }

    fn open_over(&self, queues: &[u32], arena: &Arc<Arena>) -> Result<Vec<OpenedDevice>, Error> {
        let opened = open_devices(&[(&self.name(), queues)], &params(), arena)?;
        Ok(opened.into_iter().flatten().collect())
    }

    fn open(&self, queues: &[u32]) -> Result<Vec<OpenedDevice>, Error> {
        self.open_over(queues, &arena(Backing::Memfd { huge: false }))
    }

    fn error(&self) -> String {
        let error = self.open(&[0]).map(drop).unwrap_err();
        let source = std::error::Error::source(&error).map_or(String::new(), ToString::to_string);
        format!("{error}: {source}")
    }
}

/// An open device, and its pool.
struct Port {
    device: Box<dyn Device>,
    pool: Bound,
    packets: Vec<XdpBuff>,
}

impl Port {
    fn of(opened: OpenedDevice) -> Self {
        Self { device: opened.device, pool: opened.pool.bind(), packets: Vec::with_capacity(256) }
    }

    fn frame(&self, bytes: &[u8]) -> XdpFrame {
        let mut packet = XdpBuff::received(self.pool.alloc_page().unwrap(), bytes.len()).unwrap();
        packet.data_mut().copy_from_slice(bytes);
        packet.into()
    }

    fn complete(&mut self) -> usize {
        let mut done = XdpFrameBulk::new();
        self.device.complete(&mut done, 64)
    }

    /// Polls, and sleeps, until `n` packets are there.
    fn collect(&mut self, n: usize) {
        let start = Instant::now();
        while self.packets.len() < n {
            assert!(start.elapsed() < LIMIT, "{} of {n}: {:?}", self.packets.len(), self.device.stats());
            if self.device.receive(&self.pool, &mut self.packets, 64) == 0 {
                self.complete();
                assert_ne!(self.device.wait(&self.pool, LIMIT), Wake::Gone);
            }
        }
    }

    /// Polls, and sleeps, until all buffers of the receive ring are there again, and none of the other.
    fn wait_for_a_connection(&mut self) {
        let start = Instant::now();
        loop {
            self.device.receive(&self.pool, &mut self.packets, 64);
            let stats = self.device.stats();
            if (stats.in_rx, stats.in_tx) == (64, 0) {
                return;
            }
            assert!(start.elapsed() < LIMIT, "{stats:?}");
            self.complete();
            let _ = self.device.wait(&self.pool, Duration::from_millis(100));
        }
    }

    fn adds_up(&self, elsewhere: u64) {
        let held: usize = self.packets.iter().map(|packet| 1 + packet.frags().len()).sum();
        let stats = self.device.stats();
        let all = stats.in_rx + stats.in_tx + held as u64 + elsewhere;
        assert_eq!(self.pool.inflight().out, all, "{stats:?}");
    }

    fn end(mut self) {
        self.packets.clear();
        self.device.close();
        assert_eq!(self.pool.inflight().out, 0, "{:?}", self.device.stats());
    }
}

#[test]
fn a_fault_in_each_message_is_an_error_that_names_it() {
    type Makes = fn(u32) -> Fault;
    let kinds: [(Makes, &str); 4] = [
        (Fault::Silent, "did not answer within 1 s"),
        (Fault::Close, "closed the connection"),
        (Fault::Refuse, "refused it"),
        (Fault::Nonsense, "gave an answer to another message"),
    ];
    thread::scope(|threads| {
        for (number, name) in request::ALL {
            // Before both sides know of acknowledgements, the next question finds out.
            let (asked, acknowledged) = match number {
                request::GET_VRING_BASE => continue, // asked only at the end
                request::SET_OWNER => ("VHOST_USER_GET_FEATURES", false),
                request::SET_PROTOCOL_FEATURES => ("VHOST_USER_GET_QUEUE_NUM", false),
                _ => (name, true),
            };
            // A question cannot be refused; what is not acknowledged has no answer.
            let can = if !acknowledged { 2 } else { kinds.len() };
            for (fault, says) in kinds.into_iter().take(can) {
                if name.contains("_GET_") && says == "refused it" {
                    continue;
                }
                threads.spawn(move || {
                    let place = Place::new();
                    let params = SwitchParams { fault: Some(fault(number)), ..Default::default() };
                    let _switch = FakeSwitch::listen(&place.path(), params).unwrap();
                    let error = place.error();
                    assert!(error.contains(asked) && error.contains(says), "{name}, {says}: {error}");
                });
            }
        }
    });
}

#[test]
fn a_switch_without_a_feature_is_refused_by_its_name() {
    let error = |features| {
        let place = Place::new();
        let params = SwitchParams { features, ..Default::default() };
        let _switch = FakeSwitch::listen(&place.path(), params).unwrap();
        place.error()
    };
    assert!(error(1 << 30).contains("the back end lacks VIRTIO_F_VERSION_1"), "{}", error(1 << 30));
    let place = Place::new();
    let switch = SwitchParams { features: 1 << 32, ..Default::default() };
    let _switch = FakeSwitch::listen(&place.path(), switch).unwrap();
    let several = OpenParams { multi_buffer: true, ..params() };
    let memory = arena(Backing::Memfd { huge: false });
    let error = open_devices(&[(&place.name(), &[0])], &several, &memory).map(drop).unwrap_err();
    assert!(error.to_string().contains("lacks VIRTIO_NET_F_MRG_RXBUF"), "{error}");
    assert!(place.open(&[0]).is_ok(), "without packets of several buffers it serves");
}

#[test]
fn a_switch_without_offloads_is_refused_with_the_remedy() {
    let place = Place::new();
    let open = |offloads| {
        let (params, memory) = (OpenParams { offloads, ..params() }, arena(Backing::Memfd { huge: false }));
        open_devices(&[(&place.name(), &[0])], &params, &memory).map(|mut opened| opened.remove(0).remove(0))
    };
    let switch = FakeSwitch::listen(&place.path(), SwitchParams::default()).unwrap();
    let error = open(true).map(drop).unwrap_err().to_string();
    let missing = ["CSUM", "GUEST_CSUM", "GUEST_TSO4", "GUEST_TSO6", "HOST_TSO4", "HOST_TSO6"];
    assert!(missing.iter().all(|name| error.contains(&format!("VIRTIO_NET_F_{name}"))), "{error}");
    assert!(error.contains("`tso=1`") && error.contains("without `offloads`"), "{error}");
    assert!(open(false).unwrap().metadata.is_none());
    switch.stop();
    let offloads = 1 | 1 << 1 | 1 << 7 | 1 << 8 | 1 << 11 | 1 << 12;
    let SwitchParams { features, .. } = SwitchParams::default();
    let params = SwitchParams { features: features | offloads, ..Default::default() };
    let _switch = FakeSwitch::listen(&place.path(), params).unwrap();
    let opened = open(true).unwrap();
    assert!(opened.metadata.is_some() && opened.device.info().max_packet == 65_550, "{opened:?}");
    Port::of(opened).end();
}

#[test]
fn what_is_missing_is_named_with_its_remedy() {
    let place = Place::new();
    let error = place.error();
    let path = place.path();
    assert!(error.contains("nobody listens") && error.contains(",server=1"), "{error}");
    let own = arena(Backing::Anonymous4k);
    let error = place.open_over(&[0], &own).map(drop).unwrap_err().to_string();
    assert!(error.contains("must be a memfd: open the arena with `Backing::Memfd`"), "{error}");
    let switch = FakeSwitch::listen(&path, SwitchParams { pairs: 2, ..Default::default() }).unwrap();
    let error = place.open(&[1, 2]).map(drop).unwrap_err().to_string();
    assert!(error.contains("has no queue 2: its back end has 2"), "{error}");
    switch.stop();
    let small =
        ArenaParams { max_bytes: 1 << 18, backing: Backing::Memfd { huge: false }, ..Default::default() };
    let _switch = FakeSwitch::listen(&path, SwitchParams::default()).unwrap();
    let small = Arena::new(small).unwrap();
    let opened = place.open_over(&[0], &small);
    let mut port = Port::of(opened.unwrap().remove(0));
    port.device.receive(&port.pool, &mut port.packets, 64);
    port.adds_up(0); // fewer buffers than the ring has room for
    port.end();
}

#[test]
fn packets_go_both_ways_and_wake_each_side() {
    for features in [1 << 32, 1 << 32 | 1 << 30, 1 << 32 | 1 << 29, SwitchParams::default().features] {
        let place = Place::new();
        let params = SwitchParams { features, ..Default::default() };
        let switch = FakeSwitch::listen(&place.path(), params).unwrap();
        let mut port = Port::of(place.open(&[0]).unwrap().remove(0));
        for n in 0..50u8 {
            let bytes = vec![n; 60 + 29 * usize::from(n)];
            switch.send(&bytes[..]);
            port.collect(1);
            assert_eq!(port.packets[0].data(), bytes);
            port.packets.clear();
            let mut queue = TxQueue::from([port.frame(&bytes)]);
            assert_eq!(port.device.transmit(&mut queue), 1);
            assert_eq!(switch.receive(LIMIT).unwrap().bytes, bytes);
        }
        port.wait_for_a_connection();
        port.adds_up(0);
        port.end();
    }
}

#[test]
fn two_pairs_on_two_threads_share_a_connection() {
    let place = Place::new();
    let params = SwitchParams { work: Work::Echo, ..Default::default() };
    let _switch = FakeSwitch::listen(&place.path(), params).unwrap();
    let opened = place.open(&[0, 1]).unwrap();
    thread::scope(|threads| {
        for opened in opened {
            threads.spawn(move || {
                let mut port = Port::of(opened);
                for n in 0..200u8 {
                    let mut queue = TxQueue::from([port.frame(&[n; 100])]);
                    while port.device.transmit(&mut queue) == 0 {
                        port.complete();
                        thread::yield_now();
                    }
                    port.collect(1);
                    assert_eq!(port.packets[0].data(), [n; 100]);
                    port.packets.clear();
                    port.complete();
                }
                port.end();
            });
        }
    });
}

#[test]
fn a_switch_that_dies_and_returns_finds_the_same_pool() {
    let place = Place::new();
    let listen = || FakeSwitch::listen(&place.path(), SwitchParams::default()).unwrap();
    let mut switch = listen();
    let mut port = Port::of(place.open(&[0]).unwrap().remove(0));
    for life in 1..=5 {
        switch.set_work(Work::Nothing);
        let mut queue: TxQueue = (0..10).map(|_| port.frame(&[1; 60])).collect();
        assert_eq!(port.device.transmit(&mut queue), 10);
        switch.send(&[life as u8; 60][..]);
        port.collect(1);
        // A buffer on another thread, while the switch dies.
        let held = port.packets.pop().unwrap();
        let (tell, told) = std::sync::mpsc::channel::<()>();
        let holder = thread::spawn(move || {
            let _ = told.recv();
            drop(held);
        });
        switch.stop();
        let start = Instant::now();
        while port.device.stats().link_lost < life {
            assert!(start.elapsed() < LIMIT);
            let _ = port.device.wait(&port.pool, Duration::from_millis(100));
        }
        let stats = port.device.stats();
        assert_eq!((stats.in_rx, stats.in_tx, port.pool.inflight().out), (0, 0, 1), "{stats:?}");
        port.adds_up(1);
        switch = listen();
        port.wait_for_a_connection();
        drop(tell);
        holder.join().unwrap();
        port.adds_up(0);
    }
    switch.send(&[9; 60][..]);
    port.collect(1);
    port.end();
}

#[test]
fn a_switch_that_hangs_keeps_its_buffers_at_the_close() {
    let place = Place::new();
    let switch = FakeSwitch::listen(&place.path(), SwitchParams::default()).unwrap();
    let mut port = Port::of(place.open(&[0]).unwrap().remove(0));
    switch.set_fault(Some(Fault::Silent(request::GET_VRING_BASE)));
    let start = Instant::now();
    port.device.close();
    assert!(start.elapsed() >= Duration::from_secs(1), "it had a second");
    let stats = port.device.stats();
    assert_eq!((stats.kept, stats.in_rx, stats.closed_with), (64, 64, 0));
    port.adds_up(0);
    assert_eq!(port.pool.inflight().out, 64, "they never return");
}

#[test]
fn a_switch_that_hangs_when_it_is_lost_keeps_its_buffers() {
    let place = Place::new();
    let switch = FakeSwitch::listen(&place.path(), SwitchParams::default()).unwrap();
    let mut port = Port::of(place.open(&[0]).unwrap().remove(0));
    switch.set_fault(Some(Fault::Silent(request::GET_VRING_BASE)));
    switch.set_lie(Some(Lie::Index(1000)));
    switch.send(&[1; 60][..]);
    let start = Instant::now();
    while port.device.stats().link_lost == 0 {
        assert!(start.elapsed() < LIMIT);
        let _ = port.device.wait(&port.pool, Duration::from_millis(100));
        port.device.receive(&port.pool, &mut port.packets, 64);
    }
    switch.set_lie(None);
    switch.set_fault(None);
    while port.device.stats().in_rx < 2 * 64 {
        assert!(start.elapsed() < LIMIT, "{:?}", port.device.stats());
        let _ = port.device.wait(&port.pool, Duration::from_millis(100));
        port.device.receive(&port.pool, &mut port.packets, 64);
    }
    let kept = port.device.stats().kept;
    assert!((63..=64).contains(&kept), "{kept} are the switch's; one may have come before");
    port.packets.clear();
    port.adds_up(0);
    port.device.close();
    let closed = port.device.stats();
    assert_eq!(
        (closed.closed_with, closed.in_rx),
        (64, kept),
        "those of the lost connection are not counted again"
    );
    assert_eq!(port.pool.inflight().out, kept);
}

#[test]
fn a_file_that_is_no_socket_stays() {
    let place = Place::new();
    std::fs::write(place.path(), "precious").unwrap();
    let name = format!("{},server=1", place.name());
    let memory = arena(Backing::Memfd { huge: false });
    let error = open_devices(&[(&name, &[0])], &params(), &memory).map(drop).unwrap_err().to_string();
    assert!(error.contains("it is no socket"), "{error}");
    assert_eq!(std::fs::read(place.path()).unwrap(), b"precious");
}

#[test]
fn a_listening_front_end_serves_whoever_connects() {
    let place = Place::new();
    let name = format!("{},server=1", place.name());
    let memory = arena(Backing::Memfd { huge: false });
    let open =
        || open_devices(&[(&name, &[0])], &params(), &memory).map(|opened| opened.into_iter().flatten());
    let mut port = Port::of(open().unwrap().next().unwrap());
    assert_eq!(port.device.state().tx_room, 0, "nobody is there");
    let error = open().map(drop).unwrap_err().to_string();
    assert!(error.contains("another process listens"), "{error}");
    for n in 1..=3 {
        let switch = FakeSwitch::connect(&place.path(), SwitchParams::default()).unwrap();
        switch.send(&[n; 60][..]);
        port.collect(1);
        assert_eq!(port.packets[0].data(), [n; 60]);
        port.packets.clear();
        switch.stop();
    }
    port.end();
    assert!(!place.path().exists(), "it removed its socket");
    // A killed process leaves its socket.
    drop(std::os::unix::net::UnixListener::bind(place.path()).unwrap());
    Port::of(open().unwrap().next().unwrap()).end();
}

#[test]
fn a_switch_that_writes_anything_at_any_time_loses_no_buffer() {
    let place = Place::new();
    let switch = FakeSwitch::listen(&place.path(), SwitchParams { work: Work::Echo, ..Default::default() });
    let switch = switch.unwrap();
    let mut port = Port::of(place.open(&[0]).unwrap().remove(0));
    for seed in 0..300 {
        let mut queue: TxQueue = (0..4).map(|_| port.frame(&[1; 200])).collect();
        port.device.transmit(&mut queue);
        drop(queue);
        switch.scribble(seed);
        switch.send(Frame { bytes: vec![7; 900], ..Default::default() });
        for _ in 0..20 {
            port.device.receive(&port.pool, &mut port.packets, 64);
            port.complete();
            port.adds_up(0);
        }
        let mut pages: Vec<_> = port.packets.iter().map(|packet| packet.buffer().page()).collect();
        pages.sort_unstable();
        pages.dedup();
        assert_eq!(pages.len(), port.packets.len(), "a page with two owners");
        port.packets.clear();
    }
    port.end();
}
