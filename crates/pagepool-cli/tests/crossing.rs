//! `forward` between interfaces of eight queues, while frames of many VLANs pass: a tap is opened beside it,
//! as by tcpdump, and then a queueing discipline is added. No frame is lost unseen, none overtakes another of
//! its VLAN, and the tap sees all that go out.

use crate::between;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use crate::between::{Place, capture, dropped_by_link, hosts, number, ok, unreceived, wait_until};
use pagepool::{Arena, ArenaParams, Error, Pool, PoolParams, XdpBuff, XdpFrameBulk};
use pagepool_lab::{FrameSocket, LinkSettings, TempFolder, TokenBucket};
use pagepool_link::{Mac, Netlink, TwoHosts, TwoHostsParams};
use pagepool_net::{
    Arrival, Device, NumberedFrames, Tally, TxMode, TxQueue, Umem, UmemParams, XskDevice, XskMode, XskParams,
};

const QUEUES: u32 = 8;
/// VLANs, from this number on.
const VLANS: usize = 16;
const FIRST: usize = 101;
/// Bytes of a frame without its tag.
const SIZE: usize = 60;
/// Where the tag stands.
const TAG_AT: usize = 12;
const TAG: [u8; 2] = [0x81, 0];
/// The least and the most rounds, the frames of a VLAN in each, and the pause after it.
const ROUNDS: u64 = 200;
const MOST_ROUNDS: u64 = 10 * ROUNDS;
const EACH: u64 = 8;
const PAUSE: Duration = Duration::from_millis(5);
/// In which rounds the tap is opened, and the queueing discipline added.
const TAP_IN: u64 = 50;
const QUEUEING_IN: u64 = 100;
/// Rounds after the senders have found the tap.
const FOUND: u64 = 50;
/// Its frames never wait in it for long.
const WIDE: TokenBucket = TokenBucket { rate: 1 << 30, burst: 1 << 20, limit: 8 << 20 };

/// The frames of each VLAN.
fn frames(hosts: &TwoHosts) -> Vec<NumberedFrames> {
    let to = hosts.b.link.mac.expect("a veth has one");
    let from = |vlan: usize| Mac([2, 0x70, 0x70, 1, 0, vlan as u8]);
    (0..VLANS).map(|vlan| ok(NumberedFrames::new(from(vlan), to, SIZE))).collect()
}

/// A frame, with the tag of its VLAN.
fn tagged(frames: &NumberedFrames, vlan: usize, number: u64) -> [u8; SIZE + 4] {
    let mut frame = [0; SIZE + 4];
    frames.write(number, &mut frame[4..]);
    frame.copy_within(4..4 + TAG_AT, 0);
    frame[TAG_AT..][..2].copy_from_slice(&TAG);
    frame[TAG_AT + 2..][..2].copy_from_slice(&((FIRST + vlan) as u16).to_be_bytes());
    frame
}

/// What came by, of each VLAN.
struct SeenFrames {
    tallies: Vec<Tally>,
    numbers: Vec<Vec<bool>>,
    /// Frames without a tag of ours.
    untagged: u64,
}

impl SeenFrames {
    fn new() -> Self {
        let sent = MOST_ROUNDS * EACH;
        let numbers = vec![vec![false; sent as usize]; VLANS];
        Self { tallies: vec![Tally::new(sent); VLANS], numbers, untagged: 0 }
    }

    fn take(&mut self, frame: &[u8]) {
        let vlan = match frame.get(TAG_AT..TAG_AT + 4) {
            Some(&[0x81, 0, high, low]) => usize::from(u16::from_be_bytes([high, low])).wrapping_sub(FIRST),
            _ => usize::MAX,
        };
        let Some(tally) = self.tallies.get_mut(vlan) else {
            self.untagged += 1;
            return;
        };
        let bare = [&frame[..TAG_AT], &frame[TAG_AT + 4..]].concat();
        if let Arrival::Good(number) = tally.take(&bare) {
            self.numbers[vlan][number as usize] = true;
        }
    }

    /// Whether there is one of each VLAN.
    fn is_of_all(&self) -> bool {
        self.tallies.iter().all(|tally| tally.good > 0)
    }

    fn take_all(&mut self, tap: &FrameSocket) {
        let mut bytes = [0; 2048];
        while let Some(len) = ok(tap.receive(&mut bytes)) {
            self.take(&bytes[..len.min(bytes.len())]);
        }
    }

