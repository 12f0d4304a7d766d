//! Where the pages and fragments of the model go when they return.

use super::{ModelMessage, PageToken, PoolsModel, RETRY, Who};

impl PoolsModel {
    /// Drops a buffer: a fragment, or a whole page.
    pub fn drop_buffer(&mut self, pool: usize, who: Who, token: PageToken, frag: bool) {
        if frag { self.drop_frag(pool, who, token) } else { self.drop_page(pool, who, token) }
    }

    fn drop_frag(&mut self, pool: usize, who: Who, token: PageToken) {
        if self.pools[pool].owner == Some(who) {
            return self.frag_here(pool, token, false);
        }
        match self.lane_with_room(pool, who) {
            Some(_) if self.pools[pool].ended => self.frag_late(pool, token),
            Some(lane) => self.pools[pool].lanes[lane].messages.push_back(ModelMessage::Frags(token, 1)),
            None => self.frags_without_lane(pool, token, 1),
        }
    }

    /// Drops a whole page, or returns it through the ring.
    pub fn drop_page(&mut self, pool: usize, who: Who, token: PageToken) {
        if self.record(pool, token).refs > 0 {
            self.pools[pool].stats.recycle_released_refcnt += 1;
            return self.leave(pool, token);
        }
        if self.pools[pool].owner == Some(who) {
            return self.cache_or_ring(pool, token);
        }
        match self.lane_with_room(pool, who) {
            Some(lane) => self.push_lane(pool, lane, token),
            None => self.ring_or_out(pool, token),
        }
    }

    /// Drops fragments, or whole pages without a `PageRef`, together.
    pub fn drop_run(&mut self, pool: usize, who: Who, tokens: &[PageToken], frags: bool) {
        if self.pools[pool].owner == Some(who) {
            return tokens.iter().for_each(|&token| match frags {
                true => self.frag_here(pool, token, false),
                false => self.cache_or_ring(pool, token),
            });
        }
        // One lookup of the lane for all. A return to an ended pool empties the lane only afterwards.
        let lane = self.lane_of(pool, who);
        if frags && self.pools[pool].ended {
            return tokens.iter().for_each(|&token| self.frag_late(pool, token));
        }
        let room = lane.map_or(0, |at| self.setup.lane - self.pools[pool].lanes[at].messages.len());
        if frags {
            let messages = self.messages_of(tokens);
            let (fit, rest) = messages.split_at(room.min(messages.len()));
            for &(token, n) in fit {
                let lane = lane.expect("it has room");
                self.pools[pool].lanes[lane].messages.push_back(ModelMessage::Frags(token, n));
            }
            return rest.iter().for_each(|&(token, n)| self.frags_without_lane(pool, token, n));
        }
        let (fit, rest) = tokens.split_at(room.min(tokens.len()));
        fit.iter().for_each(|&token| self.push_lane(pool, lane.expect("it has room"), token));
        rest.iter().for_each(|&token| self.ring_or_out(pool, token));
    }

    /// Consecutive fragments of one page share a message, up to the page's number of base pages.
    fn messages_of(&self, frags: &[PageToken]) -> Vec<(PageToken, u32)> {
        let of_one_page = frags.chunk_by(|one, next| one == next);
        let messages = of_one_page.flat_map(|run| run.chunks(1 << self.setup.order));
        messages.map(|run| (run[0], run.len() as u32)).collect()
    }

    /// `put_ring` of a fragment or a whole page.
    pub fn put_ring(&mut self, pool: usize, who: Who, token: PageToken, frag: bool) {
        match (frag, self.pools[pool].owner == Some(who)) {
            (true, true) => self.frag_here(pool, token, true),
            (true, false) => self.frags_without_lane(pool, token, 1),
            (false, _) if self.record(pool, token).refs > 0 => self.drop_page(pool, who, token),
            (false, _) => self.ring_or_out(pool, token),
        }
    }

    pub(super) fn cache_or_ring(&mut self, pool: usize, token: PageToken) {
        let p = &mut self.pools[pool];
        if p.cache.len() < self.setup.cache {
            p.cache.push(token);
            p.stats.recycle_cached += 1;
        } else {
            p.stats.recycle_cache_full += 1;
            self.ring_or_out(pool, token);
        }
    }

    /// Puts a page into a lane with room. In an ended pool the thread that returned it takes it out again.
    fn push_lane(&mut self, pool: usize, lane: usize, token: PageToken) {
        self.pools[pool].stats.recycle_ring += 1;
        if self.pools[pool].ended {
            return self.leave(pool, token);
        }
        self.pools[pool].lanes[lane].messages.push_back(ModelMessage::Page(token));
    }

    /// Puts a page into the ring, or out of the pool.
    pub fn ring_or_out(&mut self, pool: usize, token: PageToken) {
        let p = &mut self.pools[pool];
        if !p.ended && p.ring.len() < self.setup.ring {
            p.stats.recycle_ring += 1;
            return p.ring.push_back(ModelMessage::Page(token));
        }
        let counter = if p.ended { &mut p.stats.recycle_ring } else { &mut p.stats.recycle_ring_full };
        *counter += 1;
        self.leave(pool, token);
    }

    fn lane_with_room(&mut self, pool: usize, who: Who) -> Option<usize> {
        let lane = self.lane_of(pool, who)?;
        (self.pools[pool].lanes[lane].messages.len() < self.setup.lane).then_some(lane)
    }

    fn lane_of(&mut self, pool: usize, who: Who) -> Option<usize> {
        let p = &mut self.pools[pool];
        let thread_lane = &mut p.thread_lanes[who as usize];
        if thread_lane.lane.is_some() {
            return thread_lane.lane;
        }
        if thread_lane.wait > 0 {
            thread_lane.wait -= 1;
            return None;
        }
        thread_lane.lane = p.lanes.iter().position(|lane| !lane.claimed);
        match thread_lane.lane {
            Some(at) => {
                p.lanes[at].claimed = true;
                p.lanes[at].listed = true;
            }
            None => thread_lane.wait = RETRY,
        }
        thread_lane.lane
    }

    /// Removes a page from its pool: to the provider, or to the holders of its `PageRef`s.
    pub(super) fn leave(&mut self, pool: usize, token: PageToken) {
        self.pools[pool].stats.release += 1;
        let record = self.pools[pool].records.remove(&token).expect("the page is in this pool");
        if record.refs > 0 {
            self.referenced.insert(token, record.refs);
        } else {
            self.give_back(token);
        }
    }

    pub(super) fn give_back(&mut self, token: PageToken) {
        self.free += 1;
        self.gone.push(token);
    }
}
