//! Runs operations on two real pools and on the model, and compares them after each.
//!
//! Everything is deterministic: the other thread does one thing at a time, and this one waits for it. Every
//! buffer gets a unique stamp when it is handed out, which is checked before it returns. A page or fragment
//! with two owners shows.

use std::collections::{HashMap, HashSet};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use pagepool::{
    Batch, Bound, DeferredUser, DeviceAddr, DmaDomain, IdentityDomain, InUse, NodeId, PageBuf, PageIdx,
    PageRef, Pool, PoolParams, PoolRef, Provider, RawBuf, SharedBuf, Shutdown, put_bulk, put_ring_bulk,
};

use crate::model::{PageToken, PoolsModel, Who};
use crate::op::{Op, Setup};

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
            model: PoolsModel::new(setup),
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
            Op::AllocFrags(which, size) => self.alloc_frags(which, size),
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
            let (seen, told) = (self.handles[pool].inflight(), self.model.inflight(pool));
            assert_eq!(seen, told, "where the pages of pool {pool} are {when}");
            if let Some(holders) = self.handles[pool].holders() {
                let held = told.out + told.frag + told.deferred;
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

    // ---- Hand-outs ------------------------------------------------------------------------------

    /// Ties a token to its page, and checks that they agree.
    fn is_page(&mut self, token: PageToken, page: PageIdx) {
        for token in self.model.take_gone() {
            if let Some(page) = self.page_of.remove(&token) {
                self.token_at.remove(&page);
            }
        }
        let known = *self.page_of.entry(token).or_insert(page);
        assert_eq!(known, page, "token {token} is another page");
        let owner = *self.token_at.entry(page).or_insert(token);
        assert_eq!(owner, token, "page {page:?} has two owners");
    }

    fn handed_out(&mut self, pool: usize, token: PageToken, mut buffer: PageBuf) {
        self.is_page(token, buffer.page());
        self.stamps += 1;
        let stamp = self.stamps;
        write_stamp(&mut buffer, stamp);
        let (frag, special) = (buffer.is_frag(), false);
        self.buffers.push(Out { pool, token, what: buffer, frag, special, stamp });
    }

    fn alloc_page(&mut self, pool: usize) {
        let Some(real) = &self.pools[pool] else { return };
        let (seen, told) = (real.alloc_page(), self.model.alloc_page(pool));
        assert_eq!(seen.is_some(), told.is_some(), "alloc_page");
        if let Some((buffer, token)) = seen.zip(told) {
            assert_eq!((buffer.offset(), buffer.len()), (0, self.model.page_size()));
            self.handed_out(pool, token, buffer);
        }
    }

    fn alloc_bulk(&mut self, pool: usize, n: usize) {
        let Some(real) = &self.pools[pool] else { return };
        let mut buffers = Vec::with_capacity(n);
        let got = real.alloc_bulk(&mut buffers, n);
        let told = self.model.alloc_bulk(pool, n);
        assert_eq!((got, buffers.len()), (told.len(), told.len()), "alloc_bulk");
        for (buffer, token) in buffers.into_iter().zip(told) {
            self.handed_out(pool, token, buffer);
        }
    }

    fn alloc_batch(&mut self, pool: usize, n: usize) {
        let Some(real) = &self.pools[pool] else { return };
        let mut batch = real.alloc_batch(n);
        let told = self.model.alloc_bulk(pool, n);
        assert_eq!(batch.len(), told.len(), "alloc_batch");
        let mut stamped = Vec::new();
        for (at, token) in told.into_iter().enumerate() {
            self.is_page(token, batch.page(at).expect("within its length"));
            self.stamps += 1;
            if let Some(word) = batch.bytes_mut(at).and_then(|bytes| bytes.first_chunk_mut()) {
                *word = self.stamps.to_le_bytes();
            }
            stamped.push((token, self.stamps));
        }
        if !batch.is_empty() {
            self.batches.push((pool, stamped, batch));
        }
    }

    /// Upper half: fourteenths of a page, so that some sizes are 0 and some exceed a page; lower half: odd
    /// bytes.
    fn size(&self, size: u8) -> usize {
        (size as usize >> 4) * (self.model.page_size() / 14) + (size as usize & 15) * 7
    }

    fn alloc_frag(&mut self, pool: usize, size: u8) {
        let size = self.size(size);
        let Some(real) = &self.pools[pool] else { return };
        let (seen, told) = (real.alloc_frag(size), self.model.alloc_frag(pool, size));
        self.frag_or_page(pool, seen, told);
    }

    fn alloc_frags(&mut self, which: u8, amount: u8) {
        let (pool, size, n) = (which as usize & 1, self.size(amount), 1 + amount as usize % 7);
        let Some(real) = &self.pools[pool] else { return };
        let mut buffers = Vec::with_capacity(n);
        if which & 2 == 0 {
            real.alloc_frag_bulk(&mut buffers, size, n);
        } else {
            while let Some(run) = (buffers.len() < n).then(|| real.alloc_frag_run(size, n - buffers.len())) {
                let Some(run) = run else { break };
                buffers.extend(run);
            }
        }
        let mut buffers = buffers.into_iter();
        for _ in 0..n {
            let (seen, told) = (buffers.next(), self.model.alloc_frag(pool, size));
            let failed = told.is_none();
            self.frag_or_page(pool, seen, told);
            if failed {
                break;
            }
        }
    }

    fn alloc(&mut self, pool: usize, size: u8) {
        let size = self.size(size);
        if size == 0 {
            return self.alloc_frag(pool, 0);
        }
        let Some(real) = &self.pools[pool] else { return };
        let (seen, told) = (real.alloc(size), self.model.alloc(pool, size));
        self.frag_or_page(pool, seen, told);
    }

    fn frag_or_page(&mut self, pool: usize, seen: Option<PageBuf>, told: Option<(PageToken, usize, usize)>) {
        let shape = seen.as_ref().map(|buffer| (buffer.offset(), buffer.len()));
        assert_eq!(shape, told.map(|(_, offset, len)| (offset, len)), "offset and true size");
        if let Some((buffer, (token, ..))) = seen.zip(told) {
            self.handed_out(pool, token, buffer);
        }
    }

    // ---- Returns ----------------------------------------------------------------------------

    fn pick<T>(from: &mut Vec<T>, at: u8) -> Option<T> {
        (!from.is_empty()).then(|| from.swap_remove(at as usize % from.len()))
    }

    fn on(&mut self, who: Who, work: impl FnOnce() + Send + 'static) {
        match who {
            Who::Main => work(),
            Who::OtherThread => self.other.get_or_insert_with(OtherThread::start).run(work),
        }
    }

    fn drop_buffer(&mut self, at: u8, who: Who) {
        let Some(out) = Self::pick(&mut self.buffers, at) else { return };
        stamp_stands(&out);
        let (buffer, out) = out.apart();
        self.on(who, move || drop(buffer));
        self.model.drop_buffer(out.pool, who, out.token, out.frag);
    }

    fn drop_unbound(&mut self, at: u8) {
        let Some(pool) = self.buffers.get(at as usize % self.buffers.len().max(1)).map(|out| out.pool) else {
            return;
        };
        let unbound = self.pools[pool].take().map(Bound::unbind);
        self.model.set_owner(pool, None);
        self.drop_buffer(at, Who::Main);
        self.model.set_owner(pool, unbound.is_some().then_some(Who::Main));
        self.pools[pool] = unbound.map(Pool::bind);
    }

    fn pick_run(&mut self, at: u8, n: u8) -> (Vec<PageBuf>, Vec<Out<()>>) {
        let from = at as usize % (self.buffers.len() + 1);
        let to = (from + (n as usize & 31)).min(self.buffers.len());
        self.buffers.drain(from..to).inspect(stamp_stands).map(Out::apart).unzip()
    }

    fn put_bulk(&mut self, at: u8, n: u8, who: Who) {
        let (mut buffers, outs) = self.pick_run(at, n);
        self.on(who, move || put_bulk(&mut buffers));
        for group in groups(outs) {
            let (pool, tokens) = (group[0].pool, tokens(&group));
            match group[0] {
                Out { frag: false, special: true, .. } => self.model.drop_page(pool, who, tokens[0]),
                Out { frag, .. } => self.model.drop_run(pool, who, &tokens, frag),
            }
        }
    }

    fn put_ring_bulk(&mut self, at: u8, n: u8) {
        let (mut buffers, outs) = self.pick_run(at, n);
        put_ring_bulk(&mut buffers);
        assert!(buffers.is_empty());
        for out in groups(outs).into_iter().flatten() {
            self.model.put_ring(out.pool, Who::Main, out.token, out.frag);
        }
    }

    fn put_ring(&mut self, at: u8, who: Who) {
        let Some(out) = Self::pick(&mut self.buffers, at) else { return };
        stamp_stands(&out);
        let (buffer, out) = out.apart();
        self.on(who, move || buffer.put_ring());
        self.model.put_ring(out.pool, who, out.token, out.frag);
    }

    fn recycle_direct(&mut self, at: u8) {
        let Some(out) = Self::pick(&mut self.buffers, at) else { return };
        stamp_stands(&out);
        let (mut buffer, out) = out.apart();
        if let Some(stranger) = &self.pools[1 - out.pool] {
            buffer = stranger.recycle_direct(buffer).expect_err("the other pool's");
        }
        match &self.pools[out.pool] {
            Some(own) => own.recycle_direct(buffer).expect("its own"),
            None => drop(buffer),
        }
        self.model.drop_buffer(out.pool, Who::Main, out.token, out.frag);
    }

    fn batch_pop(&mut self, at: u8) {
        let Some((pool, mut stamped, mut batch)) = Self::pick(&mut self.batches, at) else { return };
        let (what, (token, stamp)) = batch.pop().zip(stamped.pop()).expect("no empty batch is kept");
        assert_eq!(self.page_of[&token], what.page());
        self.buffers.push(Out { pool, token, what, frag: false, special: false, stamp });
        if !batch.is_empty() {
            self.batches.push((pool, stamped, batch));
        }
    }

    fn drop_batch(&mut self, at: u8, who: Who) {
        let Some((pool, stamped, mut batch)) = Self::pick(&mut self.batches, at) else { return };
        for (at, (_, stamp)) in stamped.iter().enumerate() {
            assert!(has_stamp(batch.bytes_mut(at).as_deref(), *stamp), "a page had two owners");
        }
        self.on(who, move || drop(batch));
        let tokens: Vec<_> = stamped.into_iter().map(|(token, _)| token).collect();
        self.model.drop_run(pool, who, &tokens, false);
    }

    // ---- Page references, shared, raw --------------------------------------------------------------------

    fn page_ref(&mut self, at: u8) {
        if self.buffers.is_empty() {
            return;
        }
        let at = at as usize % self.buffers.len();
        let out = &mut self.buffers[at];
        out.special = !out.frag;
        let page_ref = out.what.page_ref();
        self.model.add_page_ref(out.pool, out.token);
        self.page_refs.push(self.buffers[at].with(page_ref));
    }

    fn drop_page_ref(&mut self, at: u8) {
        let Some(out) = Self::pick(&mut self.page_refs, at) else { return };
        drop(out.what);
        self.model.drop_page_ref(out.pool, out.token);
    }

    fn share(&mut self, at: u8) {
        let Some(out) = Self::pick(&mut self.buffers, at) else { return };
        let (buffer, out) = out.apart();
        if out.frag {
            self.model.share_frag(out.pool, out.token);
        }
        self.shared.push(out.with(buffer.into_shared()));
    }

    fn try_unique(&mut self, at: u8) {
        let Some(out) = Self::pick(&mut self.shared, at) else { return };
        let (shared, mut out) = out.apart();
        let told = self.model.try_unique(out.pool, out.token, out.frag);
        match shared.try_unique() {
            Ok(buffer) => {
                assert!(told, "another holder can read it");
                out.special = !out.frag;
                self.buffers.push(out.with(buffer));
            }
            Err(shared) => {
                assert!(!told, "nobody else can read it");
                self.shared.push(out.with(shared));
            }
        }
    }

    fn split_off(&mut self, at: u8, n: u8, who: Who) {
        let Some(mut out) = Self::pick(&mut self.buffers, at) else { return };
        let (start, len) = (out.what.offset(), out.what.len());
        let at = len * n as usize / 200;
        let (done, rest) = channel();
        let (mut buffer, apart) = out.apart();
        self.on(who, move || {
            let rest = buffer.split_off(at);
            done.send((buffer, rest)).expect("the list waits for it");
        });
        let (buffer, rest) = rest.recv().expect("it was just sent");
        out = apart.with(buffer);
        let Ok(rest) = rest else {
            let whole_steps = self.model.page_size() < 4 << 20 || at.is_multiple_of(2);
            assert!(at == 0 || at >= len || !whole_steps, "{len} bytes were not split at {at}");
            return self.buffers.push(out);
        };
        assert_eq!((out.what.offset(), out.what.len(), out.what.is_frag()), (start, at, true));
        assert_eq!((rest.offset(), rest.len(), rest.is_frag()), (start + at, len - at, true));
        self.model.split(out.pool, out.token, out.frag);
        self.split_lines[out.pool] |= !(start + at).is_multiple_of(64);
        (out.frag, out.special) = (true, false);
        let (pool, token) = (out.pool, out.token);
        self.buffers.push(out);
        self.handed_out(pool, token, rest);
    }

    fn clone_shared(&mut self, at: u8) {
        if self.shared.is_empty() {
            return;
        }
        let out = &self.shared[at as usize % self.shared.len()];
        let clone = out.with(out.what.clone());
        self.model.clone_shared(out.pool, out.token);
        self.shared.push(clone);
    }

    fn drop_shared(&mut self, at: u8, who: Who) {
        let Some(out) = Self::pick(&mut self.shared, at) else { return };
        assert!(has_stamp(out.what.bytes(), out.stamp), "{out:?} had two owners");
        let (shared, out) = out.apart();
        self.on(who, move || drop(shared));
        self.model.drop_shared(out.pool, who, out.token, out.frag);
    }

    fn make_raw(&mut self, at: u8) {
        let Some(out) = Self::pick(&mut self.buffers, at) else { return };
        let (buffer, out) = out.apart();
        let (start, len) = (buffer.dma_addr(), buffer.len());
        let small = buffer.is_frag() && self.shares_a_line(out.pool, buffer.offset(), len);
        match buffer.into_raw() {
            Ok(raw) => {
                assert!(!small, "a fragment that shares a line has no raw form");
                assert_eq!((Some(raw.addr), raw.len as usize), (start, len));
                self.raws.push(out.with(raw));
            }
            Err(buffer) => {
                assert!(small, "the area is mapped");
                self.buffers.push(out.with(buffer));
            }
        }
    }

    /// Whether another fragment may lie in a fragment's first or last line.
    fn shares_a_line(&self, pool: usize, offset: usize, len: usize) -> bool {
        let ends_within = self.split_lines[pool] && !(offset + len).is_multiple_of(64);
        self.model.frag_align() < 64 || !offset.is_multiple_of(64) || ends_within
    }

    fn bring_raw(&mut self, at: u8, within: u8) {
        let Some(out) = Self::pick(&mut self.raws, at) else { return };
        let (raw, mut out) = out.apart();
        let inside = DeviceAddr(raw.addr.0 + u64::from(raw.len) * u64::from(within & 15) / 16);
        let mut buffer = self.handles[out.pool].from_raw(inside).expect("it is out in raw form");
        let len = if out.frag { (raw.len as usize).next_multiple_of(64) } else { raw.len as usize };
        assert_eq!((buffer.dma_addr(), buffer.len()), (Some(raw.addr), len));
        let again = self.handles[out.pool].from_raw(raw.addr);
        assert!(again.is_err(), "an address was taken twice");
        out.special = !out.frag && self.model.has_page_ref(out.pool, out.token);
        if raw.len < 8 {
            write_stamp(&mut buffer, out.stamp); // it was too short for a stamp, and has whole lines now
        }
        self.buffers.push(out.with(buffer));
    }

    fn alloc_addrs(&mut self, pool: usize, n: usize) {
        let Some(real) = &self.pools[pool] else { return };
        let mut addrs = vec![DeviceAddr(0); n];
        let got = real.alloc_addr_bulk(&mut addrs).expect("the area is mapped");
        let told: Vec<_> = (0..n).map_while(|_| self.model.alloc_page(pool)).collect();
        assert_eq!(got, told.len(), "alloc_addr_bulk");
        for (&addr, token) in addrs.iter().zip(told) {
            let mut buffer = self.handles[pool].from_raw(addr).expect("it is out in raw form");
            self.is_page(token, buffer.page());
            self.stamps += 1;
            let (stamp, frag, special) = (self.stamps, false, false);
            write_stamp(&mut buffer, stamp);
            let what = buffer.into_raw().expect("the area is mapped");
            assert_eq!(what.addr, addr);
            self.raws.push(Out { pool, token, what, frag, special, stamp });
        }
    }

    fn put_addrs(&mut self, at: u8, n: u8, who: Who) {
        let from = at as usize % (self.raws.len() + 1);
        let to = (from + (n as usize & 15)).min(self.raws.len());
        let outs: Vec<_> = self.raws.drain(from..to).collect();
        for pool in 0..2 {
            let addrs: Vec<_> = outs.iter().filter(|out| out.pool == pool).map(|out| out.what.addr).collect();
            let handle = self.handles[pool].clone();
            self.on(who, move || handle.put_addr_bulk(&addrs).expect("they are out in raw form"));
            let ours = || outs.iter().filter(|out| out.pool == pool);
            let plain: Vec<_> = ours().filter(|out| !out.frag && !out.special).map(|out| out.token).collect();
            if !plain.is_empty() {
                self.model.drop_run(pool, who, &plain, false);
            }
            for out in ours().filter(|out| out.frag || out.special) {
                self.model.drop_buffer(pool, who, out.token, out.frag);
            }
        }
    }

    fn bring_wrong(&mut self, at: u8) {
        let outside = self.provider.area().base().map_or(1, |base| base as u64 - 1);
        for handle in &self.handles {
            assert!(handle.from_raw(DeviceAddr(outside)).is_err(), "nobody's address was taken");
        }
        if self.raws.is_empty() {
            return;
        }
        let out = &self.raws[at as usize % self.raws.len()];
        assert!(
            self.handles[1 - out.pool].from_raw(out.what.addr).is_err(),
            "another pool's address was taken"
        );
    }

    // ---- Deferred -------------------------------------------------------------------------------

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
        let told = self.model.defer(out.pool, out.token, out.frag, cookie, busy);
        assert_eq!(queued.is_ok(), told, "defer");
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

    // ---- The pools themselves -------------------------------------------------------------------

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

type OtherWork = Box<dyn FnOnce() + Send>;

/// The other thread: does its work one thing at a time.
#[derive(Debug)]
struct OtherThread {
    work: Sender<(OtherWork, Sender<()>)>,
    thread: JoinHandle<()>,
}

impl OtherThread {
    fn start() -> Self {
        let (work, inbox) = channel::<(OtherWork, Sender<()>)>();
        let thread = std::thread::spawn(move || {
            for (work, done) in inbox {
                work();
                done.send(()).expect("the list waits for it");
            }
        });
        Self { work, thread }
    }

    /// Runs work, and waits until it is done.
    fn run(&mut self, work: impl FnOnce() + Send + 'static) {
        let (done, wait) = channel();
        self.work.send((Box::new(work), done)).expect("the other thread lives");
        wait.recv().expect("the other thread did not panic");
    }

    fn end(self) {
        drop(self.work);
        self.thread.join().expect("the other thread did not panic");
    }
}
