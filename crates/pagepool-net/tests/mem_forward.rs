//! The forwarding loop over in-memory NICs, whose hardware sees memory through the checking IOMMU alone.

use std::sync::Arc;
use std::time::Duration;

use pagepool::{Arena, ArenaParams, Bound, DmaDomain, Pool, PoolParams, PoolRef, XdpBuff};
use pagepool_net::{
    Action, ForwardStats, Forwarder, Ingress, MemNicParams, NicPort, PacketHandler, PortId, Wake, mem_nic,
};
use pagepool_testing::{Chance, CheckingIommu, FaultNic, FaultParams};

/// Two NICs with an address space each, and pools over memory of their own.
struct Bed<P> {
    forwarder: Forwarder<P>,
    ports: [PortId; 2],
    wires: [NicPort; 2],
    handles: [PoolRef; 2],
    iommus: [Arc<CheckingIommu>; 2],
}

fn pool(iommu: &Arc<CheckingIommu>) -> Bound {
    let arena = Arena::new(ArenaParams { max_bytes: 8 << 20, ..Default::default() }).expect("8 MiB are free");
    let domains: Vec<Arc<dyn DmaDomain>> = vec![iommu.clone()];
    let layout = PoolParams { headroom: 256, max_len: 1514, tailroom: 320, ..Default::default() };
    Pool::new(PoolParams { domains, sync_for_device: true, ..layout }, arena).expect("the domain maps").bind()
}

fn bed<P: PacketHandler>(program: P) -> Bed<P> {
    with_faults(program, FaultParams::default())
}

/// The same, over devices that go wrong in these ways.
fn with_faults<P: PacketHandler>(program: P, faults: FaultParams) -> Bed<P> {
    let iommus = ["nic0", "nic1"].map(CheckingIommu::new);
    let mut forwarder = Forwarder::with_handler(program);
    let made = iommus.each_ref().map(|iommu| {
        let (nic, wire) = mem_nic(MemNicParams::default(), iommu.clone()).expect("a descriptor is free");
        let nic = FaultNic::new(nic, faults.clone()).expect("the faults are possible");
        let port = forwarder.add_port(nic, pool(iommu));
        (port, wire)
    });
    forwarder.poll(); // the receive rings are filled
    let ports = made.each_ref().map(|(port, _)| *port);
    let handles = ports.map(|port| forwarder.pool(port).expect("it was just added").handle());
    Bed { forwarder, ports, wires: made.map(|(_, wire)| wire), handles, iommus }
}

impl<P: PacketHandler> Bed<P> {
    fn settle(&mut self) {
        while self.forwarder.poll() > 0 {}
    }

    /// Ends the forwarder; every page has returned, every mapping was undone, and the devices did nothing that
    /// they may not.
    fn end(self) {
        drop(self.forwarder);
        assert!(self.handles.iter().all(|pool| pool.inflight().total == 0));
        for iommu in &self.iommus {
            let counts = iommu.counts();
            assert_eq!((iommu.mapped_regions(), counts.maps), (0, counts.unmaps));
            assert_eq!((counts.faults, counts.bad_unmaps, counts.bad_syncs, counts.late_syncs), (0, 0, 0, 0));
        }
    }
}

fn packet(number: u8, len: usize) -> Vec<u8> {
    (0..len).map(|at| number.wrapping_add(at as u8)).collect()
}

fn across(_: &mut XdpBuff, at: Ingress) -> Action {
    Action::Redirect(PortId(1 - at.port.0))
}

#[test]
fn packets_cross_both_ways_small_and_jumbo() {
    let mut bed = bed(across);
    for number in 0..200u8 {
        let len = [60, 1514, 1515, 9000][number as usize % 4];
        for at in 0..2 {
            assert!(bed.wires[at].deliver(&packet(number, len)));
        }
        bed.settle();
        for at in 0..2 {
            let whole = bed.wires[at].take(|bytes| assert_eq!(bytes, packet(number, len)));
            assert!(whole, "{number} came out of {at}");
        }
    }
    bed.settle();
    for port in bed.ports {
        let paths = bed.forwarder.paths(port).unwrap();
        assert_eq!((paths.mapped, paths.reused, paths.copied), (1, 199, 0));
        assert_eq!(bed.forwarder.device(port).unwrap().stats().in_tx, 0);
    }
    bed.end();
}

#[test]
fn hardware_that_dies_in_the_middle_takes_nothing_along() {
    let mut bed = bed(across);
    (0..100).for_each(|number| assert!(bed.wires[0].deliver(&packet(number, 1500))));
    bed.settle(); // 100 packets are on the second NIC's ring, and in its hands
    bed.wires[1].die();
    (0..100).for_each(|number| assert!(bed.wires[0].deliver(&packet(number, 1500))));
    bed.settle();
    let woken = [(); 2].map(|()| bed.forwarder.wait(Duration::ZERO));
    assert_eq!(
        woken,
        [Wake::Ready, Wake::Timeout],
        "what the second NIC had returned; the first one is there"
    );
    let gone = bed.forwarder.stats(bed.ports[1]).unwrap().tx_gone;
    assert_eq!(
        (gone, bed.handles[0].inflight().out),
        (100, 512),
        "all but the first NIC's receive ring has returned"
    );
    bed.wires[0].die();
    assert_eq!(bed.forwarder.wait(Duration::from_secs(60)), Wake::Gone);
    assert_eq!(bed.handles[0].inflight().out, 0);
    bed.end();
}

