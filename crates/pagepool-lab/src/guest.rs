//! Small Linux guests under QEMU: another kernel, other cards and other NUMA nodes than this machine has.
//!
//! A [`Guest`] boots a kernel of Debian's without KVM, runs one program in it as root, and ends with its exit
//! status; what the program prints is passed on. Nothing is installed in a guest: its files are an archive
//! in memory that holds busybox, the program, and the libraries that it needs. The command `guest` of this
//! crate does the same from a shell. [`CASES`] is the list of what must hold in guests.
//!
//! **Requires** `qemu-system-x86_64`, a static busybox, `xz`, and, for a kernel that is not in the cache,
//! `apt-get` with the network. [`GuestError::Missing`] says what is not there; a test then prints SKIP.
//!
//! **Cost.** A guest is up after 6 to 10 s and uses one core a virtual CPU. The first run with a kernel
//! downloads 40 to 120 MiB.

mod bridges;
mod card;
mod case;
mod case_list;
mod case_run;
mod case_table;
mod error;
mod files;
mod host_tools;
mod kernel_image;
mod kernel_modules;
mod machine;
mod run;

pub use card::{GuestCard, Iommu};
pub use case::{Case, CaseGuest, CaseResult, Verdict};
pub use case_list::{CASE_GUESTS, CASES};
pub use case_run::{CaseRun, CaseTurn, Programs};
pub use case_table::CaseTable;
pub use error::GuestError;
pub use host_tools::HostTools;
pub use kernel_image::{KernelImage, SUITES};
pub use machine::Guest;
pub use run::GuestEnd;
