//! A custom provider: a pool over your own memory, here pages of the Rust heap.
//!
//! ```sh
//! cargo run -p pagepool --example custom_provider
//! ```

// UNSAFETY: a provider promises that each of its pages is real, aligned memory that no other code uses.
#![expect(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::error::Error;
use std::sync::{Arc, Mutex};

use pagepool::{Area, NodeId, PAGE_SIZE, PageIdx, Pool, PoolParams, Provider, REGION_SHIFT};

/// A stack of free page numbers over one block of memory. Serves pages of order 0.
#[derive(Debug)]
struct HeapPages {
    area: Arc<Area>,
    free: Mutex<Vec<PageIdx>>,
    layout: Layout,
}

impl HeapPages {
    fn new(pages: u32) -> Result<Arc<Self>, Box<dyn Error>> {
        let layout = Layout::from_size_align(PAGE_SIZE * pages.max(1) as usize, PAGE_SIZE)?;
        // SAFETY: the layout has a size above 0.
        let base = unsafe { alloc_zeroed(layout) } as usize;
        assert_ne!(base, 0, "the system has memory for {pages} pages");
        // SAFETY: only this provider uses the block, which is zeroed, and freed after the area is closed.
        let area = unsafe { Area::readable(base, layout.size() as u64, REGION_SHIFT, Some(NodeId(0))) }?;
        for region in 0..area.regions() {
            // SAFETY: all of the block is present from the start.
            unsafe { area.add_region(region) }?;
        }
        let free = (0..area.pages()).map(PageIdx).collect();
        Ok(Arc::new(Self { area, free: Mutex::new(free), layout }))
    }
}

// SAFETY: one area, all of it present; each number is on the stack or out, never both.
unsafe impl Provider for HeapPages {
    fn area(&self) -> &Arc<Area> {
        &self.area
    }
    fn reserve(&self, order: u8, _: Option<NodeId>, out: &mut [PageIdx]) -> usize {
        let mut free = self.free.lock().expect("no holder panics");
        let taken = if order == 0 { out.len().min(free.len()) } else { 0 };
        let rest = free.len() - taken;
        out[..taken].copy_from_slice(&free[rest..]);
        free.truncate(rest);
        taken
    }
    unsafe fn release(&self, _: u8, pages: &[PageIdx]) {
        self.free.lock().expect("no holder panics").extend_from_slice(pages);
    }
    fn available(&self, order: u8) -> usize {
        if order == 0 { self.free.lock().expect("no holder panics").len() } else { 0 }
    }
    fn describe(&self) -> String {
        format!("{} pages of the Rust heap", self.area.pages())
    }
}

impl Drop for HeapPages {
    fn drop(&mut self) {
        let base = self.area.base().unwrap_or(0) as *mut u8;
        // SAFETY: this is the provider, and no pool is left: each pool keeps its provider alive.
        unsafe { self.area.close() };
        // SAFETY: allocated in `new` with this layout, freed once.
        unsafe { dealloc(base, self.layout) };
    }
}

/// Runs the example.
pub fn main() -> Result<(), Box<dyn Error>> {
    let heap = HeapPages::new(256)?;
    let pool = Pool::new(PoolParams::default(), heap.clone())?.bind();
    let buffers: Vec<_> = (0..100).map_while(|_| pool.alloc_page()).collect();
    println!("{}: {} allocated, {} left", heap.describe(), buffers.len(), heap.available(0));
    drop(buffers);
    println!("all returned: {:?}", pool.inflight());
    drop(pool); // its pages return to the provider
    assert_eq!(heap.available(0), 256);
    Ok(())
}
