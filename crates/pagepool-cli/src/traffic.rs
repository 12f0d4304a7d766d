//! The commands on interfaces of the network namespace that they are run in: `drop`, `echo`, `forward`, `gen`.
//!
//! What   a command is a [`Command`]: its arguments, and the [`Work`] that each thread does on packets, or the [`Feed`] that
//!        its own frames come from. All the rest is the same for all.
//! How    `interface` asks the kernel and leaves alone what it should; `stage` opens a socket and a pool for each queue over
//!        one memory; each `worker` is a thread with its queues, on which it runs the work; `live` prints what the threads
//!        show in the `course`, and `verdict` says what became of it. `pcap` writes packets to a file.

pub mod capture;
pub mod command;
pub mod interface;
mod live;
mod losses;
pub mod options;
pub mod run;
mod run_state;
mod setup;
mod verdict;
pub mod worker;
