//! What a command prints: numbers, errors, JSON, the table of a run and its verdict. Nothing here knows what
//! is measured.

pub mod error;
pub mod json;
pub mod live_table;
pub mod number;
pub mod verdict;
