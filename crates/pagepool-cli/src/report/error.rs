//! Errors in words.

use std::io;

pub use pagepool_watch::commands::error_chain;

/// Why a thread could not be started, and what helps.
pub fn no_thread(error: &io::Error) -> String {
    let remedy = pagepool::remedy("clone", error).unwrap_or("use fewer threads");
    format!("a thread could not be started: {error}; {remedy}")
}
