//! Errors of this crate for parameters that are out of range.

use std::fmt::Display;
use std::ops::RangeInclusive;

use pagepool::Error;

pub(crate) fn parameter(field: &'static str, value: impl ToString, must_be: impl Into<String>) -> Error {
    Error::Parameter { field, value: value.to_string(), must_be: must_be.into() }
}

pub(crate) fn within<T: PartialOrd + Display>(
    field: &'static str,
    value: T,
    range: RangeInclusive<T>,
) -> Result<(), Error> {
    match range.contains(&value) {
        true => Ok(()),
        false => Err(parameter(field, value, format!("{} to {}", range.start(), range.end()))),
    }
}
