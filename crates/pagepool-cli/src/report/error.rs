//! Errors in words.

use std::error::Error;
use std::io;

pub use pagepool_watch::commands::error_chain;

/// Why a thread could not be started, and what helps.
pub fn no_thread(error: &io::Error) -> String {
    let remedy = pagepool::remedy("clone", error).unwrap_or("use fewer threads");
    format!("a thread could not be started: {error}; {remedy}")
}

/// An error and its causes, for `map_err`.
pub fn in_words(error: impl Error) -> String {
    error_chain(&error)
}
