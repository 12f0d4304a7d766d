//! What a command tells, and where: numbers, errors, JSON, the table of a run, its verdict, the exit status,
//! and to a service manager how far it is; and the terminals that this goes to. Nothing here knows what is
//! measured.

pub mod colour;
pub mod error;
pub mod exit_status;
pub mod figure_options;
pub mod json;
pub mod live_table;
pub mod loss;
pub mod number;
pub mod output;
pub mod service_manager;
pub mod terminal;
pub mod verdict;
