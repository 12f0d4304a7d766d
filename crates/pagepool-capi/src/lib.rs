//! The C interface of pagepool: `libpagepool` and `pagepool.h`. Its users read the header and
//! `docs/c-api.md`; this is about its inside.
//!
//! What   handles are tokens, never addresses (`handles::token`): looked up in tables that outlive everything
//!        (`ledger`, `view`, `table`), so a token that is stale, foreign or made up is refused in release
//!        builds and nothing is touched. Functions stand in the files named after what they act on.
//! Who    each function's text says which thread may call it; an owner's call from another thread is `EPERM`.
//! Errors a negative errno, or NULL, and a sentence per thread (`error`). Nothing unwinds into C.

mod api;
mod args;
#[doc(hidden)]
pub mod counters;
mod error;
mod handles;
mod inline;
mod oom;
