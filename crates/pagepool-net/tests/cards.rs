//! The conformance suite over two network cards on one wire, of which the first moves packets without a copy.
//! `PAGEPOOL_CARDS=eth0,eth1` names them; both are up and promiscuous, and are not used otherwise. With
//! `PAGEPOOL_CARDS=eth0,eth1,copy` the kernel copies. `PAGEPOOL_LONGEST=1024` limits the packets, for a card
//! whose driver cuts longer ones. The guests of `pagepool-lab` have such cards.
//!
//! The suite is trimmed: a card moves packets when it comes to it, which is what `refusals` allows. Then no
//! scenario asks for exact numbers at once.

use std::time::{Duration, Instant};

use pagepool::{Arena, ArenaParams, PoolParams};
use pagepool_lab::FrameSocket;
use pagepool_net::{AfXdpParams, Attach, OpenParams, UmemParams, XdpProgram, XskMode, open_device};
use pagepool_testing::{Allowed, FarEnd, Rig, conformance_slow_device};

/// How long a packet is on its way at most, on a busy host of a guest.
const ON_ITS_WAY: Duration = Duration::from_millis(100);

/// How long the near card's link may take to come back.
const RESTART: Duration = Duration::from_secs(5);

/// A raw socket on the card at the other end.
#[derive(Debug)]
struct FarCard {
    socket: FrameSocket,
    near: String,
    /// Packets that the near card had received before one was sent to it, if one was since the last look.
    before: Option<u64>,
    longest: usize,
}

impl FarCard {
    /// Packets that the near card received.
    fn arrived(&self) -> u64 {
        self.read("statistics/rx_packets").unwrap_or_else(|error| panic!("{}: {error}", self.near))
    }

    /// Whether the near card has a link; one that is down cannot be asked.
    fn has_carrier(&self) -> bool {
        self.read("carrier").is_ok_and(|carrier| carrier == 1)
    }

    fn read(&self, what: &str) -> std::io::Result<u64> {
        let text = std::fs::read_to_string(format!("/sys/class/net/{}/{what}", self.near))?;
        Ok(text.trim().parse().expect("a number"))
    }
}

impl FarEnd for FarCard {
    fn send(&mut self, packet: &[u8]) -> bool {
        self.before = self.before.or_else(|| Some(self.arrived()));
        self.socket.send(packet).unwrap_or(false)
    }

    fn receive(&mut self, packet: &mut Vec<u8>) -> bool {
        packet.resize(1 << 16, 0);
        let ready = self.socket.wait(Duration::from_millis(20));
        let got = if ready { self.socket.receive(packet).unwrap_or(None) } else { None };
        packet.truncate(got.unwrap_or(0));
        got.is_some()
    }

    fn settle(&mut self) {
        let restart = Instant::now();
        // igb restarts its link for a new ring. What it is given meanwhile waits, and one frame was lost: its
        // watchdog, presumably, resets a card that has frames on a ring and no link.
        while !self.has_carrier() && restart.elapsed() < RESTART {
            std::thread::sleep(Duration::from_millis(1));
        }
        if let Some(before) = self.before.take() {
            let start = Instant::now();
            while self.arrived() == before && start.elapsed() < ON_ITS_WAY {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        std::thread::sleep(Duration::from_millis(5)); // an interrupt, and the driver's poll
    }

    fn longest(&self) -> usize {
        self.longest
    }
}

fn rig(near: &str, far: &str, mode: XskMode, page_size: usize) -> Rig {
    let params = ArenaParams { max_bytes: 4 << 20, page_size, commit_all: true, ..Default::default() };
    let provider = Arena::new(params).expect("4 MiB");
    let umem = UmemParams { mode, ..Default::default() };
    let af_xdp = AfXdpParams {
        umem,
        program: XdpProgram::Attach(Attach::Native),
        busy_limit: Duration::from_secs(20),
        ..Default::default()
    };
    let pool = PoolParams {
        headroom: 256,
        max_len: page_size - 256,
        tailroom: 0,
        wakeup: true,
        ..Default::default()
    };
    let params = OpenParams { rx_ring: 64, tx_ring: 64, pool, af_xdp, ..Default::default() };
    let opened = open_device(&format!("af_xdp:{near}"), &params, &provider);
    let opened = opened.unwrap_or_else(|error| panic!("{near}: {error}"));
    let socket = FrameSocket::open_here(far).expect("it is there");
    let longest = std::env::var("PAGEPOOL_LONGEST").map_or(1514, |bytes| bytes.parse().expect("a number"));
    Rig {
        device: opened.device,
        far: Box::new(FarCard { socket, near: near.into(), before: None, longest }),
        pool: opened.pool.bind(),
        provider,
        allowed: Allowed { refusals: true, ..Allowed::default() },
        verify: Box::new(|| {}),
    }
}

fn suite(name: &str, page_size: usize) {
    let Ok(cards) = std::env::var("PAGEPOOL_CARDS") else {
        return println!("SKIP {name}: it requires two cards on one wire, PAGEPOOL_CARDS=eth0,eth1");
    };
    let words: Vec<&str> = cards.split(',').collect();
    let (near, far, mode) = match words[..] {
        [near, far] => (near, far, XskMode::ZeroCopy),
        [near, far, "copy"] => (near, far, XskMode::Copy),
        _ => panic!("PAGEPOOL_CARDS={cards}, but must be eth0,eth1 or eth0,eth1,copy"),
    };
    conformance_slow_device(|| rig(near, far, mode, page_size));
}

#[test]
fn pages_of_4_kib() {
    suite("pages_of_4_kib", 4096);
}

#[test]
fn pages_of_2_kib() {
    suite("pages_of_2_kib", 2048);
}
