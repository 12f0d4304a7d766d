//! All tests of the public interface that do not need a process of their own, in one program: it is
//! compiled and linked once. `cargo test -p pagepool-net --test all NAME::` runs those of one file.

mod beside;
mod btf;
mod cable;
mod cards;
mod crafted;
mod cycles;
mod devices;
mod documents;
mod drivers;
mod event_loop;
mod examples;
mod fake;
mod fault_nic;
mod forward;
mod many_ports;
mod mem_forward;
mod mem_nic;
mod published;
mod redirect;
mod rx_metadata;
mod sleeping;
mod steering;
mod threads;
mod tokio;
mod tx_metadata;
mod veth;
mod xsk;
mod xsk_device;
mod xsk_errors;
mod xsk_killed;
mod xsk_queues;
mod xsk_sending;
mod xsk_teardown;
mod zerocopy;
