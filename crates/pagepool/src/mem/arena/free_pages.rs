//! Free pages of a provider: hot stacks over a buddy allocator, under one short lock.
//!
//! What   a stack of page numbers per node and order, last in, first out, so bulk requests are one copy;
//!        below them [`Buddy`]. A request that neither serves may pour the node's stacks into the buddy, so
//!        idle pages of one order can become pages of another.
//! Pour   empties stacks into the buddy, which coalesces pages. Moving a page there and back costs ten times
//!        as much as taking one. So a pour that served no request is remembered ([`Vain`]). Requests that
//!        another pour would not serve either are refused without moving anything, while no page returns and
//!        for some time after.
//! Who    any thread. The lock is never held during a callback or a page fault.
//! I1     a page is in a stack, in the buddy, or out. With debug assertions a byte per page records which
//!        are out, and returning a page twice panics.
//! Cost   `take` and `give` of n pages: one lock, one copy of 4 n bytes, no allocation. At most 13 bytes per
//!        4 KiB.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::error::Error;
use crate::mem::area::Area;
use crate::mem::arena::buddy::Buddy;
use crate::mem::page::{MAX_ORDER, NodeId, PageIdx};
use crate::sys::sync::Lock;

const ORDERS: usize = MAX_ORDER as usize + 1;

/// The most order-0 pages in a hot stack; half as many for each further order.
const HOT_PAGES: usize = 1024;
/// The least capacity of a stack.
const HOT_LEAST: usize = 4;
/// log2 of the most pieces that a refill cuts from a block.
const REFILL_SHIFT: u8 = 6;

/// Entries that a request may always pour.
const POUR_AT_ONCE: u64 = 8;
/// Returned pages that pay for pouring one entry, if no request is refused.
const RETURNS_PER_ENTRY: u64 = 64;

/// The free pages of one area.
pub(crate) struct FreePages {
    state: Lock<FreeState>,
}

struct FreeState {
    /// At `list * ORDERS + order`.
    hot: Box<[HotStack]>,
    buddy: Buddy,
    /// Per list, its last pour, if that served no request.
    vain: Box<[Vain]>,
    /// Base pages that ever became free, and that ever ceased to be; the difference is in stacks and buddy.
    came: u64,
    went: u64,
    /// Base pages in present regions.
    present: u64,
    /// Per base page, its order plus one while it is out.
    #[cfg(debug_assertions)]
    out: crate::sys::table::Table<u8>,
}

struct HotStack {
    slots: Box<[PageIdx]>,
    len: usize,
}

impl HotStack {
    fn new(pages: usize, order: usize) -> Self {
        // A small area keeps half of its pages in the buddy, where they can become pages of other orders.
        let most = (HOT_PAGES >> order).max(HOT_LEAST).min((pages >> order) / 2).max(1);
        Self { slots: vec![PageIdx(0); most].into(), len: 0 }
    }

    fn room(&self) -> usize {
        self.slots.len() - self.len
    }

    /// Fills `out` from the top of the stack; returns how many.
    #[inline]
    fn pop(&mut self, out: &mut [PageIdx]) -> usize {
        let n = self.len.min(out.len());
        // Copies the top n entries in stack order: one copy, which includes the page freed last.
        self.len -= n;
        copy(&mut out[..n], &self.slots[self.len..self.len + n]);
        n
    }

    /// Pushes all `pages`; the caller made room.
    #[inline]
    fn push(&mut self, pages: &[PageIdx]) {
        copy(&mut self.slots[self.len..self.len + pages.len()], pages);
        self.len += pages.len();
    }
}

/// Copies equally long slices. A single entry, as a `PageRef` returns it, needs no call.
#[inline(always)]
fn copy(to: &mut [PageIdx], from: &[PageIdx]) {
    match (to, from) {
        ([to], [from]) => *to = *from,
        (to, from) => to.copy_from_slice(from),
    }
}

