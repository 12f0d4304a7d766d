//! Keeps 1024 buffers outstanding and drops the oldest first: the place of a buffer costs more than finding
//! it.

use std::collections::BTreeSet;
use std::hint::black_box;
use std::mem::forget;

use pagepool::{Bound, PAGE_SIZE, PageBuf, PoolParams};

use super::owner::CACHE_ONLY;
use crate::measure::touch;
use crate::measure::workload::{Ready, Workload};
use crate::workloads::pools;

pub const TABLE: &[Workload] = &[
    Workload::new("page_fifo1024", || ready::<false>(pools::packets()))
        .about("1024 outstanding: drop the oldest, allocate one")
        .rules(CACHE_ONLY),
    Workload::new("page_fifo1024_touch", || ready::<true>(pools::packets()))
        .about("1024 outstanding: write 8 bytes after allocation, read them before the drop")
        .rules(CACHE_ONLY),
    Workload::new("page_fifo1024_touch_nocolour", || {
        ready::<true>(PoolParams { colour: false, ..pools::packets() })
    })
    .about("1024 outstanding, 8 bytes written and read; all packets begin at one offset in their page")
    .rules(CACHE_ONLY),
    Workload::new("page_fifo1024_pool1k", || in_a_row(1 << 10))
        .about("1024 outstanding from a pool of 1 Ki pages")
        .rules(CACHE_ONLY),
    Workload::new("page_fifo1024_pool64k", || in_a_row(1 << 16))
        .about("1024 outstanding from a pool of 64 Ki pages")
        .rules(CACHE_ONLY),
    Workload::new("page_fifo1024_pool4m", || in_a_row(1 << 22))
        .about("1024 outstanding from a pool of 4 Mi pages")
        .rules(CACHE_ONLY),
    Workload::new("page_fifo1024_pool64k_spread", || spread(1 << 16))
        .about("1024 outstanding, scattered over a pool of 64 Ki pages that were all out once")
        .rules(CACHE_ONLY),
    Workload::new("page_fifo1024_pool4m_spread", || spread(1 << 22))
        .about("1024 outstanding, scattered over a pool of 4 Mi pages that were all out once")
        .rules(CACHE_ONLY),
];

const HELD: usize = 1024;

fn ready<const TOUCH: bool>(params: PoolParams) -> Result<Ready, String> {
    let pool = pools::bound(params)?;
    let held: Vec<PageBuf> = (0..HELD).map(|_| pools::page(&pool)).collect();
    let colours = packet_offsets(&held);
    Ok(oldest_out::<TOUCH>(pool, held).coloured(colours))
}

/// The first pages of the arena. Its memory is never touched: 16 GiB of addresses cost none.
fn in_a_row(pages: usize) -> Result<Ready, String> {
    let pool = pools::over(pools::packets(), pools::arena(pages)?)?;
    let held = (0..HELD).map(|_| pools::page(&pool)).collect();
    Ok(oldest_out::<false>(pool, held))
}

/// Passes all pages of the arena through the pool once, which puts all records in use. One page of each
/// stretch stays out, at a varying place: their records do not share a group of cache sets.
fn spread(pages: usize) -> Result<Ready, String> {
    let pool = pools::over(pools::packets(), pools::arena(pages)?)?;
    let stretch = pages / HELD;
    let mut held = Vec::with_capacity(HELD);
    let mut others = Vec::with_capacity(pages - HELD);
    for at in 0..pages {
        let buf = pools::page(&pool);
        let which = (at / stretch).wrapping_mul(0x9e37_79b9) >> 8;
        if at % stretch == which % stretch { held.push(buf) } else { others.push(buf) }
    }
    drop(others);
    Ok(oldest_out::<false>(pool, held))
}

fn oldest_out<const TOUCH: bool>(pool: Bound, held: Vec<PageBuf>) -> Ready {
    let mut held: Vec<Option<PageBuf>> = held.into_iter().map(Some).collect();
    pools::one_core_over(pool, move |pool, n| {
        let mut sum = 0u64;
        for at in 0..n {
            let slot = &mut held[at % HELD];
            if TOUCH && let Some(oldest) = slot {
                sum = sum.wrapping_add(touch::read(oldest.packet()));
            }
            drop(slot.take());
            let mut buf = pools::page(pool);
            if TOUCH {
                touch::write(buf.packet_mut(), at as u64);
            }
            forget(slot.replace(buf)); // `None`: taken above, no check needed
        }
        black_box(sum);
    })
}

/// The number of offsets at which packets begin.
fn packet_offsets(held: &[PageBuf]) -> usize {
    let offset = |buf: &PageBuf| Some(buf.packet()?.as_ptr().addr() % PAGE_SIZE);
    held.iter().filter_map(offset).collect::<BTreeSet<_>>().len()
}
