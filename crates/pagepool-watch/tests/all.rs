//! All tests of the public interface that do not need a process of their own, in one program: it is
//! compiled and linked once. `cargo test -p pagepool-watch --test all NAME::` runs those of one file.

mod filtered;
mod holders;
mod publish;
mod published;
mod published_hostile;
