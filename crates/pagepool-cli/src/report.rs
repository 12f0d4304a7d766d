//! What a command prints, and where: numbers, errors, JSON, live tables, the verdict, the exit status,
//! messages for a service manager; and the terminals that show it. Nothing here knows what is measured.

pub(crate) mod colour;
pub mod error;
pub(crate) mod exit_status;
pub mod figure_options;
pub(crate) mod holders;
pub mod json;
pub mod live_table;
pub mod loss;
pub mod number;
pub(crate) mod option_groups;
pub mod output;
pub(crate) mod service_manager;
pub mod terminal;
pub mod verdict;
