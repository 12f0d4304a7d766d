//! The pages that a pool takes before the first packet.

use pagepool::Bound;

/// Takes so many pages from the arena, as far as it has them, and puts them into the pool's cache and ring. What they hold
/// is not touched.
pub fn prefill(pool: &Bound, pages: usize) {
    let mut buffers = Vec::with_capacity(pages);
    pool.alloc_bulk(&mut buffers, pages);
    pagepool::put_bulk(&mut buffers);
}