#[test]
fn a_stuck_wire_fills_the_ring_and_further_packets_are_dropped() {
    let mut bed = bed(across);
    for _ in 0..30 {
        (0..100).for_each(|number| assert!(bed.wires[0].deliver(&packet(number, 60))));
        bed.settle();
    }
    let stats = bed.forwarder.stats(bed.ports[1]).unwrap();
    assert_eq!(
        (stats.redirect_in, stats.tx_overflow),
        (3000, 3000 - 2 * 512),
        "a ring, and as many that wait"
    );
    while bed.wires[1].take(|_| ()) {}
    bed.settle();
    while bed.wires[1].take(|_| ()) {}
    bed.settle();
    assert_eq!(bed.forwarder.device(bed.ports[1]).unwrap().stats().tx_completed, 1024);
    bed.end();
}

#[test]
fn waiting_wakes_when_a_packet_arrives() {
    let Bed { mut forwarder, wires, .. } = bed(across);
    let [mut first, _second] = wires;
    let sender = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(20));
        assert!(first.deliver(&packet(1, 60)));
        first
    });
    assert_eq!(forwarder.wait(Duration::from_secs(60)), Wake::Ready);
    assert!(forwarder.poll() > 0);
    drop(sender.join().unwrap());
}

/// Every packet that was received counts once more, and every one that was to go out did, or is known to have
/// ended.
fn adds_up(stats: &ForwardStats, tx_packets: u64) {
    let ForwardStats { pass, drop, aborted, tx, redirect_out, redirect_nowhere, too_short, .. } = *stats;
    assert_eq!(stats.rx, pass + drop + aborted + tx + redirect_out + redirect_nowhere + too_short);
    assert_eq!(tx + stats.redirect_in, tx_packets + stats.tx_overflow + stats.tx_gone, "{stats:?}");
}

#[test]
fn devices_that_go_wrong_lose_no_buffer() {
    let often = Chance::OneIn(8);
    for seed in 1..=12 {
        let die = if seed % 3 == 0 { Chance::Every(50) } else { Chance::Never };
        let ways =
            FaultParams { seed, drop: often, duplicate: often, reorder: often, die, ..Default::default() };
        let faults = FaultParams {
            corrupt: often,
            delay: often,
            stall_completions: Chance::OneIn(2),
            refuse_transmits: Chance::OneIn(2),
            ..ways
        };
        let verdicts = |packet: &mut XdpBuff, at: Ingress| match packet.len() % 3 {
            0 => Action::Tx,
            1 => Action::Redirect(PortId(1 - at.port.0)),
            _ => Action::Drop,
        };
        let mut bed = with_faults(verdicts, faults);
        for round in 0..100usize {
            for wire in &mut bed.wires {
                for n in 0..40 {
                    // or not, if there is no room
                    wire.deliver(&packet(n as u8, 60 + (round + n) * 97 % 4000));
                }
            }
            bed.forwarder.poll();
            let _ = bed.forwarder.wait(Duration::ZERO); // closes what died
            for wire in &mut bed.wires {
                while wire.take(|_| ()) {}
            }
        }
        for port in bed.ports {
            bed.forwarder.close_port(port); // what waits for the ring is counted
            let device = bed.forwarder.device(port).unwrap().stats();
            adds_up(&bed.forwarder.stats(port).unwrap(), device.tx_packets);
            assert!(device.tx_packets > 0);
        }
        bed.end();
    }
}

#[test]
fn frames_of_ones_own_go_out_and_a_flush_receives_nothing() {
    let mut bed = bed(across);
    let port = bed.ports[0];
    let frame = |forwarder: &Forwarder<_>, number| {
        let mut page = forwarder.pool(port).expect("it was added").alloc_page().expect("8 MiB");
        let bytes = packet(number, 60);
        page.packet_mut().expect("the CPU reads it")[..60].copy_from_slice(&bytes);
        pagepool::XdpFrame::from(XdpBuff::received(page, 60).expect("it fits"))
    };
    for number in [1, 2] {
        let frame = frame(&bed.forwarder, number);
        assert!(bed.forwarder.send(port, frame).is_ok());
    }
    let waiting = bed.forwarder.waiting(port).expect("a port");
    assert_eq!((waiting.len(), waiting.buffers()), (2, 2));
    let nowhere = frame(&bed.forwarder, 3);
    assert!(bed.forwarder.send(PortId(7), nowhere).is_err(), "it comes back");

    assert!(bed.wires[0].deliver(&packet(9, 60)));
    assert!(bed.forwarder.flush() > 0);
    for number in [1, 2] {
        assert!(bed.wires[0].take(|sent| assert_eq!(sent, packet(number, 60))));
    }
    assert!(!bed.wires[1].take(|_| ()), "what came was not received");
    assert_eq!(bed.forwarder.stats(port).map(|stats| (stats.redirect_in, stats.rx)), Some((2, 0)));
    bed.settle();
    assert!(bed.wires[1].take(|sent| assert_eq!(sent, packet(9, 60))), "a poll does");
    assert!(bed.forwarder.device(port).expect("a device").stats().kernel.is_none(), "it is no socket");
    bed.settle();
    bed.end();
}
