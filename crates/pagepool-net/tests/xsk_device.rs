//! AF_XDP devices over veth pairs: the conformance suite.

mod veth;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use pagepool::{Arena, ArenaParams, Pool, PoolParams};
use pagepool_net::testing::{self, Allowed, Rig};
use pagepool_net::{Attach, Redirect, Umem, UmemParams, XskDevice, XskMode, XskParams};
use veth::Veth;

/// Devices over one veth pair, which is made again after it died.
struct Maker {
    veth: Rc<Veth>,
    umem: UmemParams,
    attach: Attach,
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
        let arena = ArenaParams { max_bytes: 4 << 20, commit_all: true, ..Default::default() };
        let provider = Arena::new(arena).expect("4 MiB");
        let umem = Umem::new(self.umem.clone(), &*provider).expect("memory to lock");
        let (chunk, headroom) = (self.umem.chunk_size as usize, self.umem.headroom as usize + 256);
        let params = PoolParams {
            headroom,
            max_len: chunk - headroom,
            tailroom: if chunk < 4096 { 64 } else { 0 },
            wakeup: true,
            domains: vec![umem.clone()],
            ..Default::default()
        };
        let pool = Pool::new(params, provider.clone()).expect("parameters in range").bind();
        let params = XskParams {
            interface: "near0".into(),
            rx_ring: 64,
            tx_ring: 64,
            redirect: Some(redirect),
            busy_limit: Duration::from_secs(20), // on a busy machine the kernel takes its time to end the last one
            ..Default::default()
        };
        let device = XskDevice::open(params, &umem).expect("a free queue");
        let far = self.veth.far_end(0);
        Rig {
            device: Box::new(device),
            far: Box::new(far),
            pool,
            provider,
            allowed: Allowed::default(),
            verify: Box::new(|| {}),
        }
    }
}

/// Runs the suite, or says why not.
fn suite(name: &str, mtu: usize, attach: Attach, umem: UmemParams) {
    if let Some(why) = veth::missing() {
        return println!("SKIP {name}: {why}");
    }
    let maker = Maker { veth: Veth::new(1, mtu), umem, attach, redirect: RefCell::new(None) };
    testing::device(|| maker.rig());
}

fn umem() -> UmemParams {
    UmemParams { mode: XskMode::Copy, ..Default::default() }
}

#[test]
fn a_native_device() {
    suite("a_native_device", 1500, Attach::Native, umem());
}

#[test]
fn a_generic_device_with_headroom() {
    suite("a_generic_device", 1500, Attach::Generic, UmemParams { headroom: 128, ..umem() });
}

#[test]
fn unaligned_chunks() {
    let umem = UmemParams { chunk_size: 3072, unaligned: true, ..umem() };
    suite("unaligned_chunks", 1500, Attach::Native, umem);
}

#[test]
fn jumbo_packets() {
    let umem = UmemParams { multi_buffer: true, ..umem() };
    suite("jumbo_packets", 9000, Attach::Native, umem);
}
