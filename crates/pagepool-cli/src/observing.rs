//! What the commands show that observe other processes: `list`, `show`, `clean`, `export`.

pub mod details;
pub mod json;
pub mod look;
pub mod options;
pub mod overview;
pub mod table;
