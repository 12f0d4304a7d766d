//! All tests of the public interface that do not need a process of their own, in one program: it is
//! compiled and linked once. `cargo test -p pagepool-cli --test all NAME::` runs those of one file.

mod between;
mod commands;
mod crossing;
mod demo;
mod demo_veth;
mod doctor;
mod export;
mod file_limits;
mod json_lines;
mod kernel_pools;
mod killed;
mod link_changes;
mod loss;
mod many_queues;
mod names;
mod observing;
mod offloads;
mod opening;
mod output;
mod picture;
mod privileges;
mod probes;
mod program;
mod scrapes;
mod screen;
mod service_manager;
mod sparse;
mod stacked;
mod strangers;
mod tap;
mod top;
mod traffic;
mod traffic_errors;
mod vhost_user;

/// The tested program: of this build, or the one that `PAGEPOOL` names.
fn tested() -> std::ffi::OsString {
    std::env::var_os("PAGEPOOL").unwrap_or_else(|| env!("CARGO_BIN_EXE_pagepool").into())
}
