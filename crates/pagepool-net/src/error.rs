//! The errors of this crate: a parameter that is out of range.

use pagepool::Error;

/// A parameter that is not what it must be.
pub(crate) fn parameter(field: &'static str, value: impl ToString, must_be: impl Into<String>) -> Error {
    Error::Parameter { field, value: value.to_string(), must_be: must_be.into() }
}
