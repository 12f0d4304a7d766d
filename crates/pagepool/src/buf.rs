//! The handles to buffers, and ways to return many buffers at once.

pub(crate) mod batch;
pub(crate) mod bulk;
pub(crate) mod handle_bits;
pub(crate) mod handle_copy;
pub(crate) mod page_buf;
pub(crate) mod page_ref;
pub(crate) mod raw_buf;
pub(crate) mod raw_bulk;
pub(crate) mod shared_buf;
pub(crate) mod sink;
pub(crate) mod split;
