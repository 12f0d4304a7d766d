//! Redirect by address: which way frames take to another device, and what it costs in maps and syncs.

use std::sync::Arc;

use crate::fake::{FakeNic, Hand, packet, pool};
use pagepool::{
    Arena, ArenaParams, DeviceMemory, DmaDomain, NodeId, Pool, PoolParams, PoolRef, XdpBuff, XdpFrame,
};
use pagepool_net::{Action, Egress, Forwarder, Ingress, PacketHandler, PathStats, PortId};
use pagepool_testing::CheckingIommu;

fn domain(iommu: &Arc<CheckingIommu>) -> Arc<dyn DmaDomain> {
    iommu.clone()
}

/// Two ports, and a handler that sends from the first to the second.
struct Pair<P> {
    forwarder: Forwarder<P>,
    to: PortId,
    hands: [Hand; 2],
    handles: [PoolRef; 2],
    iommus: [Arc<CheckingIommu>; 2],
}

/// The devices have an address space each, or one in common; in that of the second one can map more, or not.
fn pair(shared: bool, maps: bool) -> Pair<impl PacketHandler> {
    let first = CheckingIommu::new("nic0");
    let second = if shared { first.clone() } else { CheckingIommu::new("nic1") };
    let iommus = [first, second];
    let mut forwarder = Forwarder::new(|_: &mut XdpBuff, _: Ingress| Action::Redirect(PortId(1)));
    let nics = iommus.each_ref().map(|iommu| FakeNic::behind(iommu, maps));
    let hands = nics.each_ref().map(|(_, hand)| hand.clone());
    let mut at = 0;
    let ports = nics.map(|(nic, _)| {
        at += 1;
        forwarder.add_port(nic, pool(vec![domain(&iommus[at - 1])]))
    });
    let handles = ports.map(|port| forwarder.pool(port).expect("the port is here").handle());
    Pair { forwarder, to: ports[1], hands, handles, iommus }
}

impl<P: PacketHandler> Pair<P> {
    /// Sends packets through, and looks at all that comes out, and that all buffers have returned.
    fn send(&mut self, packets: u32, len: usize) {
        (0..packets).for_each(|n| self.hands[0].arrive(packet(n, len)));
        while self.forwarder.poll() > 0 {}
        let sent = self.hands[1].sent();
        assert_eq!(sent.len() as u32, packets);
        assert!((0..).zip(&sent).all(|(n, bytes)| *bytes == packet(n, len)), "what was received was sent");
        assert!(self.handles.iter().all(|pool| pool.inflight().out == 0), "all returned");
    }

    fn paths(&self) -> PathStats {
        self.forwarder.paths(self.to).expect("the port is here")
    }

    /// Ends everything; every mapping was undone once, and no sync was invalid.
    fn end(self) {
        drop(self.forwarder);
        assert!(self.handles.iter().all(|pool| pool.inflight().total == 0));
        for iommu in self.iommus {
            let counts = iommu.counts();
            assert_eq!((counts.maps, iommu.mapped_regions()), (counts.unmaps, 0));
            assert_eq!((counts.bad_unmaps, counts.bad_syncs, counts.late_syncs, counts.faults), (0, 0, 0, 0));
        }
    }
}

#[test]
fn one_address_space_for_both_reuses_the_address() {
    let mut pair = pair(true, false);
    let before = pair.iommus[1].counts();
    pair.send(100, 60);
    assert_eq!(pair.paths(), PathStats { reused: 100, ..Default::default() });
    let after = pair.iommus[1].counts();
    assert_eq!(after.maps, before.maps, "nothing was mapped");
    assert_eq!(after.for_device - before.for_device, 200, "one sync to receive, one to send");
    pair.end();
}

#[test]
fn another_address_space_maps_the_area_once() {
    let mut pair = pair(false, true);
    let (before, mapped) = (pair.iommus[1].counts(), pair.iommus[1].mapped_regions());
    pair.send(100, 60);
    pair.send(100, 60);
    assert_eq!(pair.paths(), PathStats { mapped: 1, reused: 199, ..Default::default() });
    let after = pair.iommus[1].counts();
    assert_eq!(after.maps - before.maps, 1, "one region, once");
    assert_eq!(after.for_device - before.for_device, 200, "a sync and nothing more");
    assert_eq!(pair.iommus[1].mapped_regions(), mapped + 1);
    pair.forwarder.close_port(pair.to);
    assert_eq!(pair.iommus[1].mapped_regions(), mapped, "unmapped with the port, although the memory lives");
    pair.end();
}

#[test]
fn a_device_that_cannot_map_gets_copies() {
    let mut pair = pair(false, false);
    let before = pair.iommus[1].counts();
    pair.send(100, 60);
    assert_eq!(pair.paths(), PathStats { copied: 100, ..Default::default() });
    assert_eq!(pair.iommus[1].counts().maps, before.maps);
    assert_eq!(pair.handles[1].stats().recycle_cached, 100, "they were in pages of the second port's pool");
    pair.end();
}

#[test]
fn a_map_that_is_refused_becomes_copies() {
    let mut pair = pair(false, true);
    pair.iommus[1].fail_map(1);
    pair.send(100, 60);
    assert_eq!(pair.paths(), PathStats { copied: 100, map_failed: 1, ..Default::default() });
    pair.end();
}

