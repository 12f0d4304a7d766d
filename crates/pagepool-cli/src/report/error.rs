//! Errors in words.

use std::io;

/// An error and its causes, in one line.
pub fn error_chain(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", error_chain(source)),
        None => error.to_string(),
    }
}

/// Why a thread could not be started, and what helps.
pub fn no_thread(error: &io::Error) -> String {
    let remedy = pagepool::remedy("clone", error).unwrap_or("use fewer threads");
    format!("a thread could not be started: {error}; {remedy}")
}
