//! Who holds which page and for how long, in pools that record it.
//!
//! An allocated page gets a record: time, place in the program, thread, tag. Its return clears the record.
//! [`table`] has the protocol; [`view`] is what observers get.

pub(crate) mod record;
pub(crate) mod stack;
pub(crate) mod table;
pub(crate) mod tag;
pub(crate) mod text_row;
pub(crate) mod view;
