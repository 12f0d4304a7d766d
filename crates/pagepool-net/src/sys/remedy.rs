//! Errors of calls, with what may help.

use std::io;

use pagepool::Error;
use pagepool_link::sys::remedy::remedy;

/// The error of a call. `known`: the caller's remedy for errors that the table does not know.
pub(crate) fn failed(call: &'static str, source: io::Error, known: impl Into<String>) -> Error {
    let remedy = remedy(call, &source).unwrap_or_else(|| known.into());
    Error::System { call, remedy, source }
}

/// The error of a call, like [`failed`], if the caller has no `own` remedy for it.
pub(crate) fn failed_unless(
    own: Option<String>,
    call: &'static str,
    source: io::Error,
    known: impl Into<String>,
) -> Error {
    match own {
        Some(remedy) => Error::System { call, remedy, source },
        None => failed(call, source, known),
    }
}

pub(crate) fn not_copied(source: io::Error) -> Error {
    failed("fcntl(F_DUPFD_CLOEXEC)", source, "the descriptor is not open")
}

pub(crate) fn no_event(source: io::Error) -> Error {
    failed("eventfd", source, "no event descriptor could be created: use fewer devices and handoffs")
}
