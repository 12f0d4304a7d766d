//! The C interface of pagepool: `libpagepool` and `pagepool.h`. Users read the header and `docs/c-api.md`.
//! This text is for maintainers.
//!
//! What   a handle is a token, never an address (`handles::token`). It is looked up in tables that are never
//!        freed (`directory`, `view`, `table`), so a stale or invented token, or one of another kind, fails
//!        in every build, and nothing changes.
//! Who    see the comment of each function. Calls that require the owner fail on other threads with `EPERM`.
//! Errors a negative errno or NULL, and a text kept for the thread (`error`). Nothing unwinds into C.

mod api;
mod args;
mod c_words;
mod caller;
#[doc(hidden)]
pub mod counters;
mod error;
mod handles;
#[doc(hidden)]
pub mod inline;
mod oom;
