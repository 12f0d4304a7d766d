//! All tests of the public interface that do not need a process of their own, in one program: it is
//! compiled and linked once. `cargo test -p pagepool-watch --test all NAME::` runs those of one file.

#[path = "../../pagepool/tests/filter/mod.rs"]
mod filter;
mod filtered;
mod holders;
mod publish;
mod published;
mod published_hostile;
#[path = "../../pagepool/tests/recording_pool/mod.rs"]
mod recording_pool;
