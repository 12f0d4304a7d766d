//! Values out of their range, and nodes.

use std::ffi::c_int;

use ::pagepool::NodeId;

use crate::error::{CallError, CallResult};

/// A node as C gives it: negative is none in particular.
pub(crate) fn node(field: &str, nid: c_int) -> CallResult<Option<NodeId>> {
    if nid < 0 {
        return Ok(None);
    }
    u8::try_from(nid)
        .map(|nid| Some(NodeId(nid)))
        .map_err(|_| out_of_range(field, nid, "-1, or a node up to 255"))
}

/// A value out of its range, in the words of Rust's errors.
#[cold]
pub(crate) fn out_of_range(field: &str, value: impl std::fmt::Display, must_be: &str) -> CallError {
    CallError::formatted(libc::EINVAL, format!("{field} is {value}, but must be {must_be}"))
}
