//! How a pool of the model cuts pages into fragments, and counts those that returned.

use super::{ModelMessage, OpenPage, PageToken, PoolsModel};

impl PoolsModel {
    /// Allocates a fragment of `size` bytes: page, offset, true size.
    pub fn alloc_frag(&mut self, pool: usize, size: usize) -> Option<(PageToken, usize, usize)> {
        let (token, offset) = self.cut(pool, size)?;
        Some((token, offset, size))
    }

    /// Allocates a whole page (offset 0, the page's size) or a fragment.
    pub fn alloc(&mut self, pool: usize, size: usize) -> Option<(PageToken, usize, usize)> {
        let page_size = self.page_size();
        if size > page_size {
            self.pools[pool].stats.alloc_failed += 1;
            return None;
        }
        if 2 * size > page_size {
            return self.alloc_page(pool).map(|token| (token, 0, page_size));
        }
        let (token, offset) = self.cut(pool, size)?;
        let open = self.pools[pool].open.as_mut().expect("a fragment was just cut");
        if open.offset + size <= page_size {
            return Some((token, offset, size));
        }
        open.offset = page_size;
        Some((token, offset, page_size - offset))
    }

    pub(super) fn cut(&mut self, pool: usize, size: usize) -> Option<(PageToken, usize)> {
        let page_size = self.page_size();
        if size == 0 || size > page_size {
            self.pools[pool].stats.alloc_failed += 1;
            return None;
        }
        let len = size.next_multiple_of(self.setup.frag_align);
        if self.pools[pool].open.is_none_or(|open| open.offset + len > page_size) {
            self.open_next(pool)?;
        }
        let open = self.pools[pool].open.as_mut().expect("just opened");
        let (token, offset) = (open.token, open.offset);
        open.offset += len;
        self.record(pool, token).frags += 1;
        Some((token, offset))
    }

    /// Closes the open page, and reopens it if all its fragments have returned; otherwise opens another.
    fn open_next(&mut self, pool: usize) -> Option<()> {
        self.take_in_leading_frags(pool);
        let closed = self.pools[pool].open.take().map(|open| open.token);
        let home = closed.filter(|&token| self.record(pool, token).frags == 0);
        let token = match home {
            Some(token) if self.record(pool, token).refs == 0 => {
                self.pools[pool].stats.recycle_cached += 1;
                self.pools[pool].stats.alloc_fast += 1;
                token
            }
            gone => {
                if let Some(token) = gone {
                    self.pools[pool].stats.recycle_released_refcnt += 1;
                    self.leave(pool, token);
                }
                self.alloc_page(pool)?
            }
        };
        self.pools[pool].open = Some(OpenPage { token, offset: 0 });
        Some(())
    }

    fn take_in_leading_frags(&mut self, pool: usize) {
        if !self.pools[pool].lanes.iter().any(|lane| lane.listed) {
            return; // lanes that were busy at the last cut stay so
        }
        let turn = self.turn_of_an_idle_lane(pool);
        for at in 0..self.setup.lanes {
            let lane = &mut self.pools[pool].lanes[at];
            let looked_at = lane.listed && (lane.busy || turn == Some(at));
            lane.busy = false;
            if !looked_at {
                continue;
            }
            while let Some(&ModelMessage::Frags(token, n)) = self.pools[pool].lanes[at].messages.front() {
                self.pools[pool].lanes[at].messages.pop_front();
                self.pools[pool].lanes[at].busy = true;
                self.frags_here(pool, token, n, true);
            }
            self.pools[pool].lanes[at].unlist_if_over();
        }
    }

    /// A cut checks one of the lanes that had no fragment at the last cut.
    fn turn_of_an_idle_lane(&mut self, pool: usize) -> Option<usize> {
        let (lanes, p) = (self.setup.lanes, &mut self.pools[pool]);
        if p.lanes.iter().filter(|lane| lane.listed).count() == 1 {
            return p.lanes.iter().position(|lane| lane.listed); // only one lane is listed: no turn passes
        }
        let mut turns = (p.next_to_cut..p.next_to_cut + lanes).map(|at| at % lanes);
        let turn = turns.find(|&at| p.lanes[at].listed && !p.lanes[at].busy)?;
        p.next_to_cut = turn + 1;
        Some(turn)
    }

    /// Counts returned fragments; true if the page is now complete.
    pub(super) fn frag_counted(&mut self, pool: usize, token: PageToken, n: u32) -> bool {
        let open = self.pools[pool].open.is_some_and(|open| open.token == token);
        let record = self.record(pool, token);
        record.frags -= n;
        record.frags == 0 && !open
    }

    /// Handles fragments that returned as messages; returns their page if it is now complete and off-node.
    pub(super) fn frag_home(&mut self, pool: usize, token: PageToken, n: u32) -> Option<PageToken> {
        if !self.frag_counted(pool, token, n) {
            return None;
        }
        if self.record(pool, token).refs > 0 {
            self.pools[pool].stats.recycle_released_refcnt += 1;
            self.leave(pool, token);
            return None;
        }
        let p = &mut self.pools[pool];
        if p.off_node || p.cache.len() < self.setup.cache {
            p.stats.recycle_ring += 1;
            if p.off_node {
                return Some(token);
            }
            p.cache.push(token);
        } else {
            self.ring_or_out(pool, token);
        }
        None
    }

    pub(super) fn frag_here(&mut self, pool: usize, token: PageToken, to_ring: bool) {
        self.frags_here(pool, token, 1, to_ring);
    }

    fn frags_here(&mut self, pool: usize, token: PageToken, n: u32, to_ring: bool) {
        if !self.frag_counted(pool, token, n) {
            return;
        }
        if self.record(pool, token).refs > 0 {
            self.pools[pool].stats.recycle_released_refcnt += 1;
            return self.leave(pool, token);
        }
        if to_ring { self.ring_or_out(pool, token) } else { self.cache_or_ring(pool, token) }
    }

    pub(super) fn frags_without_lane(&mut self, pool: usize, token: PageToken, n: u32) {
        if self.pools[pool].ended {
            return (0..n).for_each(|_| self.frag_late(pool, token));
        }
        if self.pools[pool].ring.len() < self.setup.ring {
            return self.pools[pool].ring.push_back(ModelMessage::Frags(token, n));
        }
        let record = self.record(pool, token);
        record.overflowed += n;
        if record.overflowed == n {
            self.pools[pool].overflow.push(token);
        }
    }

    pub(super) fn frag_late(&mut self, pool: usize, token: PageToken) {
        if self.frag_counted(pool, token, 1) {
            self.leave(pool, token);
        }
    }
}
