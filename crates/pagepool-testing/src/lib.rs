//! Tests your own memory providers, DMA domains and devices, and programs that use pools. Put this crate
//! into `[dev-dependencies]`.
//!
//! ```
//! use pagepool::{Arena, ArenaParams, Pool, PoolParams};
//! use pagepool_testing::{CheckingIommu, conformance_provider};
//!
//! // A provider keeps the rules of `Provider`.
//! let arena = || Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() }).expect("1 MiB");
//! conformance_provider(arena);
//!
//! // A device touches memory only while it is mapped and synced for it.
//! let iommu = CheckingIommu::new("nic0");
//! let params = PoolParams { domains: vec![iommu.clone()], sync_for_device: true, ..Default::default() };
//! let pool = Pool::new(params, arena())?.bind();
//! drop(pool.alloc_page());
//! drop(pool.destroy());
//! let counts = iommu.counts();
//! assert_eq!((counts.faults, counts.bad_syncs, counts.maps), (0, 0, counts.unmaps));
//! # Ok::<(), pagepool::Error>(())
//! ```
//!
//! | to test | use |
//! |---|---|
//! | a provider | [`conformance_provider`]; [`run`] compares two pools over it with a model, after each [`Op`] |
//! | a DMA domain | [`CheckingIommu`]: every access, sync and unmapping is checked |
//! | a device | `conformance_device` (feature `devices`), also over a [`CheckingIommu`] |
//! | a program whose devices fail | `FaultNic` (feature `devices`) drops, delays, corrupts packets, or dies |
//! | a program that runs out of memory | [`FailNth`]; [`PlainMemory`] with few pages |
//! | a program on machines with larger pages | [`SystemPage`] |
//!
//! # Features
//!
//! * `devices`: the conformance suite for devices of `pagepool-net`, and a device that injects faults.

mod conformance;
#[cfg(feature = "devices")]
mod devices;
mod fail_nth;
mod iommu;
mod model;
mod op;
mod plain;
mod run;
mod seed;
mod system_page;

pub use conformance::conformance_provider;
#[cfg(feature = "devices")]
pub use devices::conformance::{conformance_device, conformance_slow_device};
#[cfg(feature = "devices")]
pub use devices::far_end::FarEnd;
#[cfg(feature = "devices")]
pub use devices::fault_nic::{Chance, FaultCounts, FaultNic, FaultParams};
#[cfg(feature = "devices")]
pub use devices::rig::{Allowed, Rig};
pub use fail_nth::FailNth;
pub use iommu::{CheckingIommu, IommuCounts, IommuEvent, IommuFault};
pub use op::{Op, Setup};
pub use plain::PlainMemory;
pub use run::run;
pub use seed::seed;
pub use system_page::SystemPage;
