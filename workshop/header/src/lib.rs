//! Writes what follows from the source of the C library: `pagepool.h` and `pagepool_skb.h`, the list of exported
//! symbols, the version script of the linker, and the list of what compiled programs rely on.
//!
//! The tests of this crate compare them with the committed files: `cargo test -p pagepool-header`.

pub mod abi_list;
pub mod header;
pub mod version_script;
