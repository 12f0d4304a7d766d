//! The buddy allocator under an arena: free blocks of order 0 to 10 per node, split and merged.
//!
//! What   a block is `1 << order` base pages, naturally aligned, all on one node. The free lists are linked
//!        through the pages' records, which no pool uses then; a table has a state (1 byte) per page. Linux:
//!        `mm/page_alloc.c`.
//! Who    the holder of the lock of the [`FreePages`](crate::mem::arena::free_pages::FreePages) around it.
//! Cost   a take or a give is a few list operations per split or merge; no loop over pages.

use std::ops::Range;
use std::sync::Arc;

use crate::error::Error;
use crate::mem::area::Area;
use crate::mem::page::{MAX_ORDER, NodeId, PageIdx};
use crate::sys::sync::{AtomicU32, Ordering};
use crate::sys::table::Table;

const ORDERS: usize = MAX_ORDER as usize + 1;

/// The free blocks of an area's present regions.
pub(crate) struct Buddy {
    pub(crate) area: Arc<Area>,
    /// For the first page of a free block: its order plus one. For any other page: 0.
    state: Table<u8>,
    lists: Box<[Lists]>,
    /// Free base pages per region. A region can be removed if all of its pages are here.
    in_region: Box<[u32]>,
}

/// The free blocks of one node.
#[derive(Clone, Default)]
struct Lists {
    first: [u32; ORDERS],
    blocks: [u32; ORDERS],
}

impl Buddy {
    /// Makes empty lists; `lists` is the number of nodes, or 1 if all pages are on one.
    pub(crate) fn new(area: Arc<Area>, lists: usize) -> Result<Self, Error> {
        let pages = area.pages() as usize;
        Ok(Self {
            state: Table::new(pages)?,
            lists: vec![Lists::default(); lists].into(),
            in_region: vec![0; area.regions()].into(),
            area,
        })
    }

    /// The list that a page belongs to.
    pub(crate) fn list_of(&self, page: PageIdx) -> usize {
        match self.lists.len() {
            1 => 0,
            lists => usize::from(self.area.node_of(page).0).min(lists - 1),
        }
    }

    /// The list of a node; `None` if no page can be on it.
    pub(crate) fn list_of_node(&self, node: NodeId) -> Option<usize> {
        match self.area.only_node() {
            Some(only) => (only == node).then_some(0),
            None => Some(usize::from(node.0)).filter(|&list| list < self.lists.len()),
        }
    }

    pub(crate) fn lists(&self) -> usize {
        self.lists.len()
    }

    /// The number of blocks of `order` into which a list's free blocks could be cut.
    pub(crate) fn could_give(&self, list: usize, order: u8) -> u64 {
        let blocks = &self.lists[list].blocks;
        (usize::from(order)..ORDERS).map(|o| u64::from(blocks[o]) << (o - usize::from(order))).sum()
    }

    /// Adds a range of free pages, cut into the largest possible blocks on one node. The lowest block is
    /// given out first.
    pub(crate) fn add(&mut self, pages: Range<u32>) {
        // From the end: the lists are last in, first out.
        let mut end = pages.end;
        while end > pages.start {
            let list = self.list_of(PageIdx(end - 1));
            let alike = |page: &u32| self.list_of(PageIdx(*page)) == list;
            let start = end - (pages.start..end).rev().take_while(alike).count() as u32;
            while end > start {
                // A block ends at a multiple of its size, and fits in the rest.
                let order = end.trailing_zeros().min((end - start).ilog2()).min(MAX_ORDER.into());
                end -= 1 << order;
                self.give(PageIdx(end), order as u8);
            }
        }
    }

