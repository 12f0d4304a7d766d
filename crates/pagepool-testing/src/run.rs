//! Runs operations on two real pools and on the model, and compares them after each.
//!
//! Everything is deterministic: the other thread does one thing at a time, and this one waits for it. Every
//! buffer gets a unique stamp when it is handed out, which is checked before it returns. A page or fragment
//! with two owners shows.

mod allocations;
mod handles;
mod other_thread;
mod returns;

use std::collections::{HashMap, HashSet};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

use pagepool::{
    Batch, Bound, DeferredUser, DmaDomain, IdentityDomain, InUse, NodeId, PageBuf, PageIdx, PageRef, Pool,
    PoolParams, PoolRef, Provider, RawBuf, SharedBuf, Shutdown,
};

use crate::model::{PageToken, PoolsModel, Who};
use crate::op::{Op, Setup};
use other_thread::OtherThread;

/// An object that is out, and its page in the model.
#[derive(Debug)]
struct Out<T> {
    pool: usize,
    token: PageToken,
    what: T,
    frag: bool,
    /// A whole page whose record may be looked up when it returns.
    special: bool,
    stamp: u64,
}

impl<T> Out<T> {
    fn with<U>(&self, what: U) -> Out<U> {
        let Self { pool, token, frag, special, stamp, .. } = *self;
        Out { pool, token, what, frag, special, stamp }
    }

    fn apart(self) -> (T, Out<()>) {
        let rest = self.with(());
        (self.what, rest)
    }
}

/// The user of the deferred buffers; the list says how long it uses them.
#[derive(Debug, Default)]
struct User {
    busy: Mutex<HashSet<u64>>,
}

impl InUse for User {
    fn in_use(&self, cookie: u64) -> bool {
        self.busy.lock().expect("no panic holds it").contains(&cookie)
    }
}

type Stamped = Vec<(PageToken, u64)>;

/// The real pools, all objects that are out, and the model.
#[derive(Debug)]
struct OpRun {
    model: PoolsModel,
    provider: Arc<dyn Provider>,
    pools: [Option<Bound>; 2],
    handles: [PoolRef; 2],
    shutdowns: [Option<Shutdown>; 2],
    other: Option<OtherThread>,
    buffers: Vec<Out<PageBuf>>,
    batches: Vec<(usize, Stamped, Batch)>,
    shared: Vec<Out<SharedBuf>>,
    raws: Vec<Out<RawBuf>>,
    page_refs: Vec<Out<PageRef>>,
    /// Cookies of buffers that were in use when queued.
    deferred: Vec<Out<u64>>,
    user: Arc<User>,
    registered: [Option<DeferredUser>; 2],
    stamps: u64,
    /// Whether a buffer of the pool was split within a cache line.
    split_lines: [bool; 2],
    page_of: HashMap<PageToken, PageIdx>,
    token_at: HashMap<PageIdx, PageToken>,
}

/// Runs the list over `provider`, which has exactly `setup.pages` free pages of `setup.order`, then returns
/// everything. Panics if the pools differ from the model.
///
/// One run at a time per process: the model's lanes are right only while no other pool is used.
pub fn run(setup: Setup, provider: Arc<dyn Provider>, ops: &[Op]) {
    let available = provider.available(setup.order);
    let domain: Arc<dyn DmaDomain> = Arc::new(IdentityDomain::new("model"));
    // Keeps the area mapped beyond the end of both pools, so that raw buffers can return late.
    let keeper = provider.area().attach(&domain).expect("the identity maps everything");
    let mut run = OpRun::new(setup, provider.clone(), domain);
    for (at, op) in ops.iter().enumerate() {
        run.apply(*op);
        run.compare(&format!("after operation {at}, {op:?}"));
    }
    run.end();
    provider.area().detach(&keeper);
    assert_eq!(provider.available(setup.order), available, "the provider has everything back");
}

