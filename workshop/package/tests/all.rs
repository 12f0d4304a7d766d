//! All tests of installing and packaging, in one program: it is compiled and linked once.
//! `cargo test -p pagepool-package NAME::` runs those of one file.

mod consumers;
mod install;
mod installed;
mod packages;
