//! The node that a pool prefers.

// UNSAFETY: functions with fixed names.
#![expect(unsafe_code)]

use std::ffi::c_int;

use ::pagepool::NodeId;

use crate::args::range::node;
use crate::error::status;
use crate::handles::opaque::PoolHandle;
use crate::handles::owner::enter;
use crate::handles::token::Token;

/// Prefers another node from now on; -1 is that of this thread, each time. What is in the cache goes back to the arena.
/// Linux: page_pool_update_nid.
///
/// Thread: the owner's. Errors: -EINVAL for a node that the arena does not know, and nothing changes; -EPERM, -ESTALE.
/// Cost: in proportion to the pages in the cache.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_update_nid(pool: *mut PoolHandle, nid: c_int) -> c_int {
    status(|| enter(Token::of(pool), |owned| Ok(owned.bound.update_nid(node("nid", nid)?)?)))
}

/// pagepool_update_nid if the node is another one. Linux: page_pool_nid_changed.
///
/// Thread, errors: as that. Cost: a compare where it is the same.
#[unsafe(no_mangle)]
pub extern "C" fn pagepool_nid_changed(pool: *mut PoolHandle, nid: c_int) -> c_int {
    status(|| {
        enter(Token::of(pool), |owned| match node("nid", nid)? {
            Some(NodeId(nid)) => Ok(owned.bound.nid_changed(NodeId(nid))?),
            None => Ok(owned.bound.update_nid(None)?),
        })
    })
}
