//! The pool's shared state, and how pages and fragments return to it, also after its end.

pub(crate) mod complete_pages;
pub(crate) mod end_watch;
pub(crate) mod frag_return;
pub(crate) mod geometry;
pub(crate) mod late;
pub(crate) mod page_return;
pub(crate) mod pool_core;
pub(crate) mod raw_line;
pub(crate) mod raw_page;
pub(crate) mod schema;
pub(crate) mod short_name;