impl OpRun {
    fn new(setup: Setup, provider: Arc<dyn Provider>, domain: Arc<dyn DmaDomain>) -> Self {
        let params = || PoolParams {
            order: setup.order,
            cache_size: setup.cache,
            refill: setup.refill,
            ring_size: setup.ring,
            max_lanes: setup.lanes,
            lane_size: setup.lane,
            frag_align: setup.frag_align,
            defer_capacity: setup.defer_capacity,
            on_busy: setup.on_busy,
            holders: setup.holders,
            domains: vec![domain.clone()],
            ..Default::default()
        };
        let pools = [(); 2].map(|()| Pool::new(params(), provider.clone()).expect("checked sizes").bind());
        let user = Arc::new(User::default());
        let registered = [0, 1].map(|pool: usize| pools[pool].deferred_user(user.clone()).ok());
        Self {
            model: PoolsModel::new(setup, provider.area().page_size()),
            provider,
            user,
            registered,
            deferred: Vec::new(),
            handles: [pools[0].handle(), pools[1].handle()],
            pools: pools.map(Some),
            shutdowns: [None, None],
            other: None,
            buffers: Vec::new(),
            batches: Vec::new(),
            shared: Vec::new(),
            raws: Vec::new(),
            page_refs: Vec::new(),
            stamps: 0,
            split_lines: [false; 2],
            page_of: HashMap::new(),
            token_at: HashMap::new(),
        }
    }

    fn apply(&mut self, op: Op) {
        match op {
            Op::AllocPage(pool) => self.alloc_page(pool as usize & 1),
            Op::AllocBulk(pool, n) => self.alloc_bulk(pool as usize & 1, n as usize & 15),
            Op::AllocBatch(pool, n) => self.alloc_batch(pool as usize & 1, n as usize & 15),
            Op::AllocFrag(pool, size) => self.alloc_frag(pool as usize & 1, size),
            Op::Alloc(pool, size) => self.alloc(pool as usize & 1, size),
            Op::Drop(at) => self.drop_buffer(at, Who::Main),
            Op::DropRemote(at) => self.drop_buffer(at, Who::OtherThread),
            Op::DropUnbound(at) => self.drop_unbound(at),
            Op::PutBulk(at, n) => self.put_bulk(at, n, Who::Main),
            Op::PutBulkRemote(at, n) => self.put_bulk(at, n, Who::OtherThread),
            Op::PutRingBulk(at, n) => self.put_ring_bulk(at, n),
            Op::PutRing(at) => self.put_ring(at, Who::Main),
            Op::PutRingRemote(at) => self.put_ring(at, Who::OtherThread),
            Op::RecycleDirect(at) => self.recycle_direct(at),
            Op::BatchPop(at) => self.batch_pop(at),
            Op::DropBatch(at) => self.drop_batch(at, Who::Main),
            Op::DropBatchRemote(at) => self.drop_batch(at, Who::OtherThread),
            Op::PageRef(at) => self.page_ref(at),
            Op::DropPageRef(at) => self.drop_page_ref(at),
            Op::Share(at) => self.share(at),
            Op::CloneShared(at) => self.clone_shared(at),
            Op::DropShared(at) => self.drop_shared(at, Who::Main),
            Op::DropSharedRemote(at) => self.drop_shared(at, Who::OtherThread),
            Op::TryUnique(at) => self.try_unique(at),
            Op::SplitOff(at, n) => self.split_off(at, n, Who::Main),
            Op::SplitOffElsewhere(at, n) => self.split_off(at, n, Who::OtherThread),
            Op::IntoRaw(at) => self.make_raw(at),
            Op::AllocAddrs(which, n) => self.alloc_addrs(which as usize & 1, n as usize & 15),
            Op::PutAddrs(at, n) if n < 128 => self.put_addrs(at, n, Who::Main),
            Op::PutAddrs(at, n) => self.put_addrs(at, n, Who::OtherThread),
            Op::FromRaw(at, within) => self.bring_raw(at, within),
            Op::FromRawWrong(at) => self.bring_wrong(at),
            Op::Defer(at, busy) => self.defer(at, busy & 3 != 0),
            Op::UserDone(at) => self.user_done(at),
            Op::PollDeferred(pool) => self.poll_deferred(pool as usize & 1),
            Op::Shrink(pool, keep) => self.shrink(pool as usize & 1, keep as usize & 15),
            Op::AskToShrink(pool, keep) => self.ask_to_shrink(pool as usize & 1, keep as usize & 15),
            Op::UpdateNid(pool, node) => self.update_nid(pool as usize & 1, node & 1),
            Op::BindElsewhere(pool) => self.bind_elsewhere(pool as usize & 1),
            Op::ThreadEnds => self.thread_ends(),
            Op::Destroy(pool) => self.destroy(pool as usize & 1),
        }
    }

