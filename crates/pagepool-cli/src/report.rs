//! What a command tells: numbers, errors, JSON, the table of a run and its verdict, and to a service manager
//! how far it is. Nothing here knows what is measured.

pub mod error;
pub mod json;
pub mod live_table;
pub mod number;
pub mod service_manager;
pub mod verdict;
