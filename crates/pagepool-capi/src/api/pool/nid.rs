//! The NUMA node that a pool prefers.

// UNSAFETY: exported functions.
#![expect(unsafe_code)]

use std::ffi::c_int;

use crate::args::range::node_of_argument;
use crate::error::status;
use crate::handles::opaque::PoolHandle;
use crate::handles::owner::enter;
use crate::handles::token::Token;

/// Sets the NUMA node that the pool prefers, and returns the pages of the cache to the arena. -1 means the
/// node of the thread that refills, read at each refill. Linux: page_pool_update_nid.
///
/// Thread: owner.
/// Errors: -EINVAL for a node that the arena does not have; nothing changes then. -EPERM on another thread.
///     -EINVAL, -ESTALE for a bad handle.
/// Cost: proportional to the pages in the cache.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_update_nid(pool: *mut PoolHandle, nid: c_int) -> c_int {
    status(|| enter(Token::of(pool), |owned| Ok(owned.bound.update_nid(node_of_argument("nid", nid)?)?)))
}

/// Calls pagepool_update_nid if `nid` differs from the pool's node. Linux: page_pool_nid_changed.
///
/// Thread: owner.
/// Errors: as pagepool_update_nid.
/// Cost: a comparison if the node is the same.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_nid_changed(pool: *mut PoolHandle, nid: c_int) -> c_int {
    status(|| enter(Token::of(pool), |owned| Ok(owned.bound.nid_changed(node_of_argument("nid", nid)?)?)))
}
