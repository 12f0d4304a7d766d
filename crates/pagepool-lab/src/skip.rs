//! Tests on machines that lack a capability.

use pagepool_net::link::NetError;

/// What was made for a test; without the capability for it `None`, and a line on standard output that says
/// SKIP and why.
///
/// # Panics
///
/// On any other error.
pub fn or_skip<T>(test: &str, made: Result<T, NetError>) -> Option<T> {
    match made {
        Ok(made) => Some(made),
        Err(error) if error.is_permission() => {
            println!("SKIP {test}: {error}");
            None
        }
        Err(error) => panic!("{test}: {error}: {:?}", std::error::Error::source(&error)),
    }
}
