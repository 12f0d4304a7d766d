//! Reads the source of the workspace: its crates, their layers, and what their files import. The tests of this
//! crate check the shape of the source: `cargo test -p pagepool-house`.

pub mod imports;
pub mod layers;
pub mod source;
pub mod tokens;
