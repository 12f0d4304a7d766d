//! What a command prints, and where: numbers, errors, JSON, tables, the verdict, the exit status,
//! messages for a service manager; and the terminals that show it. Nothing here knows what is measured.

pub(crate) mod colour;
mod error;
pub(crate) mod exit_status;
mod figure_options;
pub(crate) mod holders;
mod json;
mod live_line;
mod loss;
mod number;
mod option_groups;
pub mod output;
mod service_manager;
pub mod table;
mod terminal;
mod verdict;

pub(crate) use colour::Colour;
pub use error::{error_chain, in_words, no_thread};
pub use figure_options::{FigureOptions, JsonForm, run_seconds};
pub use json::{object, print_json, print_json_line};
pub use live_line::LiveLine;
pub use loss::{LossLimit, LossShare};
pub use number::{count_of, grouped, in_range, per_second, ranges, without_zeros};
pub(crate) use option_groups::{INTERFACES, MEMORY, OUTPUT, PACKETS, THREADS};
pub(crate) use service_manager::ServiceManager;
pub use terminal::{OWN_LINE, Terminal, fold, in_line, width};
pub use verdict::Verdict;
