//! Values out of range, and NUMA nodes.

use std::ffi::c_int;

use ::pagepool::NodeId;

use crate::error::{CallError, CallResult};

/// What PAGEPOOL_NODE adds to a node's number. So zeroes name no node, and a bare number in a field is
/// refused.
const NAMED: c_int = 256;
const ANY: c_int = -1;

/// The node of a field. The default 0 and PAGEPOOL_NODE_ANY mean any node.
pub(crate) fn node_of_field(field: &str, nid: c_int) -> CallResult<Option<NodeId>> {
    match nid {
        ANY | 0 => Ok(None),
        NAMED..512 => Ok(Some(NodeId((nid - NAMED) as u8))),
        1..NAMED => Err(out_of_range(
            field,
            nid,
            &format!("PAGEPOOL_NODE({nid}) for that node, or 0 for the default"),
        )),
        _ => {
            Err(out_of_range(field, nid, "0, PAGEPOOL_NODE_ANY, or PAGEPOOL_NODE(n) for a node n up to 255"))
        }
    }
}

/// The node of an argument, a plain number. PAGEPOOL_NODE_ANY means any node.
pub(crate) fn node_of_argument(name: &str, nid: c_int) -> CallResult<Option<NodeId>> {
    match nid {
        ANY => Ok(None),
        0..NAMED => Ok(Some(NodeId(nid as u8))),
        NAMED..512 => Err(out_of_range(
            name,
            nid,
            &format!("-1, or a node up to 255: {} without PAGEPOOL_NODE, which is for fields", nid - NAMED),
        )),
        _ => Err(out_of_range(name, nid, "-1, or a node up to 255")),
    }
}

/// A field that is 0 or 1. Other numbers are reserved for later versions.
pub(crate) fn flag(field: &str, value: u32) -> CallResult<bool> {
    match value {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(out_of_range(field, other, "0 or 1")),
    }
}

/// The error for a value out of range, worded as Rust's errors.
#[cold]
pub(crate) fn out_of_range(field: &str, value: impl std::fmt::Display, must_be: &str) -> CallError {
    CallError::formatted(libc::EINVAL, format!("{field} is {value}, but must be {must_be}"))
}