    /// Takes the smallest free block of at least `order` and cuts it down to at most `largest`. Also returns
    /// its order.
    pub(crate) fn take(&mut self, list: usize, order: u8, largest: u8) -> Option<(PageIdx, u8)> {
        let lists = &self.lists[list];
        let found = (usize::from(order)..ORDERS).find(|&o| lists.first[o] != 0)?;
        let page = PageIdx(lists.first[found] - 1);
        self.unlink(page);
        // Gives the lower half out, so memory is used from the bottom and whole blocks stay at the top.
        let mut have = found as u8;
        while have > largest {
            have -= 1;
            self.link(PageIdx(page.0 + (1 << have)), list, have); // the upper half stays
        }
        Some((page, have))
    }

    /// Adds a block and merges it with its free neighbours.
    pub(crate) fn give(&mut self, page: PageIdx, order: u8) {
        let list = self.list_of(page);
        let (mut page, mut order) = (page, order);
        debug_assert_eq!(self.state[page.0 as usize], 0, "I1: {page:?} is free already");
        while order < MAX_ORDER {
            // A block and its buddy differ in the one bit of their size.
            let other = PageIdx(page.0 ^ (1 << order));
            // `state` is set only for the first page of a free block, so a buddy that is out or split does
            // not match. Buddies on two nodes are not merged: a block has one node.
            if self.state.get(other.0 as usize) != Some(&(order + 1)) || self.list_of(other) != list {
                break;
            }
            self.unlink(other);
            page = PageIdx(page.0.min(other.0));
            order += 1;
        }
        self.link(page, list, order);
    }

    /// Removes every block of a region from the lists, if all of its pages are free; returns whether it did.
    pub(crate) fn withdraw(&mut self, region: usize) -> bool {
        let pages = self.pages_of(region);
        if self.in_region[region] != pages.end - pages.start {
            return false;
        }
        let mut at = pages.start;
        while at < pages.end {
            // All pages are free, and no block crosses a region, which is at least as large as the largest
            // block. So the blocks are adjacent.
            let order = self.state[at as usize] - 1;
            self.unlink(PageIdx(at));
            at += 1 << order;
        }
        true
    }

    /// The numbers of a region's base pages.
    pub(crate) fn pages_of(&self, region: usize) -> Range<u32> {
        self.area.pages_of(region)
    }

    fn region_of(&self, page: PageIdx) -> usize {
        (page.0 >> self.area.pages_shift()) as usize
    }

    fn link(&mut self, page: PageIdx, list: usize, order: u8) {
        let region = self.region_of(page);
        self.in_region[region] += 1 << order;
        let lists = &mut self.lists[list];
        // Links are numbers plus one: zeroed tables are empty lists, and their untouched parts use no
        // memory.
        let first = std::mem::replace(&mut lists.first[usize::from(order)], page.0 + 1);
        lists.blocks[usize::from(order)] += 1;
        self.state[page.0 as usize] = order + 1;
        self.set_links(page, first, 0);
        if first != 0 {
            self.prev_of(first).store(page.0 + 1, Ordering::Relaxed);
        }
    }

    fn set_links(&self, page: PageIdx, next: u32, prev: u32) {
        self.next_of(page.0 + 1).store(next, Ordering::Relaxed);
        self.prev_of(page.0 + 1).store(prev, Ordering::Relaxed);
    }

    /// For a block, given as a link: the link to the next one in its list. A link is the number of the
    /// block's first page plus one; 0 is none.
    fn next_of(&self, block: u32) -> &AtomicU32 {
        &self.area.meta(PageIdx(block - 1)).next
    }

    /// The link to the previous block.
    fn prev_of(&self, block: u32) -> &AtomicU32 {
        &self.area.meta(PageIdx(block - 1)).overflow
    }

