//! All tests of the public interface that do not need a process of their own, in one program: it is
//! compiled and linked once. `cargo test -p pagepool-link --test all NAME::` runs those of one file.

mod link;
mod namespace;
mod tap;
mod two_hosts;
