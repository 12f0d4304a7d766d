//! How pages and fragments return to their pool, even after its end.

pub(crate) mod complete_pages;
pub(crate) mod frag_return;
pub(crate) mod late;
pub(crate) mod page_return;
