//! Every device that can be opened by name, in the conformance suite, and the NIC in memory as it can be
//! configured. A new row of [`DRIVERS`] is in it by itself; `xsk_device.rs` has the kinds of AF_XDP sockets,
//! `tap.rs` the TAPs.

// UNSAFETY: a checking IOMMU that accesses the CPU's memory.
#![expect(unsafe_code)]

use crate::veth;
use std::rc::Rc;
use std::sync::Arc;

use crate::veth::Veth;
use pagepool::{Arena, ArenaParams, DmaDomain, Pool, PoolParams};
use pagepool_net::{
    AfXdpParams, DRIVERS, DeviceMemory, Driver, MemNicParams, NicDomain, OpenParams, OpenedDevice, mem_nic,
    open_device,
};
use pagepool_testing::{
    Allowed, Chance, CheckingIommu, FarEnd, FaultNic, FaultParams, Rig, conformance_device,
};

/// An in-memory NIC that sees memory through this.
fn mem(memory: Arc<dyn DeviceMemory>, sync_for_device: bool, verify: impl Fn() + 'static) -> Rig {
    let provider = Arena::new(ArenaParams { max_bytes: 4 << 20, ..Default::default() }).expect("4 MiB");
    let domains: Vec<Arc<dyn DmaDomain>> = vec![memory.clone()];
    let layout = PoolParams { headroom: 256, max_len: 2048, tailroom: 320, ..Default::default() };
    let pool = Pool::new(PoolParams { domains, sync_for_device, ..layout }, provider.clone());
    let rings = MemNicParams { rx_ring: 64, tx_ring: 64, ..Default::default() };
    let (device, far) = mem_nic(rings, memory).expect("parameters in range");
    Rig {
        device: Box::new(device),
        far: Box::new(far),
        pool: pool.expect("parameters in range").bind(),
        provider,
        allowed: Allowed::default(),
        verify: Box::new(verify),
    }
}

fn plain() -> Rig {
    let domain = NicDomain::new("mem0");
    mem(domain.clone(), false, move || assert_eq!(domain.faults(), 0, "the device touched what it may not"))
}

fn checked(iommu: Arc<CheckingIommu>, sync_for_device: bool) -> Rig {
    mem(iommu.clone(), sync_for_device, move || {
        let counts = iommu.counts();
        assert_eq!((counts.faults, counts.bad_syncs, counts.bad_unmaps), (0, 0, 0), "{counts:?}");
    })
}

fn faulty(faults: FaultParams, allowed: Allowed) -> impl Fn() -> Rig {
    move || {
        let rig = plain();
        let device = Box::new(FaultNic::new(rig.device, faults.clone()).expect("parameters in range"));
        Rig { device, allowed, ..rig }
    }
}

/// A device as the table opens it, at its own wire, or at the far end of a veth pair.
fn of_the_table(driver: &Driver, veth: Option<&Rc<Veth>>) -> Rig {
    let params = ArenaParams { max_bytes: 4 << 20, commit_all: true, ..Default::default() };
    let provider = Arena::new(params).expect("4 MiB");
    // On a busy machine the kernel takes its time to end the last socket.
    let busy_limit = veth::LIMIT;
    let af_xdp = AfXdpParams { busy_limit, ..Default::default() };
    let params = OpenParams { rx_ring: 64, tx_ring: 64, af_xdp, ..Default::default() };
    let argument = if veth.is_some() { "near0" } else { "" };
    veth.inspect(|veth| veth.revive());
    let opened = open_device(&format!("{}:{argument}", driver.scheme), &params, &provider);
    let OpenedDevice { device, pool, wire, .. } =
        opened.unwrap_or_else(|error| panic!("{driver:?}: {error}"));
    let far: Box<dyn FarEnd> = match (wire, veth) {
        (Some(wire), _) => Box::new(wire),
        (None, Some(veth)) => Box::new(veth.far_end(0)),
        (None, None) => panic!("{driver:?} has neither a wire nor an interface to be tested over"),
    };
    let (pool, verify) = (pool.bind(), Box::new(|| {}));
    Rig { device, far, pool, provider, allowed: EXACT, verify }
}

#[test]
fn every_driver_of_the_table() {
    // TAPs are no ends of a veth pair: `tap.rs` and `vhost_net.rs` have them.
    for driver in DRIVERS.iter().filter(|driver| !["tap", "vhost_net"].contains(&driver.scheme)) {
        let veth = match driver.no_interface {
            Some(_) => None,
            None => match veth::missing() {
                Some(why) => {
                    println!("SKIP {driver:?}: {why}");
                    continue;
                }
                None => Some(Veth::new(1, 1500)),
            },
        };
        conformance_device(|| of_the_table(driver, veth.as_ref()));
    }
}

const EXACT: Allowed =
    Allowed { loss: false, duplicates: false, disorder: false, corruption: false, refusals: false };

macro_rules! devices {
    ($($name:ident: $make:expr,)*) => {
        $(#[test] fn $name() { conformance_device($make); })*
    };
}

devices! {
    mem_nic_over_its_domain: plain,
    mem_nic_over_a_checking_iommu: || checked(CheckingIommu::new("iommu"), true),
    mem_nic_that_syncs_itself: || checked(CheckingIommu::new("iommu"), false),
    // SAFETY: the device accesses only buffers that it has, and no reference to their bytes exists (I4).
    mem_nic_over_a_coherent_iommu: || checked(unsafe { CheckingIommu::new_coherent("iommu") }, true),
    no_fault: faulty(FaultParams::default(), EXACT),
    drops: faulty(
        FaultParams { drop: Chance::OneIn(5), ..Default::default() },
        Allowed { loss: true, ..EXACT },
    ),
    duplicates: faulty(
        FaultParams { duplicate: Chance::Every(3), ..Default::default() },
        Allowed { duplicates: true, ..EXACT },
    ),
    reorders: faulty(
        FaultParams { reorder: Chance::OneIn(4), ..Default::default() },
        Allowed { disorder: true, ..EXACT },
    ),
    corrupts: faulty(
        FaultParams { corrupt: Chance::OneIn(4), ..Default::default() },
        Allowed { corruption: true, ..EXACT },
    ),
    delays: faulty(
        FaultParams { delay: Chance::Every(4), ..Default::default() },
        Allowed { disorder: true, ..EXACT },
    ),
    stalls_completions: faulty(
        FaultParams { stall_completions: Chance::OneIn(2), ..Default::default() },
        Allowed { refusals: true, ..EXACT },
    ),
    refuses_transmits: faulty(
        FaultParams { refuse_transmits: Chance::OneIn(2), ..Default::default() },
        Allowed { refusals: true, ..EXACT },
    ),
    everything_at_once: faulty(
        FaultParams {
            drop: Chance::OneIn(9),
            duplicate: Chance::OneIn(9),
            reorder: Chance::OneIn(9),
            corrupt: Chance::OneIn(9),
            delay: Chance::OneIn(9),
            stall_completions: Chance::OneIn(3),
            refuse_transmits: Chance::OneIn(3),
            ..Default::default()
        },
        Allowed { loss: true, duplicates: true, disorder: true, corruption: true, refusals: true },
    ),
}