    /// Says how many there were, of which none was changed, came twice, or overtook one of its VLAN.
    fn checked(&self) -> u64 {
        for (vlan, tally) in self.tallies.iter().enumerate() {
            let wrong = (tally.corrupt, tally.again, tally.overtaken, tally.unnumbered);
            assert_eq!(wrong, (0, 0, 0, 0), "VLAN {}: {tally:?}", FIRST + vlan);
        }
        assert_eq!(self.untagged, 0, "each has its tag still");
        self.tallies.iter().map(|tally| tally.good).sum()
    }
}

/// Frames that the kernel counts as dropped: by `far0`, `near0` and `far1`.
fn dropped(hosts: &TwoHosts) -> [u64; 3] {
    [
        hosts.a.namespace.run(|| dropped_by_link("far0")),
        hosts.run_between(|| dropped_by_link("near0")),
        hosts.b.namespace.run(|| dropped_by_link("far1")),
    ]
}

/// Opens a tap at the interface that packets leave by.
fn tap(hosts: &TwoHosts) -> FrameSocket {
    hosts.run_between(|| ok(FrameSocket::tap_here("near1")))
}

fn add_queueing(hosts: &TwoHosts) -> bool {
    hosts.run_between(|| {
        let mut netlink = ok(Netlink::open());
        let index = ok(netlink.link("near1")).index;
        netlink.add_token_bucket(index, WIDE).is_ok()
    })
}

/// What was beside the frames while they were sent.
struct Beside {
    heard: SeenFrames,
    /// The tap has to hear the frames from this number on: each sender has found it.
    from: Option<u64>,
    is_queueing: bool,
    rounds: u64,
    tap: Option<FrameSocket>,
}

impl Beside {
    /// How many rounds there are, as far as is known. `finds`: senders look for taps.
    fn last(&self, finds: bool) -> u64 {
        match self.from {
            Some(from) => ROUNDS.max(from / EACH + FOUND),
            None if finds => MOST_ROUNDS,
            None => ROUNDS,
        }
    }
}

/// Sends the frames of each round that it is asked for, from the namespace that it is called in: those of a
/// VLAN by one queue of `far0`. The link counts what it has no room for.
fn send_rounds(frames: &[NumberedFrames], rounds: &Receiver<u64>, sent: &Sender<()>) -> Result<(), Error> {
    let arena = Arena::new(ArenaParams { max_bytes: 16 << 20, commit_all: true, ..Default::default() })?;
    let umem = Umem::new(UmemParams { mode: XskMode::Copy, ..Default::default() }, &arena)?;
    let params = PoolParams { headroom: 256, domains: vec![umem.clone()], ..Default::default() };
    let pool = Pool::new(params, arena)?.bind();
    let open = |queue| {
        let params =
            XskParams { interface: "far0".into(), queue, tx_mode: TxMode::Ring, ..Default::default() };
        XskDevice::open(params, &umem, &pool)
    };
    let mut devices = (0..QUEUES).map(open).collect::<Result<Vec<_>, _>>()?;
    let (mut queue, mut done) = (TxQueue::new(), XdpFrameBulk::new());
    for round in rounds {
        for (at, device) in devices.iter_mut().enumerate() {
            for number in round * EACH..(round + 1) * EACH {
                for vlan in (at..VLANS).step_by(QUEUES as usize) {
                    let frame = tagged(&frames[vlan], vlan, number);
                    let mut page = pool.alloc_page().expect("few are on their way");
                    page.packet_mut().expect("it is memory")[..frame.len()].copy_from_slice(&frame);
                    queue.push(XdpBuff::received(page, frame.len()).expect("it fits"));
                }
            }
            let start = Instant::now();
            while !queue.is_empty() {
                device.transmit(&mut queue);
                device.complete(&mut done, usize::MAX);
                done.flush();
                assert!(start.elapsed() < between::LIMIT, "there is no room for ever");
            }
        }
        let _ = sent.send(());
    }
    Ok(())
}

