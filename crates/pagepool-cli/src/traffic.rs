//! The commands on interfaces of their own network namespace: `drop`, `echo`, `forward`, `gen`.
//!
//! What   a command is a [`command::TrafficCommand`]: a plan, and what each thread does with packets.
//!        Everything else is shared.
//! How    `interface` queries the kernel, and refuses an interface that the machine depends on. `setup` opens
//!        a socket and a pool for each queue over one memory. A polling thread works on each queue.
//!        `live_figures` shows what the threads publish, `service_status` reports it to a service manager,
//!        and `summary` judges. `capture` writes packets to a file.

pub mod capture;
pub mod command;
pub mod interface;
mod live_figures;
mod offloads;
pub mod options;
mod queue_progress;
mod queue_table;
mod run;
mod service_status;
mod setup;
mod summary;