/// A pour that served no request, and what happened since.
///
/// A request that only merging pages of the stacks could serve:
/// * is refused, and moves nothing, while no page has returned since the pour.
/// * pours at once if more pages are free, by a block's worth, than at any failed pour since the last
///   successful one; if at most [`POUR_AT_ONCE`] entries must move; if the caller is
///   [thorough](Search::Thorough); or if a pool waits for pages of this area.
/// * else pays first: each refusal, and each [`RETURNS_PER_ENTRY`] returned pages, pay for one entry. So it
///   is refused at most as often as the stacks have entries (about 2,000), and moving costs a request or a
///   return no more than that.
#[derive(Clone)]
struct Vain {
    /// It made no block of this order or above; more than [`MAX_ORDER`]: no such pour.
    order: u8,
    /// The list's most free base pages at any failed pour since a successful one.
    free: u64,
    /// [`FreeState::came`] at the pour.
    came: u64,
    /// Requests refused since, although pages had returned.
    refused: u64,
}

impl Vain {
    const NONE: Self = Self { order: MAX_ORDER + 1, free: 0, came: 0, refused: 0 };
}

/// How hard a request looks for pages that must be merged first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Search {
    /// Limited by [`Vain`].
    Usual,
    /// Until no free page can serve: for callers whose refusal costs more than a pour.
    Thorough,
}

/// Two counts only: stacks and buddy have an entry per page.
impl fmt::Debug for FreePages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock();
        let (free, present) = (state.free(), state.present);
        f.debug_struct("FreePages").field("free", &free).field("present", &present).finish_non_exhaustive()
    }
}

impl FreePages {
    /// No free pages yet. `nodes` is the highest node plus one; ignored if the area has one node.
    pub(crate) fn new(area: &Arc<Area>, nodes: usize) -> Result<Self, Error> {
        let lists = if area.only_node().is_some() { 1 } else { nodes.max(1) };
        let each = area.pages() as usize / lists;
        let state = FreeState {
            hot: (0..lists * ORDERS).map(|i| HotStack::new(each, i % ORDERS)).collect(),
            buddy: Buddy::new(area.clone(), lists)?,
            vain: vec![Vain::NONE; lists].into(),
            came: 0,
            went: 0,
            present: 0,
            #[cfg(debug_assertions)]
            out: crate::sys::table::Table::new(area.pages() as usize)?,
        };
        Ok(Self { state: Lock::new(state) })
    }

    /// Fills `out` from the front with free pages of `order`, on `node` if given; returns how many.
    #[inline]
    pub(crate) fn take(&self, order: u8, node: Option<NodeId>, out: &mut [PageIdx], search: Search) -> usize {
        let mut state = self.state.lock();
        let taken = match node {
            Some(node) => {
                state.buddy.list_of_node(node).map_or(0, |list| state.take(list, order, out, search))
            }
            None => state.take_any(order, out, search),
        };
        state.went_out(order, &out[..taken]);
        taken
    }

    /// Returns pages of `order`.
    #[inline]
    pub(crate) fn give(&self, order: u8, pages: &[PageIdx]) {
        debug_assert!(order <= MAX_ORDER, "I1: there is no order {order}");
        let mut state = self.state.lock();
        state.came_back(order, pages);
        if state.buddy.lists() == 1 {
            return state.give(0, order, pages);
        }
        // Adjacent entries are mostly on one node: one copy per run.
        let mut rest = pages;
        while let Some(&first) = rest.first() {
            let list = state.buddy.list_of(first);
            let run = rest.iter().take_while(|&&page| state.buddy.list_of(page) == list).count();
            state.give(list, order, &rest[..run]);
            rest = &rest[run..];
        }
    }

    /// Adds the pages of a region that became present.
    pub(crate) fn add_region(&self, region: usize) {
        let pages = self.state.lock().buddy.pages_of(region);
        let largest = 1 << MAX_ORDER;
        for start in pages.clone().step_by(largest) {
            let part = start..pages.end.min(start + largest as u32);
            self.state.lock().add(part); // a short lock per 4 MiB
        }
    }

    /// Removes a region if all of its pages are free; returns whether it did.
    pub(crate) fn withdraw(&self, region: usize) -> bool {
        let mut state = self.state.lock();
        // Pages in hot stacks are free too, but only the buddy knows whether a region is complete.
        for list in 0..state.buddy.lists() {
            state.pour(list, 0..ORDERS as u8);
        }
        let done = state.buddy.withdraw(region);
        // On failure the stacks stay empty: the next request refills them from the buddy.
        if done {
            let pages = state.buddy.pages_of(region);
            state.went += u64::from(pages.end - pages.start);
            state.present -= u64::from(pages.end - pages.start);
        }
        done
    }

