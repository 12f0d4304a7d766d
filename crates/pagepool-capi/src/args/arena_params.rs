//! The parameters of an arena, as C passes them.

// UNSAFETY: reads a C caller's texts by address, and calls its callback.
#![expect(unsafe_code)]

use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::AtomicU8;

use ::pagepool::{ArenaParams, Backing, NodeId, NodePolicy, OnMissingHuge, PAGE_SIZE, Topology, uncancelled};

use crate::args::range::{flag, node_of_field, out_of_range};
use crate::args::sized::{Sized0, text};
use crate::error::CallResult;

/// The parameters of an arena. Start from PAGEPOOL_ARENA_PARAMS_INIT, or from zeroes with `size` set: in each
/// field 0 selects the default.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ArenaParamsC {
    /// sizeof(struct pagepool_arena_params): fields can be added at the end.
    pub size: usize,
    /// The largest size of the arena in bytes: a multiple of 4096, or of the huge page size for the hugetlb
    /// kinds; rounded up to the system's page, if that is larger (arm64). 0 means 64 MiB. With
    /// PAGEPOOL_BACKING_CALLER it is the length of `memory`.
    pub max_bytes: u64,
    /// The kind of memory: one of PAGEPOOL_BACKING_.
    pub backing: u32,
    /// The NUMA node of the memory: PAGEPOOL_NODE(n) for node n, PAGEPOOL_NODE_LOCAL, or 0 or
    /// PAGEPOOL_NODE_ANY for any node. No effect if `nodes` is not 0.
    pub node: c_int,
    /// For tests: the number of simulated NUMA nodes, 1 to 255. 0 means the nodes of the machine.
    pub nodes: u32,
    /// 1: fail if no huge pages are available. 0: take smaller pages instead, which pagepool_arena_describe
    /// reports.
    pub huge_or_fail: u32,
    /// For tests with `nodes`: returns the simulated node of a page. NULL divides the arena into `nodes`
    /// equal parts. The library calls it on any thread, when it commits memory; the callback must not call
    /// the library. A page of a higher order requires all its base pages on one node.
    pub node_of_page: Option<unsafe extern "C" fn(page_index: u32, arg: *mut c_void) -> u32>,
    /// The second argument of `node_of_page`.
    pub arg: *mut c_void,
    /// The name in descriptions and of the memfd; copied. NULL means "arena".
    pub name: *const c_char,
    /// With PAGEPOOL_BACKING_CALLER: the memory, aligned to 4096 bytes. It must stay until the handle of the
    /// arena is released and its last pool is freed.
    pub memory: *mut c_void,
    /// 1: let the kernel provide the memory of a region when it is committed, not at the first access. On a
    /// machine with several nodes it always does so, unless `node` names one.
    pub prefault: u32,
    /// 1: lock the memory into RAM, as mlock(2) does.
    pub mlock: u32,
    /// 1: commit all memory now and never trim it. Domains that fix the arena (an AF_XDP UMEM) require it.
    pub commit_all: u32,
    /// 1: a child of fork(2) inherits the memory. 0: it does not. No effect on the caller's memory.
    pub inherit_on_fork: u32,
    /// Bytes of a page of order 0: 2048 or 4096. 0 means 4096. With 2048, a packet of 1514 bytes takes half
    /// the memory, if its headroom and tailroom fit in the other 534 bytes. Not for PAGEPOOL_BACKING_DEVICE.
    pub page_size: u64,
}

// SAFETY: plain integers and pointers, of which zeroes are values; a callback that is not set is zero.
unsafe impl Sized0 for ArenaParamsC {
    const LEAST: usize = std::mem::offset_of!(Self, name);
}

/// Any node: for an arena the memory policy of the process decides, for a pool the node of the thread that
/// refills. It is the default in fields. Arguments need it, because their 0 is node 0.
pub const PAGEPOOL_NODE_ANY: c_int = -1;
/// For an arena: the node of the thread that makes it grow.
pub const PAGEPOOL_NODE_LOCAL: c_int = -2;

/// The default: PAGEPOOL_BACKING_TRANSPARENT_HUGE.
pub const PAGEPOOL_BACKING_DEFAULT: u32 = 0;
/// Anonymous memory in pages of 4 KiB.
pub const PAGEPOOL_BACKING_ANONYMOUS_4K: u32 = 1;
/// Anonymous memory; the kernel may use transparent huge pages for it.
pub const PAGEPOOL_BACKING_TRANSPARENT_HUGE: u32 = 2;
/// hugetlb pages of 2 MiB.
pub const PAGEPOOL_BACKING_HUGE_2M: u32 = 3;
/// hugetlb pages of 1 GiB.
pub const PAGEPOOL_BACKING_HUGE_1G: u32 = 4;
/// A memfd in pages of 4 KiB, which a peer process can map.
pub const PAGEPOOL_BACKING_MEMFD: u32 = 5;
/// A memfd of hugetlb pages of 2 MiB.
pub const PAGEPOOL_BACKING_MEMFD_HUGE: u32 = 6;
/// The caller's memory: `memory` and `max_bytes`.
pub const PAGEPOOL_BACKING_CALLER: u32 = 7;
/// Memory of a device, which the CPU cannot read: its pages have numbers and device addresses only. It is on
/// node 0 unless `node` names another.
pub const PAGEPOOL_BACKING_DEVICE: u32 = 8;
/// For pagepool_open, added to a kind of huge pages: fail if no huge pages are available.
pub const PAGEPOOL_HUGE_OR_FAIL: u32 = 256;