    fn unlink(&mut self, page: PageIdx) {
        let at = page.0 as usize;
        let order = self.state[at] - 1;
        let (list, region) = (self.list_of(page), self.region_of(page));
        let next = self.next_of(page.0 + 1).load(Ordering::Relaxed);
        let prev = self.prev_of(page.0 + 1).load(Ordering::Relaxed);
        self.set_links(page, 0, 0); // what a pool expects in the record
        self.state[at] = 0;
        self.in_region[region] -= 1 << order;
        let lists = &mut self.lists[list];
        lists.blocks[usize::from(order)] -= 1;
        match prev {
            0 => lists.first[usize::from(order)] = next,
            prev => self.next_of(prev).store(next, Ordering::Relaxed),
        }
        if next != 0 {
            self.prev_of(next).store(prev, Ordering::Relaxed);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    #![expect(unsafe_code)]

    use super::*;
    use crate::mem::area::REGION_SHIFT;

    fn buddy(pages: u64, node: Option<NodeId>) -> Buddy {
        // SAFETY: no region is ever added, so no code follows the address.
        let area = unsafe { Area::readable(1 << 30, pages << 12, REGION_SHIFT, node) };
        let area = area.expect("a small area");
        let lists = if node.is_some() { 1 } else { 2 };
        Buddy::new(area, lists).expect("small tables")
    }

    #[test]
    fn splits_low_half_first_and_merges_back_to_the_whole() {
        let mut b = buddy(1024, Some(NodeId(0)));
        b.add(0..1024);
        assert_eq!(b.could_give(0, 10), 1);
        let taken: Vec<_> = (0..1024).map(|_| b.take(0, 0, 0).unwrap().0).collect();
        assert!(taken.is_sorted(), "fresh memory is given in ascending order");
        assert_eq!(b.take(0, 0, 0), None);
        for page in taken.iter().rev().step_by(2).chain(taken.iter().rev().skip(1).step_by(2)) {
            b.give(*page, 0);
        }
        assert_eq!(b.take(0, 10, 10), Some((PageIdx(0), 10)));
    }

    #[test]
    fn an_odd_number_of_pages_is_cut_into_aligned_blocks() {
        let mut b = buddy(100, Some(NodeId(0)));
        b.add(0..100);
        for order in [6, 5, 2] {
            let (page, got) = b.take(0, order, order).unwrap();
            assert_eq!((got, page.0 % (1 << order)), (order, 0));
        }
        assert_eq!(b.take(0, 0, 10), None, "64 + 32 + 4 are all of it");
    }

    #[test]
    fn blocks_never_span_nodes() {
        let mut b = buddy(8, None);
        // SAFETY: the pages are not in the lists yet.
        (0..8).for_each(|p| unsafe { b.area.set_node(PageIdx(p), NodeId(u8::from(p >= 3))) });
        b.add(0..8);
        assert_eq!(b.take(0, 1, 1), Some((PageIdx(0), 1)));
        assert_eq!(b.take(0, 1, 1), None, "page 2 has its neighbour on the other node");
        assert_eq!(b.take(1, 2, 2), Some((PageIdx(4), 2)));
        b.give(PageIdx(4), 2);
        b.give(PageIdx(0), 1);
        assert_eq!((b.could_give(0, 0), b.could_give(1, 0)), (3, 5));
        assert_eq!(b.could_give(0, 2) + b.could_give(1, 2), 1);
    }

    #[test]
    fn a_region_is_withdrawn_only_whole() {
        let mut b = buddy(1024 + 7, Some(NodeId(0)));
        b.add(0..1024);
        b.add(1024..1031);
        let (page, _) = b.take(0, 0, 0).unwrap();
        assert!(page.0 >= 1024, "the smallest block that fits is cut first");
        assert!(!b.withdraw(1));
        assert!(b.withdraw(0));
        b.give(page, 0);
        assert!(b.withdraw(1));
        assert_eq!(b.take(0, 0, 0), None);
    }

    #[test]
    #[should_panic(expected = "is free already")]
    #[cfg(debug_assertions)]
    fn a_second_give_is_noticed() {
        let mut b = buddy(16, Some(NodeId(0)));
        b.give(PageIdx(3), 0);
        b.give(PageIdx(3), 0);
    }
}
