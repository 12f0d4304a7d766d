//! Memory outside of pools, as a registry lists it.
//!
//! What   a [`MemModel`] gives an id and a name to pages of ordinary memory, or to memory of the caller that
//!        a callback takes back. Such memory keeps the id in use after the model is dropped (I8).
//! Who    any thread.
//! Cost   one atomic count per buffer.

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use crate::core::registry::{MemCarrier, MemId, MemState, MemType, RegisteredId, Registry, RegistryEntry};
use crate::error::Error;
use crate::stats::{Inflight, Stats};

/// Takes external memory back.
type GiveBack = dyn Fn(NonNull<[u8]>) + Send + Sync;

/// Gives memory outside of pools an id and a name, for frames of a network stack or driver. Linux:
/// `xdp_reg_mem_model`, for types other than a page_pool.
///
/// Dropping the model ends it. Its id is free again when all memory that carries it is dropped.
///
/// ```
/// # use pagepool::{XdpFrame, MemType, MemModel, Page, Registry};
/// let registry = Registry::new();
/// let model = MemModel::new(&registry, "copies", MemType::Page)?;
/// let frame = XdpFrame::from_page(Page::of(&model), 0, 60).unwrap();
/// assert_eq!(frame.mem_id(), Some(model.mem_id()));
/// drop(model);
/// assert_eq!(registry.dump()[0].to_string(), "    1 page    ended copies: 1 out");
/// drop(frame);
/// assert!(registry.is_empty());
/// # Ok::<(), pagepool::Error>(())
/// ```
#[doc(alias = "xdp_reg_mem_model")]
#[doc(alias = "xdp_unreg_mem_model")]
#[derive(Debug)]
pub struct MemModel(Arc<ModelParts>);

impl MemModel {
    /// Creates a model of ordinary memory. Pools register themselves; for external memory use
    /// [`external`](Self::external).
    pub fn new(registry: &Registry, name: &str, mem_type: MemType) -> Result<Self, Error> {
        match mem_type {
            MemType::Page | MemType::SharedPage => Self::register(registry, name, mem_type, None),
            other => Err(Error::parameter(
                "mem_type",
                other,
                "page or shared: a pool registers itself, and MemModel::external takes external memory with \
                 its callback",
            )),
        }
    }

    /// Creates a model of external memory. `give_back` takes it back, on the thread that drops its frame, and
    /// may drop buffers.
    pub fn external(
        registry: &Registry,
        name: &str,
        give_back: impl Fn(NonNull<[u8]>) + Send + Sync + 'static,
    ) -> Result<Self, Error> {
        Self::register(registry, name, MemType::External, Some(Box::new(give_back)))
    }

    fn register(
        registry: &Registry,
        name: &str,
        mem_type: MemType,
        give_back: Option<Box<GiveBack>>,
    ) -> Result<Self, Error> {
        let registration = registry.register()?;
        let (ended, out) = (AtomicBool::new(false), AtomicU64::new(0));
        let parts = Arc::new(ModelParts { registration, name: name.into(), mem_type, give_back, ended, out });
        let weak: std::sync::Weak<ModelParts> = Arc::downgrade(&parts);
        parts.registration.enter(weak);
        Ok(Self(parts))
    }

    /// The memory id.
    pub fn mem_id(&self) -> MemId {
        self.0.registration.id()
    }

    /// Counts one more buffer with the id.
    pub(crate) fn carried(&self) -> Carried {
        self.0.out.fetch_add(1, Relaxed);
        Carried(self.0.clone())
    }

    /// Whether external memory may carry the id.
    pub(crate) fn takes_back(&self) -> bool {
        self.0.give_back.is_some()
    }
}

impl Drop for MemModel {
    fn drop(&mut self) {
        self.0.ended.store(true, Relaxed);
    }
}

/// The count of one buffer with the id.
#[derive(Debug)]
pub(crate) struct Carried(Arc<ModelParts>);

impl Carried {
    pub(crate) fn mem_id(&self) -> MemId {
        self.0.registration.id()
    }

    /// Gives external memory back; does nothing for ordinary memory.
    pub(crate) fn give_back(&self, memory: NonNull<[u8]>) {
        if let Some(give_back) = &self.0.give_back {
            give_back(memory);
        }
    }
}

impl Drop for Carried {
    fn drop(&mut self) {
        self.0.out.fetch_sub(1, Relaxed);
    }
}

struct ModelParts {
    registration: RegisteredId,
    name: String,
    mem_type: MemType,
    give_back: Option<Box<GiveBack>>,
    ended: AtomicBool,
    /// Buffers that carry the id; for reports.
    out: AtomicU64,
}

impl fmt::Debug for ModelParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemModel").field("id", &self.registration.id()).field("name", &self.name).finish()
    }
}

impl MemCarrier for ModelParts {
    fn entry(&self, id: MemId) -> RegistryEntry {
        let (name, mem_type, stats) = (self.name.clone(), self.mem_type, Stats::default());
        let state = if self.ended.load(Relaxed) { MemState::Ended } else { MemState::Live };
        let out = self.out.load(Relaxed);
        let inflight = Inflight { total: out as i64, out, ..Inflight::default() };
        RegistryEntry { id, mem_type, name, state, stats, inflight }
    }
}