    /// Checks all that is visible from outside against the model.
    fn compare(&mut self, when: &str) {
        for pool in 0..2 {
            if let Some(shutdown) = &self.shutdowns[pool] {
                shutdown.is_complete(); // polls the deferred queue
                self.model.poll_ended(pool, Who::Main);
            }
            self.model.check_stats(pool, &self.handles[pool].stats(), when);
            let (seen, predicted) = (self.handles[pool].inflight(), self.model.inflight(pool));
            assert_eq!(seen, predicted, "where the pages of pool {pool} are {when}");
            if let Some(holders) = self.handles[pool].holders() {
                let held = predicted.out + predicted.frag + predicted.deferred;
                assert_eq!(holders.held, held, "pages of pool {pool} that somebody holds {when}");
            }
            self.model.check_deferred_stats(pool, self.handles[pool].deferred_stats(), when);
            if let Some(shutdown) = &self.shutdowns[pool] {
                assert_eq!(shutdown.is_complete(), self.model.is_complete(pool), "end of pool {pool} {when}");
            }
        }
    }

    /// Returns everything, kind by kind, and ends both pools.
    fn end(mut self) {
        while !self.buffers.is_empty() {
            self.drop_buffer(0, Who::OtherThread);
        }
        while !self.raws.is_empty() {
            self.bring_raw(0, 0);
            self.drop_buffer(0, Who::Main);
        }
        while !self.shared.is_empty() {
            self.drop_shared(0, Who::Main);
        }
        while !self.batches.is_empty() {
            self.drop_batch(0, Who::Main);
        }
        self.compare("with nothing out but what is deferred");
        (0..2).for_each(|pool| self.destroy(pool));
        self.compare("after the end");
        while !self.deferred.is_empty() {
            self.user_done(0);
        }
        self.compare("with nothing in use");
        while !self.page_refs.is_empty() {
            self.drop_page_ref(0);
        }
        assert!((0..2).all(|pool| self.model.is_complete(pool)), "nothing is out");
        self.thread_ends();
    }

    fn defer(&mut self, at: u8, busy: bool) {
        let Some(out) = Self::pick(&mut self.buffers, at) else { return };
        let (Some(real), Some(user)) = (&self.pools[out.pool], &self.registered[out.pool]) else {
            return self.buffers.push(out);
        };
        self.stamps += 1;
        let (cookie, (mut buffer, out)) = (self.stamps, out.apart());
        if let Some(stranger) = &self.registered[1 - out.pool] {
            buffer = real.defer(stranger, buffer, cookie).expect_err("the other pool's user");
        }
        let queued = real.defer(user, buffer, cookie);
        let predicted = self.model.defer(out.pool, out.token, out.frag, cookie, busy);
        assert_eq!(queued.is_ok(), predicted, "defer");
        match queued {
            Err(buffer) => self.buffers.push(out.with(buffer)),
            Ok(()) if busy => {
                self.user.busy.lock().expect("no panic holds it").insert(cookie);
                self.deferred.push(out.with(cookie));
            }
            Ok(()) => {}
        }
    }

