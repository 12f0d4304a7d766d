//! What readers of published files need of this crate (`pagepool-watch`), and names made safe to print
//! (`pagepool-link` as well). Not an API: any version may change it.
//!
//! Why    a reader checks the layout that the publisher writes (`docs/published-file.md`): the two must have
//!        one definition, and only this crate can have it.

pub use crate::holders::record::{HolderRecord, Since, What};
pub use crate::holders::table::{
    HolderHead, OF_SITES, OF_STACKS, OF_TAGS, OF_THREADS, SITES, STACKS, SiteRow, StackRow, TAGS, THREADS,
    TagRow,
};
pub use crate::holders::text_row::HolderThread;
pub use crate::holders::view::{HolderNames, HolderTally};
pub use crate::mem::page::MAX_PAGES;
pub use crate::publication::dead_file::DeadFile;
pub use crate::shown::{is_shown, shown, shown_except, shown_path};
pub use crate::sys::call::coarse_ms;
pub use crate::sys::published_layout as layout;
pub use crate::sys::published_memory::now_ns;
pub use crate::sys::run_folder;
