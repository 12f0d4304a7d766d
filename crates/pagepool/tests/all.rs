//! All tests of the public interface that do not need a process of their own, in one program: it is
//! compiled and linked once. `cargo test -p pagepool --test all NAME::` runs those of one file.

mod api;
mod arena;
mod bytes;
mod callbacks;
mod counters;
mod deferred;
mod device_table;
mod domains;
mod examples;
mod failures;
mod filled_packet;
mod holders;
mod memory;
mod model;
mod nodes;
mod packets;
mod packets_model;
mod panicking_device;
mod panics;
mod provider;
mod raw;
mod recording_pool;
mod registry;
mod returns;
mod shrink;
mod split;
mod waiting;
mod wakeups;
