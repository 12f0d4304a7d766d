//! Memory ids: who carries them, for how long, and what there is to see of it.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use pagepool::{
    Bound, DeviceAddr, DmaDomain, DomainId, Error, IdentityDomain, MemId, MemModel, MemState, MemType, Pool,
    PoolParams, Region, Registry, XdpBuff, XdpFrame,
};
use pagepool_testing::PlainMemory;

fn params(name: &str, registry: &Registry) -> PoolParams {
    PoolParams { name: name.into(), refill: 4, registry: Some(registry.clone()), ..Default::default() }
}

fn pool(name: &str, registry: &Registry) -> Bound {
    Pool::new(params(name, registry), PlainMemory::new(16, 0).unwrap()).unwrap().bind()
}

#[test]
fn pools_are_found_by_id_and_by_looking_at_all() {
    let registry = Registry::new();
    let [rx, tx] = ["rx0", "tx0"].map(|name| pool(name, &registry));
    let buffers = [rx.alloc_page().unwrap(), rx.alloc_page().unwrap()];
    let entry = registry.get(rx.handle().mem_id()).unwrap();
    assert_eq!((entry.name.as_str(), entry.mem_type, entry.state), ("rx0", MemType::Pool, MemState::Live));
    assert_eq!((entry.inflight, entry.stats), (rx.inflight(), rx.stats()));
    let text = "    1 pool    live  rx0: 2 out of 4 (cache 2, lanes 0, ring 0, frag 0, uncollected 0), \
                hold 4 release 0, recycled 0.0 %";
    assert_eq!(entry.to_string(), text);
    assert_eq!(
        registry.pools().iter().map(|pool| pool.name().to_owned()).collect::<Vec<_>>(),
        ["rx0", "tx0"]
    );
    assert_eq!(registry.pool(MemId::new(2).unwrap()).unwrap().id(), tx.handle().id());
    assert!(registry.get(MemId::new(3).unwrap()).is_none());
    drop(buffers);
}

#[test]
fn a_pool_keeps_its_id_until_the_last_buffer_returns() {
    let registry = Registry::new();
    let ending = pool("ending", &registry);
    let frame = XdpFrame::from(XdpBuff::received(ending.alloc_page().unwrap(), 60).unwrap());
    let id = ending.handle().mem_id();
    let observer = ending.handle();
    assert_eq!(frame.mem_id(), Some(id));
    drop(ending);
    let entry = registry.get(id).unwrap();
    assert_eq!((entry.state, entry.inflight.out), (MemState::Ended, 1));
    // All other ids go round, and this one is left out at the wrap.
    for _ in 0..MemId::MAX {
        assert_ne!(next_id(&registry), id);
    }
    std::thread::spawn(move || drop(frame)).join().unwrap();
    assert!(registry.is_empty(), "the observer keeps no id");
    for number in 3..=MemId::MAX {
        assert_eq!(next_id(&registry).get(), number);
    }
    assert_eq!(next_id(&registry), id, "after all others");
    drop(observer);
}

/// The id of a model that ends at once.
fn next_id(registry: &Registry) -> MemId {
    MemModel::new(registry, "short", MemType::Page).unwrap().mem_id()
}

#[test]
fn a_pool_that_could_not_be_made_gives_its_id_back() {
    let registry = Registry::new();
    let memory = PlainMemory::new(16, 0).unwrap();
    let refused = [
        PoolParams { order: 11, ..params("order", &registry) },
        PoolParams { chains: usize::MAX, ..params("chains", &registry) },
        PoolParams {
            domains: vec![Arc::new(IdentityDomain::new("good")), Arc::new(Refusing(DomainId::unique()))],
            ..params("domain", &registry)
        },
    ];
    for params in refused {
        let name = params.name.clone();
        assert!(Pool::new(params, memory.clone()).is_err(), "{name}");
        assert!(registry.is_empty(), "{name}");
    }
}

/// A domain that maps nothing.
#[derive(Debug)]
struct Refusing(DomainId);

impl DmaDomain for Refusing {
    fn id(&self) -> DomainId {
        self.0
    }
    fn name(&self) -> String {
        "refusing".into()
    }
    fn map(&self, _: &Region) -> Result<DeviceAddr, String> {
        Err("it never does".into())
    }
    fn unmap(&self, _: &Region, _: DeviceAddr) {}
    fn sync_for_device(&self, _: DeviceAddr, _: usize) {}
    fn sync_for_cpu(&self, _: DeviceAddr, _: usize) {}
}

#[test]
fn a_full_registry_refuses_pools_and_says_what_to_do() {
    let registry = Registry::new();
    let models: Vec<_> =
        (0..MemId::MAX).map(|_| MemModel::new(&registry, "one of many", MemType::Page).unwrap()).collect();
    let refused = Pool::new(params("one too many", &registry), PlainMemory::new(16, 0).unwrap()).unwrap_err();
    assert!(matches!(refused, Error::Busy { .. }) && refused.to_string().contains("65533"), "{refused}");
    drop(pool("elsewhere", &Registry::new()));
    drop(models);
    drop(pool("there is room", &registry));
}

#[test]
fn a_pool_enters_the_process_registry_by_default() {
    let unnamed = PoolParams { name: "only here once".into(), ..Default::default() };
    let made = Pool::new(unnamed, PlainMemory::new(16, 0).unwrap()).unwrap();
    let seen = || Registry::process().pools().iter().any(|pool| pool.name() == "only here once");
    assert!(seen());
    drop(made);
    assert!(!seen());
}

#[test]
fn looking_at_pools_that_come_and_go_on_other_threads() {
    let registry = Registry::new();
    let stop = AtomicBool::new(false);
    std::thread::scope(|threads| {
        for _ in 0..2 {
            threads.spawn(|| {
                for _ in 0..300 {
                    let pool = pool("short", &registry);
                    let buffer = pool.alloc_page();
                    drop(pool);
                    drop(buffer);
                }
                stop.store(true, Relaxed);
            });
        }
        while !stop.load(Relaxed) {
            for entry in registry.dump() {
                assert_eq!((entry.name.as_str(), entry.mem_type), ("short", MemType::Pool));
                assert!(entry.to_string().lines().count() == 1 && entry.inflight.total >= 0);
            }
            drop(registry.pools());
        }
    });
    assert!(registry.is_empty());
}
