//! What a subscriber of `tracing` gets, and what it may do meanwhile.

use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use pagepool::{NoDirectRecycle, PageBuf, Pool, PoolParams, PoolProbe};
use pagepool_testing::PlainMemory;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::provoke::{self, Fired};

/// Does something at each event of the pool.
struct At<F>(F);

impl<F: Fn(&Event<'_>) + 'static> Subscriber for At<F> {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "pagepool"
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        unreachable!("the pool has no spans")
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        (self.0)(event);
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// The fields of an event.
#[derive(Default)]
struct Fields {
    message: String,
    args: Vec<(&'static str, i64)>,
}

impl Visit for Fields {
    fn record_i64(&mut self, field: &Field, value: i64) {
        self.args.push((field.name(), value));
    }
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.args.push((field.name(), value as i64));
    }
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        assert_eq!(field.name(), "message", "all others are numbers");
        self.message = format!("{value:?}");
    }
}

/// An event, held against the declaration of its probe.
fn read(event: &Event<'_>) -> Fired {
    let probe = PoolProbe::ALL.iter().find(|probe| probe.name == event.metadata().name());
    let probe = probe.expect("the event of a probe");
    let mut fields = Fields::default();
    event.record(&mut fields);
    assert_eq!(event.metadata().level().as_str(), probe.level);
    assert_eq!(fields.message, probe.fires);
    let declared: Vec<_> = probe.args.iter().map(|(name, _)| *name).collect();
    let there: Vec<_> = fields.args.iter().map(|(name, _)| *name).collect();
    assert_eq!(there, declared, "{}", probe.name);
    Fired { probe: probe.name, args: fields.args.into_iter().map(|(_, value)| value).collect() }
}

#[test]
fn each_event_has_the_fields_and_values_of_its_probe() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let to = seen.clone();
    let keep = move |event: &Event<'_>| to.lock().unwrap().push(read(event));
    let provoked = tracing::subscriber::with_default(At(keep), provoke::all);
    let seen = std::mem::take(&mut *seen.lock().unwrap());
    crate::assert_same(seen, provoked);
}

/// A panic is reported on the thread and ends where the event was: the pool and its user go on.
#[test]
fn a_subscriber_that_panics_harms_neither_pool_nor_user() {
    let provoked =
        tracing::subscriber::with_default(At(|_: &Event<'_>| panic!("a bad subscriber")), provoke::all);
    assert_eq!(provoke::names(&provoked).len(), PoolProbe::ALL.len());
}

/// At each event one buffer of the same pool is dropped: into its cache, or, in the scope, into its full
/// ring. It would wait for ever where a lock is held, and break the cache where that is borrowed.
#[test]
fn a_subscriber_may_drop_buffers_of_the_pool() {
    let memory = PlainMemory::new(64, 0).unwrap();
    let stock = Arc::new(Mutex::new(Vec::<PageBuf>::new()));
    let from = stock.clone();
    let give_one = move |_: &Event<'_>| {
        let one = from.lock().unwrap().pop();
        drop(one);
    };
    tracing::subscriber::with_default(At(give_one), || {
        let params = PoolParams { ring_size: 2, max_lanes: 0, wakeup: true, refill: 4, ..Default::default() };
        let pool = Pool::new(params, memory.clone()).unwrap().bind();
        for round in 0..200 {
            let mut held: Vec<_> = std::iter::from_fn(|| pool.alloc_page()).collect();
            let keep = held.len().min(16);
            stock.lock().unwrap().extend(held.drain(..keep));
            let scope = (round % 2 == 0).then(NoDirectRecycle::enter);
            drop(held);
            drop(scope);
            let (stats, at) = (pool.stats(), pool.inflight());
            assert_eq!(at.out as usize, stock.lock().unwrap().len(), "round {round}: {at:?}");
            assert_eq!(stats.inflight() as usize + memory.free(), 64);
        }
        assert!(pool.stats().recycle_ring_full > 0 && pool.stats().alloc_failed > 0);
        drop(pool);
        stock.lock().unwrap().clear();
    });
    assert_eq!(memory.free(), 64);
}
