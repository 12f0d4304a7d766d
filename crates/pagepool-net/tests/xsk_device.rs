//! AF_XDP devices over veth pairs: the conformance suite. With `PAGEPOOL_TRIMMED` parts are dropped in every
//! 13th order alone, for a guest.

use crate::veth;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use crate::veth::Veth;
use pagepool::{Arena, ArenaParams, Backing, OnMissingHuge, PoolParams};
use pagepool_net::{
    AfXdpParams, Attach, OpenParams, Redirect, TxMetadataMode, TxMode, UmemParams, XdpProgram, XskMode,
    open_device,
};
use pagepool_testing::{Allowed, Rig, conformance_device, conformance_slow_device};

/// Devices over one veth pair, which is made again after it died.
struct Maker {
    veth: Rc<Veth>,
    umem: UmemParams,
    attach: Attach,
    tx_mode: TxMode,
    backing: Backing,
    redirect: RefCell<Option<Arc<Redirect>>>,
}

impl Maker {
    fn rig(&self) -> Rig {
        if !self.veth.alive.get() {
            *self.redirect.borrow_mut() = None;
            self.veth.revive();
        }
        let attach =
            || Redirect::attach("near0", self.attach, self.umem.multi_buffer).expect("nothing is attached");
        let redirect = self.redirect.borrow_mut().get_or_insert_with(attach).clone();
        let mut provider = None;
        veth::wait_until("4 MiB, of which others may have the huge pages for a while", || {
            provider = arena(self.backing, self.umem.chunk_size).ok();
            provider.is_some()
        });
        let provider = provider.expect("there is one");
        let page_size = pagepool::Provider::area(&*provider).page_size();
        let chunk = if self.umem.unaligned { self.umem.chunk_size as usize } else { page_size };
        let headroom = self.umem.headroom as usize + 256;
        let pool = PoolParams {
            headroom,
            max_len: chunk - headroom, // so that what is sent crosses no chunk, either
            tailroom: if self.umem.unaligned { 64 } else { 0 },
            colour: self.umem.unaligned,
            wakeup: true,
            ..Default::default()
        };
        let af_xdp = AfXdpParams {
            umem: self.umem.clone(),
            program: XdpProgram::Redirects(vec![redirect]),
            tx_mode: self.tx_mode,
            // on a busy machine the kernel takes its time to end the last one
            busy_limit: veth::LIMIT,
            ..Default::default()
        };
        let multi_buffer = self.umem.multi_buffer;
        let params =
            OpenParams { rx_ring: 64, tx_ring: 64, multi_buffer, pool, af_xdp, ..Default::default() };
        let opened = open_device("af_xdp:near0", &params, &provider).expect("a free queue, and packets fit");
        Rig {
            device: opened.device,
            far: Box::new(self.veth.far_end(0)),
            pool: opened.pool.bind(),
            provider,
            allowed: Allowed::default(),
            verify: Box::new(|| {}),
        }
    }
}

/// 4 MiB of this kind, and of no other if that is to be huge pages. In pages that suit chunks of this size.
fn arena(backing: Backing, chunk_size: u32) -> Result<Arc<Arena>, String> {
    let page_size = if chunk_size == 2048 { 2048 } else { 4096 };
    let params = ArenaParams { max_bytes: 4 << 20, page_size, backing, ..Default::default() };
    let on_missing_huge =
        if backing == Backing::Huge2M { OnMissingHuge::Fail } else { OnMissingHuge::Fallback };
    let params = ArenaParams { on_missing_huge, commit_all: true, ..params };
    Arena::new(params).map_err(|error| error.to_string())
}

/// Runs the suite, or says why not.
fn suite(name: &str, mtu: usize, attach: Attach, umem: UmemParams) {
    suite_over(Backing::default(), TxMode::Auto, name, mtu, attach, umem);
}

