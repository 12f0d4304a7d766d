//! Who holds what for how long, in pools that are asked to know it.
//!
//! A page that goes out gets a record: when, and where in the program, by which thread, under which tag. The
//! record is cleared when the page is home. [`table`] has the protocol, [`view`] is what observers get of it.

pub(crate) mod record;
pub(crate) mod stack;
pub(crate) mod table;
pub(crate) mod tag;
pub(crate) mod text_row;
pub(crate) mod view;
