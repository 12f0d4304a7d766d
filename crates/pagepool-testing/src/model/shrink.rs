//! How a pool of the model returns idle pages.

use super::{ModelMessage, PageToken, PoolsModel};

impl PoolsModel {
    /// Releases idle pages until at most `keep` are left; returns how many it released.
    pub fn shrink(&mut self, pool: usize, keep: usize) -> usize {
        self.poll_deferred(pool, usize::MAX);
        self.give_idle_back(pool, keep)
    }

    /// Requests a shrink, which the owner does at its next refill or poll.
    pub fn ask_to_shrink(&mut self, pool: usize, keep: usize) {
        let asked = &mut self.pools[pool].asked;
        *asked = Some(asked.map_or(keep, |before| before.min(keep)));
    }

    pub(super) fn shrink_if_asked(&mut self, pool: usize) {
        if let Some(keep) = self.pools[pool].asked.take() {
            self.give_idle_back(pool, keep);
        }
    }

    fn give_idle_back(&mut self, pool: usize, keep: usize) -> usize {
        let at = self.inflight(pool);
        let mut idle = (at.cache + at.lanes + at.ring) as usize;
        let mut going = Vec::new();
        for lane in 0..self.setup.lanes {
            self.thin_out(pool, Some(lane), keep, &mut idle, &mut going);
        }
        while let Some(token) = self.pools[pool].overflow.pop() {
            let n = std::mem::take(&mut self.record(pool, token).overflowed);
            self.frags_of_idle(pool, (token, n), keep, &mut idle, &mut going);
        }
        self.thin_out(pool, None, keep, &mut idle, &mut going);
        if let Some(open) = self.pools[pool].open
            && self.record(pool, open.token).frags == 0
            && idle >= keep
        {
            self.pools[pool].open = None;
            if self.record(pool, open.token).refs > 0 {
                self.pools[pool].stats.recycle_released_refcnt += 1;
                self.leave(pool, open.token);
            } else {
                going.push(open.token);
            }
        }
        let surplus = idle.saturating_sub(keep).min(self.pools[pool].cache.len());
        going.extend(self.pools[pool].cache.drain(..surplus));
        let gone = going.len();
        going.into_iter().for_each(|token| self.leave(pool, token));
        gone
    }

    /// Removes pages from a lane or the ring while there are too many, and the fragments before them.
    fn thin_out(
        &mut self,
        pool: usize,
        lane: Option<usize>,
        keep: usize,
        idle: &mut usize,
        going: &mut Vec<PageToken>,
    ) {
        loop {
            let p = &mut self.pools[pool];
            let queue = lane.map_or(&mut p.ring, |at| &mut p.lanes[at].messages);
            match queue.front().copied() {
                Some(ModelMessage::Frags(token, n)) => {
                    queue.pop_front();
                    self.frags_of_idle(pool, (token, n), keep, idle, going);
                }
                Some(ModelMessage::Page(token)) if *idle > keep => {
                    queue.pop_front();
                    *idle -= 1;
                    going.push(token);
                }
                _ => return,
            }
        }
    }

    fn frags_of_idle(
        &mut self,
        pool: usize,
        (token, n): (PageToken, u32),
        keep: usize,
        idle: &mut usize,
        going: &mut Vec<PageToken>,
    ) {
        if !self.frag_counted(pool, token, n) {
            return;
        }
        if self.record(pool, token).refs > 0 {
            self.pools[pool].stats.recycle_released_refcnt += 1;
            return self.leave(pool, token);
        }
        let p = &mut self.pools[pool];
        p.stats.recycle_ring += 1;
        if *idle < keep && p.cache.len() < self.setup.cache {
            *idle += 1;
            p.cache.push(token);
        } else {
            going.push(token);
        }
    }
}
