//! For tests on machines that lack a capability.

use pagepool_link::LinkError;

/// Returns what was made for a test, or, without the capability, `None` after a line on standard output with
/// SKIP and the reason.
///
/// # Panics
///
/// On any other error.
pub fn or_skip<T>(test: &str, made: Result<T, LinkError>) -> Option<T> {
    match made {
        Ok(made) => Some(made),
        Err(error) if error.is_permission() => {
            println!("SKIP {test}: {error}");
            None
        }
        Err(error) => panic!("{test}: {error}: {:?}", std::error::Error::source(&error)),
    }
}
