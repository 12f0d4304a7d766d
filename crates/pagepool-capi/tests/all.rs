//! All tests of the public interface that do not need a process of their own, in one program: it is
//! compiled and linked once. `cargo test -p pagepool-capi --test all NAME::` runs those of one file.

mod abi;
mod adapters;
mod c;
mod costs;
mod dpdk;
mod installed;
mod sites;
mod testpmd;
