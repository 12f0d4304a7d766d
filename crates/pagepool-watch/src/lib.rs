//! Finds out why a packet path is slow or leaks: reads and judges the page pools that processes publish.
//!
//! A process that calls [`pagepool::publish`] shows its pools in a file. This crate reads the files of all
//! processes of a user. Reading does not disturb a running process, and a killed one still shows its last
//! state. Files are read, never mapped. Every offset in them is checked: a damaged file gives an error.
//! `docs/published-file.md` in the repository has the layout.
//!
//! # Example
//!
//! ```
//! # let folder = std::env::temp_dir().join(format!("pagepool-watched-{}", std::process::id()));
//! # // SAFETY: the example has one thread.
//! # unsafe { std::env::set_var("PAGEPOOL_RUN", &folder) };
//! use pagepool::{Arena, ArenaParams, Pool, PoolParams};
//! use pagepool_watch::RunFolder;
//!
//! let publication = pagepool::publish("doc")?;
//! let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
//! let pool = Pool::new(PoolParams { name: "rx0".into(), ..Default::default() }, arena)?.bind();
//! let buffer = pool.alloc_page();
//!
//! // Any process of the same user:
//! let processes = RunFolder::of_user()?.processes();
//! let seen = &processes[0].as_ref().unwrap().pools[0];
//! assert_eq!((seen.name.as_str(), seen.inflight.out, seen.stats.alloc_slow), ("rx0", 1, 1));
//! # drop((buffer, publication));
//! # std::fs::remove_dir(folder).unwrap();
//! # Ok::<(), pagepool::Error>(())
//! ```
//!
//! # The parts
//!
//! | to | use |
//! |---|---|
//! | read what processes publish | [`RunFolder`]: a [`ProcessView`] for each, with its [pools](PoolView) |
//! | remove the files of dead processes | [`RunFolder::clean`] |
//! | see rates | two [`Observation`]s, and the [`PoolMoved`] between them |
//! | export metrics to Prometheus | [`write_metrics`] |
//! | see the page pools of the kernel's drivers | [`KernelWatch`] |
//! | find what is slow, lost or leaking | an [`Examination`](doctor::Examination) |
//! | print names of other processes, escaped | [`shown`], [`shown_path`] |
//!
//! The command `pagepool` of the crate `pagepool-cli` prints and draws these: `list`, `show`, `top`,
//! `export`, `doctor`.

pub mod doctor;
mod kernel_list;
mod kernel_look;
mod late_thread;
mod metrics;
mod observation;
mod pool_moved;
mod published;
mod words;

pub use kernel_look::{KernelLook, KernelWatch};
pub use metrics::{MetricsFormat, write_metrics};
pub use observation::Observation;
pub use pagepool::published::{is_shown, shown, shown_except, shown_path};
pub use pool_moved::PoolMoved;
pub use published::model::{EntryView, Life, PoolView, ProcessView};
pub use published::run_folder::RunFolder;

/// What the commands of `pagepool-cli` share with this crate. Not an API: any version may change it.
#[doc(hidden)]
pub mod commands {
    pub use crate::kernel_list::{numbers, ranges};
    pub use crate::late_thread::{LateThread, MoreQueues};
    pub use crate::pool_moved::{per_second, recycled_of};
    pub use crate::published::model::places;
    pub use crate::words::{bytes, error_chain, grouped, spoken};
}

/// For tests and fuzzers.
#[doc(hidden)]
pub mod testing {
    pub use crate::published::process::read_bytes as read_published;
}