#[test]
fn jumbo_packets_take_every_way() {
    for (shared, maps) in [(true, false), (false, true), (false, false)] {
        let mut pair = pair(shared, maps);
        pair.send(20, 9000);
        let paths = pair.paths();
        assert_eq!(paths.reused + paths.mapped + paths.copied, 20);
        assert_eq!(paths.copied > 0, !shared && !maps);
        pair.end();
    }
}

#[test]
fn a_frame_takes_the_way_of_its_worst_buffer() {
    let [near, far] = ["near", "far"].map(CheckingIommu::new);
    let [own, other] = [&near, &far].map(|iommu| pool(vec![domain(iommu)]));
    let mut egress = Egress::to(Some(domain(&near)), false);
    let mut mixed = XdpBuff::received(own.alloc_page().unwrap(), 60).unwrap();
    mixed.data_mut().fill(1);
    let mut frag = other.alloc_page().unwrap();
    frag.bytes_mut().unwrap()[..40].fill(2);
    mixed.add_frag(frag, 0, 40).unwrap();
    let copy = egress.prepare(XdpFrame::from(mixed), &own).unwrap();
    assert_eq!(copy.data(), [[1; 60].as_slice(), &[2; 40]].concat());
    assert_eq!((egress.stats().copied, other.inflight().out, own.inflight().out), (1, 0, 1));
    drop(copy);
}

#[test]
fn metadata_is_copied_where_there_is_room_for_it() {
    let [near, far] = ["near", "far"].map(CheckingIommu::new);
    let other = pool(vec![domain(&far)]);
    let mut egress = Egress::to(Some(domain(&near)), false);
    for (headroom, meta) in [(64, &b"requests"[..]), (4, &[])] {
        let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() }).unwrap();
        let params =
            PoolParams { headroom, colour: false, domains: vec![domain(&near)], ..Default::default() };
        let own = Pool::new(params, arena).unwrap().bind();
        let mut packet = XdpBuff::new(other.alloc_page().unwrap(), 128, 60).unwrap();
        packet.data_mut().fill(1);
        packet.adjust_meta(-8).unwrap();
        packet.meta_mut().copy_from_slice(b"requests");
        let copy = egress.prepare(XdpFrame::from(packet), &own).unwrap();
        assert_eq!((copy.data(), copy.meta()), (&[1; 60][..], meta));
    }
    assert_eq!(egress.stats().copied, 2);
}

#[test]
fn a_copy_into_memory_that_the_cpu_cannot_write_is_dropped() {
    let [near, far] = ["near", "far"].map(CheckingIommu::new);
    let other = pool(vec![domain(&far)]);
    let memory = DeviceMemory::new("hbm0", 1 << 20, NodeId(0)).unwrap();
    let params = PoolParams { headroom: 64, domains: vec![domain(&near)], ..Default::default() };
    let own = Pool::new(params, memory).unwrap().bind();
    let mut egress = Egress::to(Some(domain(&near)), false);
    let mut packet = XdpBuff::new(other.alloc_page().unwrap(), 128, 60).unwrap();
    packet.adjust_meta(-8).unwrap();
    assert!(egress.prepare(XdpFrame::from(packet), &own).is_none());
    assert_eq!((egress.stats().copy_failed, own.inflight().out, other.inflight().out), (1, 0, 0));
}

#[test]
fn a_copy_without_a_page_is_counted_and_dropped() {
    let [near, far] = ["near", "far"].map(CheckingIommu::new);
    let [own, other] = [&near, &far].map(|iommu| pool(vec![domain(iommu)]));
    let mut egress = Egress::to(Some(domain(&near)), false);
    let taken: Vec<_> = std::iter::from_fn(|| own.alloc_page()).collect();
    let frame = XdpFrame::from(XdpBuff::received(other.alloc_page().unwrap(), 60).unwrap());
    assert!(egress.prepare(frame, &own).is_none());
    assert_eq!((egress.stats().copy_failed, other.inflight().out), (1, 0));
    drop(taken);
    let frame = XdpFrame::from(XdpBuff::received(other.alloc_page().unwrap(), 60).unwrap());
    drop(egress.prepare(frame, &own).expect("there is a page again"));
}

#[test]
fn an_egress_keeps_what_it_found_mapped() {
    let nic = CheckingIommu::new("nic0");
    let owner = pool(vec![domain(&nic)]);
    let mut egress = Egress::to(Some(domain(&nic)), false);
    let sender = pool(vec![domain(&nic)]);
    let frame = XdpFrame::from(XdpBuff::received(owner.alloc_page().unwrap(), 60).unwrap());
    let frame = egress.prepare(frame, &sender).unwrap();
    let handle = owner.handle();
    drop(owner); // its domain would be detached now
    let on_the_ring = frame.segments().next().unwrap();
    assert!(on_the_ring.dma_addr_in(nic.id()).is_some(), "the device may still be sending it");
    drop(frame);
    egress.close();
    drop(sender);
    assert_eq!((nic.mapped_regions(), handle.inflight().total), (0, 0));
}

#[test]
fn areas_that_are_gone_are_forgotten() {
    let nic = CheckingIommu::new("nic0");
    let sender = pool(vec![domain(&nic)]);
    let mut egress = Egress::to(Some(domain(&nic)), true);
    for round in 1..=5 {
        let other = pool(Vec::new());
        let frame = XdpFrame::from(XdpBuff::received(other.alloc_page().unwrap(), 60).unwrap());
        drop(egress.prepare(frame, &sender));
        assert_eq!((egress.stats().mapped, nic.mapped_regions()), (round, 2));
    }
    drop((egress, sender));
    assert_eq!((nic.mapped_regions(), nic.counts().maps), (0, 6));
}