struct CallbackArg(*mut c_void);

// SAFETY: the header says that the callback is called with this argument on any thread.
unsafe impl Send for CallbackArg {}
// SAFETY: the header says that the callback is called on any thread, also on several at a time.
unsafe impl Sync for CallbackArg {}

impl ArenaParamsC {
    /// `max_bytes`, or the default for 0.
    pub(crate) fn bytes(&self) -> u64 {
        if self.max_bytes == 0 { ArenaParams::default().max_bytes } else { self.max_bytes }
    }

    /// `here` is the node on which threads appear to run, with simulated nodes.
    ///
    /// # Safety
    /// `name` is NULL or ends with a zero byte. `node_of_page` may be called with `arg` as long as the arena
    /// lives.
    pub(crate) unsafe fn to_rust(self, here: &Arc<AtomicU8>) -> CallResult<ArenaParams> {
        Ok(ArenaParams {
            // SAFETY: the caller guarantees that `name` is NULL or ends with a zero byte.
            name: unsafe { text(self.name, "arena") },
            max_bytes: self.bytes(),
            backing: backing(self.backing)?,
            on_missing_huge: match flag("huge_or_fail", self.huge_or_fail)? {
                false => OnMissingHuge::default(),
                true => OnMissingHuge::Fail,
            },
            node: self.node_policy()?,
            topology: self.topology(here)?,
            prefault: flag("prefault", self.prefault)?,
            mlock: flag("mlock", self.mlock)?,
            commit_all: flag("commit_all", self.commit_all)?,
            inherit_on_fork: flag("inherit_on_fork", self.inherit_on_fork)?,
            page_size: if self.page_size == 0 { PAGE_SIZE } else { self.page_size as usize },
        })
    }

    fn node_policy(&self) -> CallResult<NodePolicy> {
        if self.nodes > 0 {
            return Ok(NodePolicy::Any); // simulated nodes are where the callback says
        }
        Ok(match self.node {
            PAGEPOOL_NODE_LOCAL => NodePolicy::Local,
            PAGEPOOL_NODE_ANY => NodePolicy::Any,
            nid => node_of_field("node", nid)?.map_or(NodePolicy::Any, NodePolicy::Bind),
        })
    }

    fn topology(&self, here: &Arc<AtomicU8>) -> CallResult<Topology> {
        let nodes = u8::try_from(self.nodes).map_err(|_| out_of_range("nodes", self.nodes, "0 to 255"))?;
        let (callback, arg) = (self.node_of_page, CallbackArg(self.arg));
        Ok(match (nodes, callback) {
            (0, None) => Topology::detect(),
            (0, Some(_)) => return Err(out_of_range("nodes", 0, "1 to 255 with node_of_page")),
            (_, None) => Topology::pretend_halves(nodes).with_current_node(here.clone()),
            (_, Some(callback)) => {
                let node_of = move |page: ::pagepool::PageIdx| {
                    let arg: &CallbackArg = &arg;
                    // SAFETY: the caller guarantees that the callback may be called with its argument.
                    let node = uncancelled(|| unsafe { callback(page.0, arg.0) });
                    NodeId(u8::try_from(node).unwrap_or(u8::MAX)) // above the last node: the last one
                };
                Topology::pretend(nodes, node_of).with_current_node(here.clone())
            }
        })
    }
}

/// The kind of memory of a PAGEPOOL_BACKING_ value, except for device memory.
pub(crate) fn backing(value: u32) -> CallResult<Backing> {
    Ok(match value {
        PAGEPOOL_BACKING_DEFAULT => Backing::default(),
        PAGEPOOL_BACKING_ANONYMOUS_4K => Backing::Anonymous4k,
        PAGEPOOL_BACKING_TRANSPARENT_HUGE => Backing::TransparentHuge,
        PAGEPOOL_BACKING_HUGE_2M => Backing::Huge2M,
        PAGEPOOL_BACKING_HUGE_1G => Backing::Huge1G,
        PAGEPOOL_BACKING_MEMFD => Backing::Memfd { huge: false },
        PAGEPOOL_BACKING_MEMFD_HUGE => Backing::Memfd { huge: true },
        PAGEPOOL_BACKING_CALLER => Backing::Caller,
        other => return Err(out_of_range("backing", other, "a PAGEPOOL_BACKING_ value, 0 to 8")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeroes_are_the_defaults() {
        // SAFETY: zeroes are a valid value.
        let zeroes: ArenaParamsC = unsafe { std::mem::zeroed() };
        // SAFETY: there is no text and no callback.
        let params = unsafe { zeroes.to_rust(&Arc::default()) }.unwrap();
        let default = ArenaParams { name: "arena".into(), ..Default::default() };
        assert_eq!(format!("{params:?}"), format!("{default:?}"));
    }
}