    /// Pages of `order` that could be taken now.
    pub(crate) fn count(&self, order: u8) -> usize {
        let state = self.state.lock();
        // Higher orders count: they can be cut. Lower ones do not: only a pour shows what merges.
        let hot =
            |list: usize, o: usize| (state.hot[list * ORDERS + o].len as u64) << (o - usize::from(order));
        let on = |list: usize| -> u64 {
            state.buddy.could_give(list, order) + (order.into()..ORDERS).map(|o| hot(list, o)).sum::<u64>()
        };
        (0..state.buddy.lists()).map(on).sum::<u64>() as usize
    }

    /// Base pages that are out.
    pub(crate) fn out(&self) -> u64 {
        let state = self.state.lock();
        state.present - state.free()
    }
}

impl FreeState {
    fn stack(&mut self, list: usize, order: u8) -> &mut HotStack {
        &mut self.hot[list * ORDERS + usize::from(order)]
    }

    /// Base pages in stacks and buddy.
    fn free(&self) -> u64 {
        self.came - self.went
    }

    #[inline]
    fn take(&mut self, list: usize, order: u8, out: &mut [PageIdx], search: Search) -> usize {
        let taken = self.stack(list, order).pop(out);
        if taken == out.len() {
            return taken;
        }
        taken + self.take_slow(list, order, &mut out[taken..], search)
    }

    fn take_any(&mut self, order: u8, out: &mut [PageIdx], search: Search) -> usize {
        let mut taken = 0;
        // In node order: a request without a node gets pages of the lowest node that has any.
        for list in 0..self.buddy.lists() {
            taken += self.take(list, order, &mut out[taken..], search);
        }
        taken
    }

    #[cold]
    fn take_slow(&mut self, list: usize, order: u8, out: &mut [PageIdx], search: Search) -> usize {
        let mut taken = self.take_from_buddy(list, order, out);
        // Idle pages of higher orders only need cutting.
        if taken < out.len() && self.pour(list, order + 1..ORDERS as u8) > 0 {
            taken += self.take_from_buddy(list, order, &mut out[taken..]);
        }
        // Lower orders may merge. One pour is enough: nothing fills the stacks in between.
        if taken < out.len() && self.may_pour(list, order, search) {
            self.pour(list, 0..order);
            let more = self.take_from_buddy(list, order, &mut out[taken..]);
            self.note_pour(list, order, more > 0);
            taken += more;
        }
        taken
    }

    fn take_from_buddy(&mut self, list: usize, order: u8, out: &mut [PageIdx]) -> usize {
        let mut taken = 0;
        while taken < out.len() && self.refill(list, order, out.len() - taken) {
            taken += self.stack(list, order).pop(&mut out[taken..]);
        }
        taken
    }

    /// Whether merging entries of lower orders could serve a request that nothing else can, at acceptable
    /// cost.
    fn may_pour(&mut self, list: usize, order: u8, search: Search) -> bool {
        let lower = &self.hot[list * ORDERS..][..order.into()];
        let entries: u64 = lower.iter().map(|stack| stack.len as u64).sum();
        let idle: u64 = lower.iter().zip(0..).map(|(stack, o)| (stack.len as u64) << o).sum();
        let free = idle + self.buddy.could_give(list, 0);
        let block = 1 << order;
        let vain = &mut self.vain[list];
        let returned = self.came - vain.came;
        let known = order >= vain.order;
        if entries == 0 || free < block || known && returned == 0 {
            return false; // certain: the buddy has all, has too little, or has no more than at the last pour
        }
        let earned = POUR_AT_ONCE + vain.refused + returned / RETURNS_PER_ENTRY;
        // A pool about to sleep requests once more, then not before it is woken: it must not miss a page.
        let is_waited_for = self.buddy.area.starved.are_listed();
        let thorough = search == Search::Thorough || is_waited_for;
        let pours = !known || thorough || free >= vain.free + block || entries <= earned;
        vain.refused += u64::from(!pours);
        pours
    }

