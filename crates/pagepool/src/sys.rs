//! System calls, atomics and fences, tables and blocks of memory. Knows nothing of pages.

pub(crate) mod call;
pub(crate) mod memory;
pub(crate) mod placed;
pub(crate) mod published_entry;
#[doc(hidden)]
pub mod published_layout;
pub(crate) mod published_memory;
#[doc(hidden)]
pub mod run_folder;
pub(crate) mod slab;
pub(crate) mod sync;
pub(crate) mod table;
pub(crate) mod thread_end;
pub(crate) mod wakeup;
