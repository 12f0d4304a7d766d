//! The deferred queues of the model.

use pagepool::OnBusy;

use super::{DeferredPage, PageToken, PoolsModel, Who};

impl PoolsModel {
    /// Queues a buffer, in use or not; returns whether there was room.
    pub fn defer(&mut self, pool: usize, token: PageToken, frag: bool, cookie: u64, busy: bool) -> bool {
        let p = &mut self.pools[pool];
        if p.queued.len() == self.setup.defer_capacity {
            p.deferred_stats.full += u64::from(self.setup.defer_capacity > 0);
            return false;
        }
        p.deferred_stats.queued += 1;
        p.queued.push_back(DeferredPage { token, frag, cookie });
        if busy {
            self.busy.insert(cookie);
        }
        true
    }

    /// Ends a user's use of a buffer.
    pub fn user_done(&mut self, cookie: u64) {
        self.busy.remove(&cookie);
    }

    /// `poll_deferred`: returns how many buffers were returned.
    pub fn poll(&mut self, pool: usize) -> usize {
        let home = self.poll_deferred(pool, usize::MAX);
        self.shrink_if_asked(pool);
        home
    }

    /// One poll of at most `most` buffers, by the owner. Returns how many buffers were returned.
    pub(super) fn poll_deferred(&mut self, pool: usize, most: usize) -> usize {
        let p = &mut self.pools[pool];
        if p.queued.is_empty() && p.released.is_empty() {
            return 0;
        }
        p.deferred_stats.polls += 1;
        let home = self.ask_in_order(pool, most);
        self.ask_released(pool, most);
        home
    }

    fn ask_in_order(&mut self, pool: usize, most: usize) -> usize {
        let who = self.pools[pool].owner.expect("it is being polled");
        let (mut home, mut past, mut released) = (0, 0, false);
        for _ in 0..most.min(self.pools[pool].queued.len()) {
            let p = &mut self.pools[pool];
            let asked = p.queued[past];
            if !self.busy.contains(&asked.cookie) {
                p.queued.remove(past);
                p.deferred_stats.reused += 1;
                home += 1;
                self.drop_buffer(pool, who, asked.token, asked.frag);
                continue;
            }
            match self.setup.on_busy {
                OnBusy::Skip { ahead } if past < ahead => {
                    p.deferred_stats.skipped += 1;
                    past += 1;
                }
                OnBusy::Release if !released && p.released.len() < self.setup.defer_capacity => {
                    p.deferred_stats.released += 1;
                    p.queued.pop_front();
                    p.released.push_back(asked);
                    released = true;
                    self.add_page_ref(pool, asked.token);
                    self.drop_buffer(pool, who, asked.token, asked.frag);
                }
                _ => {
                    p.deferred_stats.kept += 1;
                    break;
                }
            }
        }
        home
    }

    fn ask_released(&mut self, pool: usize, most: usize) {
        for _ in 0..most.min(self.pools[pool].released.len()) {
            let asked = self.pools[pool].released.pop_front().expect("the model has as many");
            if self.busy.contains(&asked.cookie) {
                self.pools[pool].released.push_back(asked);
            } else {
                self.pools[pool].deferred_stats.freed_late += 1;
                self.drop_page_ref(pool, asked.token);
            }
        }
    }

    /// The `Shutdown` of a pool polls its whole deferred queue.
    pub fn poll_ended(&mut self, pool: usize, who: Who) {
        if !self.pools[pool].ended {
            return;
        }
        for asked in std::mem::take(&mut self.pools[pool].queued) {
            if self.busy.contains(&asked.cookie) {
                self.pools[pool].queued.push_back(asked);
            } else {
                self.pools[pool].deferred_stats.reused += 1;
                self.drop_buffer(pool, who, asked.token, asked.frag);
            }
        }
        self.ask_released(pool, usize::MAX);
    }
}