    fn user_done(&mut self, at: u8) {
        let Some(out) = Self::pick(&mut self.deferred, at) else { return };
        self.user.busy.lock().expect("no panic holds it").remove(&out.what);
        self.model.user_done(out.what);
    }

    fn poll_deferred(&mut self, pool: usize) {
        let Some(real) = &self.pools[pool] else { return };
        assert_eq!(real.poll_deferred(), self.model.poll(pool), "poll_deferred");
    }

    fn shrink(&mut self, pool: usize, keep: usize) {
        let Some(real) = &self.pools[pool] else { return };
        assert_eq!(real.shrink(keep), self.model.shrink(pool, keep), "shrink");
        let at = real.inflight();
        // Fragments behind a page that stays are not checked.
        assert!(at.cache + at.lanes + at.ring <= keep as u64, "{at:?}, and {keep} were to be kept");
    }

    fn ask_to_shrink(&mut self, pool: usize, keep: usize) {
        let handle = self.handles[pool].clone();
        self.on(Who::OtherThread, move || handle.ask_to_shrink(keep));
        self.model.ask_to_shrink(pool, keep);
    }

    fn update_nid(&mut self, pool: usize, node: u8) {
        if !self.provider.has_node(NodeId(node)) {
            return;
        }
        let Some(real) = &self.pools[pool] else { return };
        real.update_nid(Some(NodeId(node))).expect("the node is there");
        self.model.update_nid(pool, node);
    }

    fn bind_elsewhere(&mut self, pool: usize) {
        let Some(real) = self.pools[pool].take() else { return };
        let (real, (send, receive)) = (real.unbind(), channel());
        self.on(Who::OtherThread, move || {
            let real = real.bind();
            drop(real.alloc_page());
            send.send(real.unbind()).expect("the list waits for its pool");
        });
        self.pools[pool] = Some(receive.recv().expect("it was just sent").bind());
        self.model.set_owner(pool, Some(Who::OtherThread));
        if let Some(token) = self.model.alloc_page(pool) {
            self.model.drop_page(pool, Who::OtherThread, token);
        }
        self.model.set_owner(pool, Some(Who::Main));
    }

    fn thread_ends(&mut self) {
        if let Some(other) = self.other.take() {
            other.end();
            self.model.thread_ends();
        }
    }

    fn destroy(&mut self, pool: usize) {
        let Some(real) = self.pools[pool].take() else { return };
        self.shutdowns[pool] = Some(real.destroy());
        self.model.destroy(pool);
    }
}

/// What a bulk returns together: plain pages of a pool, fragments of a pool, each other page alone.
fn groups(mut outs: Vec<Out<()>>) -> Vec<Vec<Out<()>>> {
    let mut groups = Vec::new();
    while let Some(first) = outs.first() {
        let (pool, frag, special) = (first.pool, first.frag, first.special);
        if special {
            groups.push(vec![outs.remove(0)]);
            continue;
        }
        let alike = |out: &Out<()>| out.pool == pool && out.frag == frag && !out.special;
        let (group, rest) = outs.into_iter().partition(alike);
        groups.push(group);
        outs = rest;
    }
    groups
}

fn tokens(run: &[Out<()>]) -> Vec<PageToken> {
    run.iter().map(|out| out.token).collect()
}

fn write_stamp(buffer: &mut PageBuf, stamp: u64) {
    if let Some(word) = buffer.bytes_mut().and_then(|bytes| bytes.first_chunk_mut()) {
        *word = stamp.to_le_bytes();
    }
}

/// Checks that the buffer's first word is still its stamp.
fn stamp_stands(out: &Out<PageBuf>) {
    assert!(has_stamp(out.what.bytes(), out.stamp), "{out:?} had two owners");
}

fn has_stamp(bytes: Option<&[u8]>, stamp: u64) -> bool {
    bytes.and_then(|bytes| bytes.first_chunk()).is_none_or(|word| *word == stamp.to_le_bytes())
}
