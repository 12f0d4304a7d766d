//! Who holds the pages of packets: their records are cleared by every return, and a packet can name its user.

#![allow(clippy::unwrap_used)]

use pagepool::{Bound, Holders, HoldersView, NoDirectRecycle, PageBuf, Pool, PoolParams, Tag, XdpBuff};
use pagepool_skb::{SkBuff, SkbCache};
use pagepool_testing::PlainMemory;

fn pool(holders: Holders) -> Bound {
    let memory = PlainMemory::new(512, 0).unwrap();
    Pool::new(PoolParams { holders, ..Default::default() }, memory).unwrap().bind()
}

type Out = fn(&Bound) -> Vec<PageBuf>;

/// Kinds of buffers, and how many pages they are in.
const OUT: [(&str, usize, Out); 4] = [
    ("pages", 3, |pool| (0..3).map(|_| pool.alloc_page().unwrap()).collect()),
    ("pages of a batch", 30, |pool| {
        let mut batch = pool.alloc_batch(30);
        std::iter::from_fn(|| batch.pop()).collect()
    }),
    ("fragments", 3, |pool| (0..6).map(|_| pool.alloc_frag(2000).unwrap()).collect()),
    ("a divided page", 1, |pool| {
        let mut buffer = pool.alloc_page().unwrap();
        let rest = buffer.split_off(1024).unwrap();
        vec![buffer, rest]
    }),
];

fn drop_as_packets(buffers: Vec<PageBuf>) {
    let cache = SkbCache::new(64).unwrap();
    for buffer in buffers {
        drop(SkBuff::from_buff(&cache, XdpBuff::new(buffer, 256, 64).unwrap()));
    }
}

#[test]
fn the_end_of_a_packet_clears_the_records_of_its_pages() {
    for (out, pages, give) in OUT {
        for way in ["here", "there", "hidden", "late"] {
            let pool = pool(Holders::Sites { stacks: None });
            let (handle, buffers, case) = (pool.handle(), give(&pool), format!("{out}, {way}"));
            assert_eq!(handle.holders().unwrap().held, pages as u64, "{case}");
            if way == "late" {
                let shutdown = pool.destroy();
                drop_as_packets(buffers);
                assert!(shutdown.is_complete(), "{case}: {}", shutdown.report());
                assert_eq!(handle.holders().unwrap(), HoldersView::default(), "{case}");
                continue;
            }
            let scope = (way == "hidden").then(NoDirectRecycle::enter);
            match way {
                "there" => std::thread::scope(|threads| {
                    threads.spawn(|| drop_as_packets(buffers)).join().unwrap();
                }),
                _ => drop_as_packets(buffers),
            }
            drop(scope);
            // Fragments elsewhere, and of the open page: taken in, and complete.
            pool.shrink(0);
            assert_eq!(handle.holders().unwrap(), HoldersView::default(), "{case}");
            assert_eq!(handle.inflight().total, 0, "{case}");
        }
    }
}

fn two_buffers(pool: &Bound) -> SkBuff {
    let [one, two] = [(); 2].map(|()| pool.alloc_page().unwrap());
    let mut packet = XdpBuff::new(one, 256, 64).unwrap();
    packet.add_frag(two, 0, 100).unwrap();
    SkBuff::from_buff(&SkbCache::new(8).unwrap(), packet).unwrap()
}

#[test]
fn a_packet_and_its_clone_can_name_their_holder() {
    let tag = Tag::new("holder of all");
    for holders in [Holders::Off, Holders::Ages, Holders::Sites { stacks: None }] {
        for (cloned, there) in [(false, false), (false, true), (true, false), (true, true)] {
            let pool = pool(holders);
            pool.set_tag(Some(pool.tag("rx")));
            let (mut packet, handle) = (two_buffers(&pool), pool.handle());
            let look = || {
                if cloned {
                    packet.clone().set_tag(tag)
                } else {
                    packet.set_tag(tag)
                }
                let view = handle.holders();
                drop(packet);
                view
            };
            let view = match there {
                true => std::thread::scope(|threads| threads.spawn(look).join().unwrap()),
                false => look(),
            };
            let case = format!("{holders:?}, cloned: {cloned}, elsewhere: {there}");
            let groups = view.iter().flat_map(|view| &view.groups);
            let seen: Vec<_> = groups.map(|group| (group.tag.as_deref().unwrap(), group.pages)).collect();
            let expected: &[_] = if holders == Holders::Off { &[] } else { &[("holder of all", 2)] };
            assert_eq!(seen, expected, "{case}");
            assert_eq!(pool.inflight().out, 0, "{case}");
        }
    }
}
