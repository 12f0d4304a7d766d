//! All tests of the public interface that do not need a process of their own, in one program: it is
//! compiled and linked once. `cargo test -p pagepool-lab --test all NAME::` runs those of one file.

mod frames;
mod guest;
mod switch;
