//! Setup errors: one enum, whose text has the value, the limit and the remedy.
//!
//! Hot paths never create one; they return `Option`, a count, or the item.

use std::{fmt, io};

use crate::remedy::remedy;
use crate::shown::shown;

/// A refused parameter or a failed system call. The text has the value, the limit and the remedy; `source()`
/// has the errno. `Debug` prints the text of `Display`, because a `main` that returns this prints `Debug`:
///
/// ```
/// use pagepool::{Arena, ArenaParams};
/// let error = Arena::new(ArenaParams { max_bytes: 5000, ..Default::default() }).unwrap_err();
/// assert_eq!(format!("{error:?}"), error.to_string());
/// ```
#[non_exhaustive]
pub enum Error {
    /// A parameter is out of range. The C interface reports `EINVAL`.
    Parameter {
        /// The field's name in the parameter struct.
        field: &'static str,
        /// The given value.
        value: String,
        /// The allowed range, in words.
        must_be: String,
    },
    /// A system call failed. The C interface reports its errno.
    System {
        /// The call's name, with the argument that matters.
        call: &'static str,
        /// What the user can do about it.
        remedy: String,
        /// The errno.
        source: io::Error,
    },
    /// A domain refused to map a region. All other mappings of the request were undone.
    Map {
        /// The domain's name.
        domain: String,
        /// Offset of the region's first byte in the area.
        offset: u64,
        /// Length of the region in bytes.
        len_bytes: u64,
        /// The domain's reason.
        reason: String,
    },
    /// The arena cannot grow, because a domain maps it as one range (for example an AF_XDP UMEM).
    Fixed {
        /// The domain that fixes it.
        domain: String,
        /// Bytes that were committed when it was fixed.
        committed_bytes: u64,
    },
    /// Something is still in use.
    Busy {
        /// What is in use, and by whom.
        what: String,
    },
    /// This kind of memory or pool cannot do the operation.
    Unsupported {
        /// What was requested, and what works instead.
        what: String,
    },
}

impl Error {
    /// A parameter error; `must_be` is the range in words.
    #[doc(hidden)]
    pub fn parameter(field: &'static str, value: impl fmt::Display, must_be: impl Into<String>) -> Self {
        Self::Parameter { field, value: value.to_string(), must_be: must_be.into() }
    }

    /// Fails with a [`Parameter`](Self::Parameter) unless `ok`.
    pub(crate) fn require(
        ok: bool,
        field: &'static str,
        value: impl fmt::Display,
        must_be: impl fmt::Display,
    ) -> Result<(), Self> {
        if ok { Ok(()) } else { Err(Self::parameter(field, value, must_be.to_string())) }
    }

    /// Explains the errno of a failed call. `known` gives the remedy for errnos that the [table](remedy)
    /// leaves to the caller, who knows its own values.
    #[doc(hidden)]
    pub fn of_call(call: &'static str, known: impl FnOnce() -> String) -> impl FnOnce(io::Error) -> Self {
        move |source| {
            let remedy = remedy(call, &source).map_or_else(known, Into::into);
            Self::System { call, remedy, source }
        }
    }

    /// The errno that the C interface reports, positive.
    pub fn errno(&self) -> i32 {
        match self {
            Self::Parameter { .. } => libc::EINVAL,
            Self::System { source, .. } => source.raw_os_error().unwrap_or(libc::EIO),
            Self::Map { .. } => libc::EIO,
            Self::Fixed { .. } => libc::ENOSPC,
            Self::Busy { .. } => libc::EBUSY,
            Self::Unsupported { .. } => libc::EOPNOTSUPP,
        }
    }
}

impl fmt::Display for Error {
    /// Escapes what a terminal would obey or not show, because names come from others.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&shown(&self.text()))
    }
}

impl Error {
    fn text(&self) -> String {
        match self {
            Self::Parameter { field, value, must_be } => {
                format!("{field} is {value}, but must be {must_be}")
            }
            Self::System { call, remedy, .. } => format!("{call} failed: {remedy}"),
            Self::Map { domain, offset, len_bytes, reason } => {
                format!("domain {domain} did not map {len_bytes} bytes at offset {offset}: {reason}")
            }
            Self::Fixed { domain, committed_bytes } => format!(
                "the arena cannot grow beyond {committed_bytes} bytes while domain {domain} maps it as one \
                 range: commit all of it first, or use a larger arena"
            ),
            Self::Busy { what } | Self::Unsupported { what } => what.clone(), // sentences
        }
    }
}

/// Prints the text, because `main` shows it to a user.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::System { source, .. } => Some(source),
            _ => None,
        }
    }
}
