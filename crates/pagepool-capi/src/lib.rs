//! The C interface of pagepool: `libpagepool` and `pagepool.h`. Its users read the header and `docs/c-api.md`; this is
//! about its inside.
//!
//! What   handles are tokens, never addresses (`token`): looked up in tables that outlive everything (`ledger`,
//!        `view`, `table`), so a token that is stale, foreign or made up is refused in release builds and nothing
//!        is touched. Functions stand in the files named after what they act on.
//! Who    each function's text says which thread may call it; an owner's call from another thread is `EPERM`.
//! Errors a negative errno, or NULL, and a sentence per thread (`refusal`). Nothing unwinds into C.

mod arena;
mod arena_params;
mod buf;
mod bulk;
mod claim;
mod device;
mod domain;
mod handles;
mod hold;
mod inline;
mod ledger;
mod node;
mod owner;
mod params;
mod pool;
mod raw;
mod refusal;
mod registry;
mod room;
mod shared;
mod shutdown;
mod sized;
mod skb;
mod skb_rows;
mod slots;
mod stats;
mod table;
mod tag;
mod thread;
mod token;
mod version;
mod view;
mod wait;
mod wake;
