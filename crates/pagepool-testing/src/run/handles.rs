//! Operations on page references, shared buffers, parts and raw addresses, on both.

use std::sync::mpsc::channel;

use pagepool::DeviceAddr;

use super::{OpRun, Out, has_stamp, write_stamp};
use crate::model::Who;

impl OpRun {
    pub(super) fn page_ref(&mut self, at: u8) {
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

    pub(super) fn drop_page_ref(&mut self, at: u8) {
        let Some(out) = Self::pick(&mut self.page_refs, at) else { return };
        drop(out.what);
        self.model.drop_page_ref(out.pool, out.token);
    }

    pub(super) fn share(&mut self, at: u8) {
        let Some(out) = Self::pick(&mut self.buffers, at) else { return };
        let (buffer, out) = out.apart();
        if out.frag {
            self.model.share_frag(out.pool, out.token);
        }
        self.shared.push(out.with(buffer.into_shared()));
    }

    pub(super) fn try_unique(&mut self, at: u8) {
        let Some(out) = Self::pick(&mut self.shared, at) else { return };
        let (shared, mut out) = out.apart();
        let predicted = self.model.try_unique(out.pool, out.token, out.frag);
        match shared.try_unique() {
            Ok(buffer) => {
                assert!(predicted, "another holder can read it");
                out.special = !out.frag;
                self.buffers.push(out.with(buffer));
            }
            Err(shared) => {
                assert!(!predicted, "nobody else can read it");
                self.shared.push(out.with(shared));
            }
        }
    }

    pub(super) fn split_off(&mut self, at: u8, n: u8, who: Who) {
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

    pub(super) fn clone_shared(&mut self, at: u8) {
        if self.shared.is_empty() {
            return;
        }
        let out = &self.shared[at as usize % self.shared.len()];
        let clone = out.with(out.what.clone());
        self.model.clone_shared(out.pool, out.token);
        self.shared.push(clone);
    }

    pub(super) fn drop_shared(&mut self, at: u8, who: Who) {
        let Some(out) = Self::pick(&mut self.shared, at) else { return };
        assert!(has_stamp(out.what.bytes(), out.stamp), "{out:?} had two owners");
        let (shared, out) = out.apart();
        self.on(who, move || drop(shared));
        self.model.drop_shared(out.pool, who, out.token, out.frag);
    }

    pub(super) fn make_raw(&mut self, at: u8) {
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

    pub(super) fn bring_raw(&mut self, at: u8, within: u8) {
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

    pub(super) fn alloc_addrs(&mut self, pool: usize, n: usize) {
        let Some(real) = &self.pools[pool] else { return };
        let mut addrs = vec![DeviceAddr(0); n];
        let got = real.alloc_addr_bulk(&mut addrs).expect("the area is mapped");
        let predicted: Vec<_> = (0..n).map_while(|_| self.model.alloc_page(pool)).collect();
        assert_eq!(got, predicted.len(), "alloc_addr_bulk");
        for (&addr, token) in addrs.iter().zip(predicted) {
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

    pub(super) fn put_addrs(&mut self, at: u8, n: u8, who: Who) {
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

    pub(super) fn bring_wrong(&mut self, at: u8) {
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
}