/// Has all frames sent.
fn send_all(hosts: &TwoHosts, finds: bool) -> Beside {
    let mut beside =
        Beside { heard: SeenFrames::new(), from: None, is_queueing: false, rounds: 0, tap: None };
    let mut opened: Option<FrameSocket> = None;
    let ((tell, rounds), (sent, done)) = (mpsc::channel(), mpsc::channel());
    let frames = frames(hosts);
    std::thread::scope(|threads| {
        let sending = threads.spawn(|| {
            hosts
                .a
                .namespace
                .run(move || send_rounds(&frames, &rounds, &sent).map_err(|error| error.to_string()))
        });
        while beside.rounds < beside.last(finds) {
            let round = beside.rounds;
            match round {
                TAP_IN => opened = Some(tap(hosts)),
                QUEUEING_IN => beside.is_queueing = add_queueing(hosts),
                _ => {}
            }
            if beside.from.is_none() && beside.heard.is_of_all() {
                beside.from = Some(round * EACH);
            }
            if tell.send(round).is_err() || done.recv().is_err() {
                break; // why is said below
            }
            beside.rounds += 1;
            std::thread::sleep(PAUSE);
            opened.iter().for_each(|tap| beside.heard.take_all(tap));
        }
        drop(tell);
        assert_eq!(sending.join().expect("it says what is wrong"), Ok(()));
    });
    beside.tap = opened;
    beside
}

#[test]
fn vlan_frames_cross_while_a_tap_and_a_qdisc_are_added() {
    let name = "vlan_frames_cross_while_a_tap_and_a_qdisc_are_added";
    let Some(hosts) = hosts(name, &TwoHostsParams { queues: QUEUES, ..TwoHostsParams::default() }) else {
        return;
    };
    let folder = TempFolder::new("pagepool-crossing").expect("a new folder");
    let file = folder.path().join("arrived");
    let dropping = ["drop", "far1", "--pcap", file.to_str().expect("text")];
    let Some(dropping) = Place::In(&hosts.b.namespace).start(name, &dropping) else { return };
    let Some(running) = Place::Between(&hosts).start(name, &["forward", "near0", "near1"]) else { return };
    let before = dropped(&hosts);
    let since = || {
        let now = dropped(&hosts);
        [0, 1, 2].map(|at| now[at] - before[at])
    };
    let mut beside = send_all(&hosts, running.said.concat().contains("TX by BPF batch"));
    let sent = beside.rounds * EACH * VLANS as u64;
    wait_until("all frames have come", || {
        let [by_far0, by_near0, _] = since();
        running.counted(&["rx_packets"]) + by_far0 + by_near0.max(running.unreceived()) >= sent
    });
    let document = running.interrupt(); // PASS, and all that was received went out or is said to be lost
    wait_until("all frames have arrived", || {
        let [.., by_far1] = since();
        dropping.counted(&["rx_packets"]) + by_far1.max(dropping.unreceived()) >= number(&document, "sent")
    });
    let arrived = dropping.interrupt();
    let [by_far0, by_near0, by_far1] = since();
    beside.tap.iter().for_each(|tap| beside.heard.take_all(tap));
    // A veth counts what it could not redirect, which the socket counts, too.
    let unreceived_by_forward = by_far0 + by_near0.max(unreceived(&document));
    assert_eq!(
        number(&document, "received") + unreceived_by_forward,
        sent,
        "{by_far0} {by_near0} {document}"
    );
    let lost_behind = by_far1.max(unreceived(&arrived)) + number(&arrived, "not_captured");
    let mut crossed = SeenFrames::new();
    capture(&file).iter().for_each(|(_, frame)| crossed.take(frame));
    assert_eq!(crossed.checked() + lost_behind, number(&document, "sent"), "{by_far1} {arrived}");
    let ports = document["ports"].as_array().expect("a list");
    let busy = ports.iter().filter(|port| number(&port["nic"], "rx_packets") > 0).count();
    assert_eq!(busy, QUEUES as usize, "each queue had its VLANs: {document}");
    println!("{sent} frames over {busy} queues, {} arrived", crossed.checked());
    if document["interfaces"][1]["tx_mode"] != "bpf-batch" {
        return println!("SKIP {name}, the tap: what the ring sends passes none");
    }
    if !beside.is_queueing {
        println!("SKIP {name}, the queueing discipline: no tbf");
    }
    let (heard, from) = (beside.heard, beside.from.expect("the tap was open for long") as usize);
    println!("the tap heard {}, and all from number {from} on", heard.checked());
    for (vlan, (crossed, heard)) in crossed.numbers.iter().zip(&heard.numbers).enumerate() {
        let missed = (from..crossed.len()).find(|&number| crossed[number] && !heard[number]);
        assert_eq!(missed, None, "VLAN {}: the tap did not hear it", FIRST + vlan);
    }
}
