//! The rules of every provider, as a test that any crate can run over its own.

// UNSAFETY: pages that the suite reserved are released.
#![expect(unsafe_code)]

use std::collections::HashSet;
use std::sync::Arc;

use pagepool::internal::present_pages;
use pagepool::{MAX_ORDER, NodeId, PageIdx, Provider};

/// Checks a provider against the rules of [`Provider`]; panics with the rule that it breaks. `make` creates a
/// new provider each time, of 16 to 100,000 base pages, with none out.
///
/// ```
/// use pagepool_testing::conformance_provider;
/// use pagepool::{Arena, ArenaParams};
/// let params = || ArenaParams { max_bytes: 1 << 20, ..Default::default() };
/// conformance_provider(|| Arena::new(params()).expect("1 MiB"));
/// ```
pub fn conformance_provider<P: Provider + 'static>(make: impl Fn() -> Arc<P>) {
    gives_each_page_once(&*make());
    aligns_every_order(&*make());
    refuses_what_cannot_be(&*make());
    is_empty_when_it_says_so_and_full_again(&*make());
    falls_back_to_pages_of_another_node(&*make());
    bears_many_threads(&*make());
    assert!(!make().describe().is_empty(), "a provider describes itself");
}

fn reserve(p: &dyn Provider, order: u8, node: Option<NodeId>, n: usize) -> Vec<PageIdx> {
    let mut out = vec![PageIdx(u32::MAX); n];
    let got = p.reserve(order, node, &mut out);
    assert!(got <= n, "reserve says {got} of {n}");
    assert!(out[got..].iter().all(|page| page.0 == u32::MAX), "slots beyond the count stay as they were");
    out.truncate(got);
    for page in &out {
        let last = u64::from(page.0) + (1 << order);
        assert!(last <= u64::from(p.area().pages()), "{page:?} of order {order} lies within the area");
        let present = present_pages(p.area());
        assert!(present.iter().any(|r| r.contains(&page.0)), "{page:?} is in a region that is present");
    }
    out
}

/// Releases pages that [`reserve`] gave, once.
fn release(p: &dyn Provider, order: u8, pages: &[PageIdx]) {
    // SAFETY: the suite passes pages that it reserved with this order and has not released; it uses no
    // memory.
    unsafe { p.release(order, pages) };
}

fn drain(p: &dyn Provider, order: u8) -> Vec<PageIdx> {
    let mut all = Vec::new();
    loop {
        let some = reserve(p, order, None, 64);
        if some.is_empty() {
            return all;
        }
        all.extend(some);
    }
}

fn gives_each_page_once(p: &dyn Provider) {
    let all = drain(p, 0);
    assert!(!all.is_empty(), "a fresh provider has pages");
    let distinct: HashSet<_> = all.iter().collect();
    assert_eq!(distinct.len(), all.len(), "no page is given twice");
    release(p, 0, &all);
}

fn aligns_every_order(p: &dyn Provider) {
    for order in 0..=MAX_ORDER {
        let pages = reserve(p, order, None, 3);
        for page in &pages {
            assert_eq!(page.0 % (1 << order), 0, "{page:?} of order {order} is naturally aligned");
        }
        release(p, order, &pages);
    }
}

fn refuses_what_cannot_be(p: &dyn Provider) {
    assert_eq!(p.reserve(MAX_ORDER + 1, None, &mut [PageIdx(0)]), 0, "there is no order 11");
    assert_eq!(p.reserve(0, None, &mut []), 0, "a request for no pages returns none");
    release(p, 0, &[]);
}

fn is_empty_when_it_says_so_and_full_again(p: &dyn Provider) {
    let before = p.available(0);
    let all = drain(p, 0);
    assert!(before > 0 && before <= all.len() * 2, "available is about right: {before} for {}", all.len());
    assert_eq!(p.available(0), 0, "available of an empty provider");
    release(p, 0, &all[1..]);
    release(p, 0, &all[..1]);
    let again = drain(p, 0);
    assert_eq!(again.len(), all.len(), "returned pages can be reserved again");
    release(p, 0, &again);
}

fn falls_back_to_pages_of_another_node(p: &dyn Provider) {
    let nowhere = NodeId(251);
    let pages = reserve(p, 0, Some(nowhere), 8);
    assert!(!pages.is_empty(), "pages of other nodes, if that node has none");
    release(p, 0, &pages);
    let here = reserve(p, 0, None, 1);
    let node = p.area().node_of(here[0]);
    let there = reserve(p, 0, Some(node), 4);
    assert!(!there.is_empty());
    let on_node = there.iter().filter(|&&page| p.area().node_of(page) == node).count();
    assert!([0, there.len()].contains(&on_node), "{on_node} of {} pages are on the node", there.len());
    release(p, 0, &here);
    release(p, 0, &there);
}

fn bears_many_threads(p: &dyn Provider) {
    std::thread::scope(|s| {
        for t in 0..4usize {
            s.spawn(move || {
                for round in 0..200 {
                    let order = ((round + t) % 3) as u8;
                    let mut out = [PageIdx(0); 16];
                    let got = p.reserve(order, None, &mut out[..1 + (round * 7 + t) % 16]);
                    release(p, order, &out[..got]);
                }
            });
        }
    });
    let all = drain(p, 0);
    let distinct: HashSet<_> = all.iter().collect();
    assert_eq!(distinct.len(), all.len(), "no page is given twice after threads");
    release(p, 0, &all);
}