    /// Records a failed pour; a successful one clears the record.
    fn note_pour(&mut self, list: usize, order: u8, served: bool) {
        let free = self.buddy.could_give(list, 0); // the stacks are empty
        let vain = &mut self.vain[list];
        *vain = if served {
            Vain::NONE
        } else {
            Vain { order, free: vain.free.max(free), came: self.came, refused: 0 }
        };
    }

    /// Cuts blocks into an empty hot stack until it has `want` pages or is full; returns whether it has any.
    fn refill(&mut self, list: usize, order: u8, want: usize) -> bool {
        let stack = &mut self.hot[list * ORDERS + usize::from(order)];
        while stack.len < want && stack.room() > 0 {
            // A larger block saves later splits, but all its pieces must fit the stack.
            let most = (stack.room().ilog2() as u8).min(REFILL_SHIFT).min(MAX_ORDER - order);
            // The buddy may give a smaller block: it keeps larger ones whole if possible.
            let Some((block, have)) = self.buddy.take(list, order, order + most) else { break };
            let pages = 1 << (have - order);
            for i in 0..pages {
                stack.push(&[PageIdx(block.0 + (i << order))]);
            }
        }
        stack.len > 0
    }

    /// Pours hot stacks of these orders into the buddy; returns the number of entries.
    fn pour(&mut self, list: usize, orders: Range<u8>) -> usize {
        let mut poured = 0;
        for order in orders {
            let len = self.stack(list, order).len;
            if len > 0 {
                self.spill(list, order, len);
                poured += len;
            }
        }
        poured
    }

    /// Moves the `n` oldest entries of a stack to the buddy.
    fn spill(&mut self, list: usize, order: u8, n: usize) {
        let stack = &mut self.hot[list * ORDERS + usize::from(order)];
        stack.slots[..n].iter().for_each(|&page| self.buddy.give(page, order));
        // The newest entries stay: their memory is probably in the CPU's caches.
        stack.slots.copy_within(n..stack.len, 0);
        stack.len -= n;
    }

    #[inline]
    fn give(&mut self, list: usize, order: u8, pages: &[PageIdx]) {
        let stack = self.stack(list, order);
        if stack.room() >= pages.len() { stack.push(pages) } else { self.give_slow(list, order, pages) }
    }

    /// Spills at least half of the stack to make room; pages beyond a whole stack go to the buddy.
    #[cold]
    fn give_slow(&mut self, list: usize, order: u8, pages: &[PageIdx]) {
        let stack = self.stack(list, order);
        let (size, len) = (stack.slots.len(), stack.len);
        // Half: if only the missing room were made, the next return would come here again. Excess entries
        // would be spilt at once.
        let (excess, rest) = pages.split_at(pages.len().saturating_sub(size));
        let spilt = len.min((len + rest.len() - size).max(size / 2));
        self.spill(list, order, spilt);
        excess.iter().for_each(|&page| self.buddy.give(page, order));
        self.stack(list, order).push(rest);
    }

    fn add(&mut self, pages: Range<u32>) {
        self.came += u64::from(pages.end - pages.start);
        self.present += u64::from(pages.end - pages.start);
        self.buddy.add(pages);
    }

    #[inline]
    fn went_out(&mut self, order: u8, pages: &[PageIdx]) {
        // Only a count: debug builds also touch a byte per page.
        self.went += (pages.len() as u64) << order;
        #[cfg(debug_assertions)]
        for base in pages.iter().flat_map(|page| page.0..page.0 + (1 << order)) {
            let was = std::mem::replace(&mut self.out[base as usize], order + 1);
            debug_assert_eq!(was, 0, "I1: base page #{base} was given out twice");
        }
    }

