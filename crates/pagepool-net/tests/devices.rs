//! Every device, in the conformance suite: a new one is a line here.

use std::sync::Arc;

use pagepool::testing::CheckingIommu;
use pagepool::{Arena, ArenaParams, DmaDomain, Pool, PoolParams};
use pagepool_net::testing::{self, Allowed, Rig};
use pagepool_net::{Chance, DeviceMemory, FaultNic, FaultParams, MemNicParams, NicDomain, mem_nic};

/// An in-memory NIC that sees memory through this.
fn mem(memory: Arc<dyn DeviceMemory>, sync_for_device: bool, verify: impl Fn() + 'static) -> Rig {
    let provider = Arena::new(ArenaParams { max_bytes: 4 << 20, ..Default::default() }).expect("4 MiB");
    let domain: Arc<dyn DmaDomain> = memory.clone();
    let params = PoolParams {
        headroom: 256,
        max_len: 2048,
        tailroom: 320,
        sync_for_device,
        domains: vec![domain],
        ..Default::default()
    };
    let pool = Pool::new(params, provider.clone()).expect("parameters in range").bind();
    let rings = MemNicParams { rx_ring: 64, tx_ring: 64, max_buffers: 6, ..Default::default() };
    let (device, far) = mem_nic(rings, memory).expect("parameters in range");
    let (device, far) = (Box::new(device), Box::new(far));
    Rig { device, far, pool, provider, allowed: Allowed::default(), frags: 1, verify: Box::new(verify) }
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

const EXACT: Allowed =
    Allowed { loss: false, duplicates: false, disorder: false, corruption: false, refusals: false };

macro_rules! devices {
    ($($name:ident: $make:expr,)*) => {
        $(#[test] fn $name() { testing::device($make); })*
    };
}

devices! {
    mem_nic_over_its_domain: plain,
    mem_nic_over_a_checking_iommu: || checked(CheckingIommu::new("iommu"), true),
    mem_nic_that_syncs_itself: || checked(CheckingIommu::new("iommu"), false),
    mem_nic_over_a_coherent_iommu: || checked(CheckingIommu::new_coherent("iommu"), true),
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
