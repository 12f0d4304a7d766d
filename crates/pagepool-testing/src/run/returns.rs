//! Operations that return buffers, on the real pool and on the model.

use pagepool::{Bound, PageBuf, Pool, put_bulk, put_ring_bulk};

use super::other_thread::OtherThread;
use super::{OpRun, Out, groups, has_stamp, stamp_stands, tokens};
use crate::model::Who;

impl OpRun {
    pub(super) fn pick<T>(from: &mut Vec<T>, at: u8) -> Option<T> {
        (!from.is_empty()).then(|| from.swap_remove(at as usize % from.len()))
    }

    pub(super) fn on(&mut self, who: Who, work: impl FnOnce() + Send + 'static) {
        match who {
            Who::Main => work(),
            Who::OtherThread => self.other.get_or_insert_with(OtherThread::start).run(work),
        }
    }

    pub(super) fn drop_buffer(&mut self, at: u8, who: Who) {
        let Some(out) = Self::pick(&mut self.buffers, at) else { return };
        stamp_stands(&out);
        let (buffer, out) = out.apart();
        self.on(who, move || drop(buffer));
        self.model.drop_buffer(out.pool, who, out.token, out.frag);
    }

    pub(super) fn drop_unbound(&mut self, at: u8) {
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

    pub(super) fn put_bulk(&mut self, at: u8, n: u8, who: Who) {
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

    pub(super) fn put_ring_bulk(&mut self, at: u8, n: u8) {
        let (mut buffers, outs) = self.pick_run(at, n);
        put_ring_bulk(&mut buffers);
        assert!(buffers.is_empty());
        for out in groups(outs).into_iter().flatten() {
            self.model.put_ring(out.pool, Who::Main, out.token, out.frag);
        }
    }

    pub(super) fn put_ring(&mut self, at: u8, who: Who) {
        let Some(out) = Self::pick(&mut self.buffers, at) else { return };
        stamp_stands(&out);
        let (buffer, out) = out.apart();
        self.on(who, move || buffer.put_ring());
        self.model.put_ring(out.pool, who, out.token, out.frag);
    }

    pub(super) fn recycle_direct(&mut self, at: u8) {
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

    pub(super) fn batch_pop(&mut self, at: u8) {
        let Some((pool, mut stamped, mut batch)) = Self::pick(&mut self.batches, at) else { return };
        let (what, (token, stamp)) = batch.pop().zip(stamped.pop()).expect("no empty batch is kept");
        assert_eq!(self.page_of[&token], what.page());
        self.buffers.push(Out { pool, token, what, frag: false, special: false, stamp });
        if !batch.is_empty() {
            self.batches.push((pool, stamped, batch));
        }
    }

    pub(super) fn drop_batch(&mut self, at: u8, who: Who) {
        let Some((pool, stamped, mut batch)) = Self::pick(&mut self.batches, at) else { return };
        for (at, (_, stamp)) in stamped.iter().enumerate() {
            assert!(has_stamp(batch.bytes_mut(at).as_deref(), *stamp), "a page had two owners");
        }
        self.on(who, move || drop(batch));
        let tokens: Vec<_> = stamped.into_iter().map(|(token, _)| token).collect();
        self.model.drop_run(pool, who, &tokens, false);
    }
}
