//! Memory ids: who carries them, for how long, and what there is to see of it.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use pagepool::{
    Bound, DeviceAddr, DmaDomain, DomainId, IdentityDomain, MemId, Pool, PoolParams, Region, Registry,
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
    let found = registry.pool(rx.handle().mem_id()).unwrap();
    assert_eq!((found.name(), found.is_destroyed()), ("rx0", false));
    assert_eq!((found.inflight(), found.stats()), (rx.inflight(), rx.stats()));
    let text = "    1 live  rx0: 2 out of 4 (cache 2, lanes 0, ring 0, frag 0, uncollected 0), \
                hold 4 release 0, recycled 0.0 %";
    assert_eq!(found.to_string(), text);
    assert_eq!(
        registry.pools().iter().map(|pool| pool.name().to_owned()).collect::<Vec<_>>(),
        ["rx0", "tx0"]
    );
    assert_eq!(registry.pool(MemId::new(2).unwrap()).unwrap().id(), tx.handle().id());
    assert!(registry.pool(MemId::new(3).unwrap()).is_none());
    drop(buffers);
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
            for pool in registry.pools() {
                assert_eq!(pool.name(), "short");
                assert!(pool.to_string().lines().count() == 1 && pool.inflight().total >= 0);
            }
        }
    });
    assert!(registry.is_empty());
}
