//! The return half: a pool as all its handles see it, and every way back.

pub(crate) mod end_watch;
pub(crate) mod frag_return;
pub(crate) mod geometry;
pub(crate) mod late;
pub(crate) mod page_return;
pub(crate) mod pool_core;
