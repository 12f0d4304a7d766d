//! The machine: system calls, atomics and fences, tables and blocks of memory. Knows nothing of pages.

pub(crate) mod call;
pub(crate) mod memory;
pub(crate) mod slab;
pub(crate) mod sync;
pub(crate) mod table;
pub(crate) mod thread_end;
pub(crate) mod wakeup;
