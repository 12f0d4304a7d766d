//! All tests of the public interface that do not need a process of their own, in one program: it is
//! compiled and linked once. `cargo test -p pagepool-skb --test all NAME::` runs those of one file.

mod bytes;
#[path = "../../pagepool/tests/filled_packet/mod.rs"]
mod filled_packet;
mod holders;
mod packet_lists;
mod packet_run;
#[path = "../../pagepool/tests/panicking_device/mod.rs"]
mod panicking_device;
mod panics;
mod skb;
