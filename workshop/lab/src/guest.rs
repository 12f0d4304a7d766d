//! Small Linux guests under QEMU: other kernels, cards and NUMA nodes than this machine has.
//!
//! A [`Guest`] boots a Debian kernel without KVM, runs one program in it as root, passes on its output, and
//! returns its exit status. Nothing is installed: the guest's files are an in-memory archive of busybox, the
//! program and its libraries. The command `guest` of this crate runs guests from a shell. [`CASES`] is the
//! list of what must pass in guests.
//!
//! **Requires** `qemu-system-x86_64`, a static busybox, `xz`, and, for a kernel that is not in the cache,
//! `apt-get` with the network. [`GuestError::Missing`] names what is missing; a test then prints SKIP.
//!
//! **Cost.** A guest boots in 6 to 10 s and uses one core per virtual CPU. The first run with a kernel
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