fn suite_over(backing: Backing, tx_mode: TxMode, name: &str, mtu: usize, attach: Attach, umem: UmemParams) {
    if let Some(why) = veth::missing() {
        return println!("SKIP {name}: {why}");
    }
    if let Some(why) = veth::no_multi_buffer().filter(|_| umem.multi_buffer) {
        return println!("SKIP {name}: {why}");
    }
    let _shared = (backing == Backing::Huge2M).then(pagepool_lab::share_huge_pages);
    if let Err(why) = arena(backing, umem.chunk_size) {
        return println!("SKIP {name}: {why}");
    }
    let (veth, redirect) = (Veth::new(1, mtu), RefCell::new(None));
    let maker = Maker { veth, umem, attach, tx_mode, backing, redirect };
    match std::env::var_os("PAGEPOOL_TRIMMED") {
        None => conformance_device(|| maker.rig()),
        Some(_) => conformance_slow_device(|| maker.rig()),
    }
}

fn umem() -> UmemParams {
    UmemParams { mode: XskMode::Copy, ..Default::default() }
}

#[test]
fn a_native_device() {
    suite("a_native_device", 1500, Attach::Native, umem());
}

#[test]
fn a_native_device_that_sends_by_its_ring() {
    suite_over(Backing::default(), TxMode::Ring, "its_ring", 1500, Attach::Native, umem());
}

#[test]
fn a_generic_device_with_headroom() {
    suite("a_generic_device", 1500, Attach::Generic, UmemParams { headroom: 128, ..umem() });
}

#[test]
fn pages_of_2_kib() {
    suite("pages_of_2_kib", 1500, Attach::Native, UmemParams { chunk_size: 2048, ..umem() });
}

#[test]
fn unaligned_chunks() {
    let umem = UmemParams { chunk_size: 3072, unaligned: true, ..umem() };
    suite("unaligned_chunks", 1500, Attach::Native, umem);
}

#[test]
fn huge_pages() {
    suite_over(Backing::Huge2M, TxMode::Auto, "huge_pages", 1500, Attach::Native, umem());
}

#[test]
fn unaligned_chunks_over_huge_pages() {
    let umem = UmemParams { chunk_size: 3072, unaligned: true, ..umem() };
    let name = "unaligned_chunks_over_huge_pages";
    suite_over(Backing::Huge2M, TxMode::Auto, name, 1500, Attach::Native, umem);
}

#[test]
fn jumbo_packets() {
    let umem = UmemParams { multi_buffer: true, ..umem() };
    suite("jumbo_packets", 9000, Attach::Native, umem);
}

#[test]
fn jumbo_packets_in_pages_of_2_kib() {
    let umem = UmemParams { multi_buffer: true, chunk_size: 2048, ..umem() };
    suite("jumbo_packets_in_pages_of_2_kib", 9000, Attach::Native, umem);
}

#[test]
fn jumbo_packets_in_unaligned_chunks() {
    let umem = UmemParams { multi_buffer: true, chunk_size: 3072, unaligned: true, ..umem() };
    suite("jumbo_packets_in_unaligned_chunks", 9000, Attach::Native, umem);
}

/// Runs the suite where packets may carry requests, if the kernel takes any.
fn suite_with_requests(name: &str, mtu: usize, umem: UmemParams) {
    if let Some(why) = veth::older_than((6, 11)) {
        return println!("SKIP {name}: metadata of packets that are sent requires {why}");
    }
    suite(name, mtu, Attach::Native, UmemParams { tx_metadata: TxMetadataMode::On, ..umem });
}

#[test]
fn pages_of_2_kib_with_requests() {
    suite_with_requests("pages_of_2_kib_with_requests", 1500, UmemParams { chunk_size: 2048, ..umem() });
}

#[test]
fn jumbo_packets_with_requests() {
    let umem = UmemParams { multi_buffer: true, ..umem() };
    suite_with_requests("jumbo_packets_with_requests", 9000, umem);
}
