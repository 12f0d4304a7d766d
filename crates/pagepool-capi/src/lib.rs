//! The C interface of pagepool: `libpagepool` and `pagepool.h`. Its users read the header and
//! `docs/c-api.md`; this text is for those who change it.
//!
//! What   a handle is a token, never an address (`handles::token`). It is looked up in tables that are never
//!        freed (`directory`, `view`, `table`), so a token that is stale, of another
//!        kind or made up fails in every build, and nothing changes.
//! Who    the comment of each function names its thread; an owner's call on another thread is `EPERM`.
//! Errors a negative errno or NULL, and a sentence for the thread (`error`). Nothing unwinds into C.

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
