//! Why a guest did not run a program.

use std::fmt;

/// Why a guest did not run a program.
#[derive(Debug)]
#[non_exhaustive]
pub enum GuestError {
    /// This machine lacks something: the text says what, and how to get it. A test prints SKIP.
    Missing(String),
    /// The request was impossible, or the guest did not get as far as the program.
    Failed(String),
}

impl fmt::Display for GuestError {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let (Self::Missing(text) | Self::Failed(text)) = self;
        f.write_str(text)
    }
}

impl std::error::Error for GuestError {}

impl GuestError {
    pub(super) fn file(doing: &str, path: &std::path::Path, error: &std::io::Error) -> Self {
        Self::Failed(format!("{doing} {}: {error}", path.display()))
    }
}