    #[inline]
    fn came_back(&mut self, order: u8, pages: &[PageIdx]) {
        self.came += (pages.len() as u64) << order;
        #[cfg(debug_assertions)]
        for page in pages {
            let in_range = u64::from(page.0) + (1 << order) <= self.out.len() as u64;
            debug_assert!(in_range, "I1: {page:?} of order {order} came back, but is not of this area");
            debug_assert_eq!(
                page.0 % (1 << order),
                0,
                "I1: {page:?} came back, but is no page of order {order}"
            );
        }
        #[cfg(debug_assertions)]
        for base in pages.iter().flat_map(|page| page.0..page.0 + (1 << order)) {
            let was = std::mem::replace(&mut self.out[base as usize], 0);
            debug_assert_ne!(was, 0, "I1: base page #{base} came back, but is not out");
            debug_assert_eq!(
                was,
                order + 1,
                "I1: base page #{base} came back with another order than it went out with"
            );
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::Search::{Thorough, Usual};
    use super::*;
    use crate::mem::area::REGION_SHIFT;
    use crate::sys::wakeup::Wakeup;

    fn free(pages: u64) -> FreePages {
        let area = Area::unreadable(pages << 12, REGION_SHIFT, NodeId(0)).expect("a small area");
        let free = FreePages::new(&area, 1).expect("small tables");
        (0..area.regions()).for_each(|r| free.add_region(r));
        free
    }

    #[test]
    fn the_page_that_came_back_last_goes_out_first() {
        let f = free(256);
        let mut out = [PageIdx(0); 4];
        assert_eq!(f.take(0, None, &mut out, Usual), 4);
        assert!(out.is_sorted(), "{out:?}");
        f.give(0, &out[1..3]);
        let mut one = [PageIdx(0)];
        f.take(0, None, &mut one, Usual);
        assert_eq!(one[0], out[2]);
    }

    #[test]
    fn idle_pages_of_one_order_become_pages_of_another() {
        let f = free(1024);
        let mut small = vec![PageIdx(0); 1024];
        assert_eq!(f.take(0, None, &mut small, Usual), 1024);
        assert_eq!(f.out(), 1024);
        f.give(0, &small);
        assert_eq!(f.take(10, None, &mut small[..2], Usual), 1, "the hot stack is poured out and merged");
        assert_eq!((f.count(0), f.out()), (0, 1024));
    }

    #[test]
    fn counting_is_exact_with_mixed_orders() {
        let f = free(64);
        let mut out = [PageIdx(0); 3];
        assert_eq!(f.take(3, None, &mut out, Usual), 3);
        assert_eq!((f.out(), f.count(0)), (24, 40));
        f.give(3, &out);
        assert_eq!((f.out(), f.count(0)), (0, 64));
        assert!(f.withdraw(0));
        assert_eq!((f.out(), f.count(0)), (0, 0));
    }

    fn pages(numbers: impl Iterator<Item = u32>) -> Vec<PageIdx> {
        numbers.map(PageIdx).collect()
    }

    /// 1,024 pages, of which 64 are free, no two adjacent, all in the hot stack: after a failed pour they
    /// were taken and returned.
    fn scattered() -> FreePages {
        let f = free(1024);
        let mut out = vec![PageIdx(0); 1024];
        assert_eq!(f.take(0, None, &mut out, Usual), 1024);
        f.give(0, &pages((0..128).step_by(2)));
        assert_eq!(blocks(&f, Usual), None);
        churn(&f);
        f
    }

    /// Takes 64 pages and returns them.
    fn churn(f: &FreePages) {
        let mut out = [PageIdx(0); 64];
        assert_eq!(f.take(0, None, &mut out, Usual), 64);
        f.give(0, &out);
    }

    /// Requests a block of 8 pages.
    fn blocks(f: &FreePages, search: Search) -> Option<PageIdx> {
        let mut out = [PageIdx(0)];
        (f.take(3, None, &mut out, search) == 1).then_some(out[0])
    }

    fn idle(f: &FreePages) -> usize {
        f.state.lock().hot[0].len
    }

    #[test]
    fn a_request_that_cannot_be_served_moves_nothing() {
        let f = scattered();
        let mut pours = 0;
        for _ in 0..1000 {
            assert_eq!((blocks(&f, Usual), f.count(0)), (None, 64));
            pours += u32::from(idle(&f) == 0);
            assert!(blocks(&f, Usual).is_none() && blocks(&f, Usual).is_none());
            churn(&f);
        }
        // Of 64 entries, 8 cost nothing; three refusals and 64 returned pages pay for four.
        assert!((50..=1000 / 14).contains(&pours), "{pours} pours in 1,000 rounds");
    }

    #[test]
    fn while_no_page_comes_back_a_refusal_is_for_good() {
        let f = scattered();
        assert_eq!(blocks(&f, Thorough), None, "poured");
        let mut out = [PageIdx(0); 40];
        f.take(0, None, &mut out, Usual);
        let before = idle(&f);
        (0..10_000).for_each(|_| assert_eq!(blocks(&f, Thorough), None));
        assert_eq!(idle(&f), before);
    }

    #[test]
    fn a_block_s_worth_of_pages_more_is_looked_at_at_once() {
        let f = scattered();
        f.give(0, &pages(201..208));
        assert_eq!(blocks(&f, Usual), None);
        f.give(0, &pages(200..201));
        assert_eq!(blocks(&f, Usual), Some(PageIdx(200)));
    }

    /// Takes eight scattered pages, and returns a block as eight pages.
    fn as_many_but_a_block(f: &FreePages) {
        f.take(0, None, &mut [PageIdx(0); 8], Usual);
        f.give(0, &pages(200..208));
        assert_eq!((f.count(0), idle(f)), (64, 64));
    }

    #[test]
    fn a_new_block_is_found_within_as_many_refusals_as_pages() {
        let f = scattered();
        as_many_but_a_block(&f);
        let refused = (0..1000).take_while(|_| blocks(&f, Usual).is_none()).count();
        assert_eq!(refused, 64 - 8 - 1, "of 64 entries 8 are free, and 64 pages came back in the churn");
    }

    #[test]
    fn who_is_thorough_or_is_about_to_sleep_finds_them_at_once() {
        let f = scattered();
        as_many_but_a_block(&f);
        assert_eq!(blocks(&f, Thorough), Some(PageIdx(200)));
        let f = scattered();
        as_many_but_a_block(&f);
        f.state.lock().buddy.area.starved.add(&Arc::new(Wakeup::new(0, None)));
        assert_eq!(blocks(&f, Usual), Some(PageIdx(200)));
    }

    #[test]
    fn few_entries_are_always_moved() {
        let f = scattered();
        assert_eq!(blocks(&f, Thorough), None);
        let mut out = [PageIdx(0); 8];
        f.take(0, None, &mut out, Usual);
        f.give(0, &pages(200..208));
        assert!(idle(&f) <= 8);
        assert_eq!(blocks(&f, Usual), Some(PageIdx(200)));
    }

    #[test]
    fn a_block_is_cut_without_moving_the_pages_beside_it() {
        let f = scattered();
        f.give(0, &pages(200..208));
        let block = blocks(&f, Usual).expect("eight pages more");
        churn(&f);
        f.give(3, &[block]);
        let mut out = [PageIdx(0)];
        assert_eq!(f.take(2, None, &mut out, Usual), 1);
        assert_eq!((out[0].0 & !7, idle(&f)), (block.0, 64));
    }

    #[test]
    fn more_than_a_stack_holds_goes_both_ways() {
        let f = free(8192);
        let mut all = vec![PageIdx(0); 9000];
        assert_eq!(f.take(0, None, &mut all, Usual), 8192);
        f.give(0, &all[..700]);
        f.give(0, &all[700..8192]);
        assert_eq!(f.out(), 0);
        assert_eq!(f.take(10, None, &mut all, Usual), 8);
    }

    #[test]
    #[should_panic(expected = "is not of this area")]
    #[cfg(debug_assertions)]
    fn a_page_beyond_the_area_is_noticed() {
        free(64).give(0, &[PageIdx(0x3000_0000)]);
    }

    #[test]
    #[should_panic(expected = "is no page of order 3")]
    #[cfg(debug_assertions)]
    fn a_page_of_no_such_order_is_noticed() {
        free(64).give(3, &[PageIdx(4)]);
    }

    #[test]
    #[should_panic(expected = "is not out")]
    #[cfg(debug_assertions)]
    fn a_double_release_is_noticed() {
        let f = free(64);
        let mut out = [PageIdx(0); 2];
        f.take(0, None, &mut out, Usual);
        f.give(0, &out);
        f.give(0, &out[..1]);
    }
}
