//! Memory ids and their pools and models: the list of all pools of the process.
//!
//! What   a [`Registry`] hands out ids from 1 to 65533 in turn. An id is reused only after all others were,
//!        and never while a pool, a model or a frame carries it (I8).
//! Who    any thread. A pool enters when made and leaves when its last buffer has returned. Returning a
//!        buffer looks nothing up: a frame's first buffer leads to its pool, which knows its id.
//! Life   a registry keeps nothing alive: it has weak references. A look-up upgrades one and drops it
//!        outside the lock, because it may be the last.
//! Lock   a short one; no callback runs under it, and of a pool only the reference count is touched.
//! Why    mirrors net/core/xdp.c:__xdp_reg_mem_model (v7.3), whose table also hashes an id to itself.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU16;
use std::ops::DerefMut;
use std::sync::{Arc, Weak};

use crate::error::Error;
use crate::stats::{Inflight, Stats};
use crate::sys::sync::UnseenLock;

/// The id of a pool, or of a [`MemModel`](crate::MemModel) of other memory, in its registry. Linux:
/// `xdp_mem_info::id`.
#[doc(alias = "xdp_mem_info")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemId(NonZeroU16);

impl MemId {
    /// The largest id, and the number of ids.
    #[doc(alias = "MEM_ID_MAX")]
    pub const MAX: u16 = 0xFFFD;

    /// The id with this number; `None` for 0 and above [`MAX`](Self::MAX).
    ///
    /// ```
    /// # use pagepool::MemId;
    /// assert_eq!(MemId::new(7).unwrap().get(), 7);
    /// assert!(MemId::new(0).is_none() && MemId::new(0xFFFE).is_none());
    /// ```
    pub fn new(id: u16) -> Option<Self> {
        NonZeroU16::new(id).filter(|id| id.get() <= Self::MAX).map(Self)
    }

    /// The id as a number.
    pub fn get(self) -> u16 {
        self.0.get()
    }
}

impl fmt::Display for MemId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The kind of memory of an id. Linux: `enum xdp_mem_type`.
#[doc(alias = "xdp_mem_type")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MemType {
    /// Ordinary memory with a reference count. Linux: `MEM_TYPE_PAGE_SHARED`.
    #[doc(alias = "MEM_TYPE_PAGE_SHARED")]
    SharedPage,
    /// One page of ordinary memory. Linux: `MEM_TYPE_PAGE_ORDER0`.
    #[doc(alias = "MEM_TYPE_PAGE_ORDER0")]
    Page,
    /// Buffers of a pool. Linux: `MEM_TYPE_PAGE_POOL`.
    #[doc(alias = "MEM_TYPE_PAGE_POOL")]
    Pool,
    /// Memory that a callback takes back, like Linux's `MEM_TYPE_XSK_BUFF_POOL`.
    #[doc(alias = "MEM_TYPE_XSK_BUFF_POOL")]
    External,
}

impl fmt::Display for MemType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::SharedPage => "shared",
            Self::Page => "page",
            Self::Pool => "pool",
            Self::External => "external",
        })
    }
}

/// Finds pools and memory models by their ids, without keeping them alive. Clones refer to one registry.
///
/// ```
/// # use pagepool::{Arena, ArenaParams, Pool, PoolParams, Registry};
/// # let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
/// let registry = Registry::new();
/// let params = PoolParams { name: "rx0".into(), registry: Some(registry.clone()), ..Default::default() };
/// let pool = Pool::new(params, arena)?.bind();
/// let id = pool.handle().mem_id();
/// assert_eq!(registry.get(id).unwrap().name, "rx0");
/// drop(pool);
/// assert!(registry.dump().is_empty());
/// # Ok::<(), pagepool::Error>(())
/// ```
#[derive(Clone)]
pub struct Registry(RegistryScope);

#[derive(Clone)]
enum RegistryScope {
    Process,
    Own(Arc<UnseenLock<IdTable>>),
}

static PROCESS: UnseenLock<IdTable> = UnseenLock::new(IdTable::EMPTY);

impl Default for Registry {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry").field("ids", &self.table().entries.len()).finish_non_exhaustive()
    }
}

impl Registry {
    /// An empty registry.
    pub fn new() -> Self {
        Self(RegistryScope::Own(Arc::new(UnseenLock::new(IdTable::EMPTY))))
    }

    /// The process's registry, the default for pools.
    ///
    /// ```
    /// # use pagepool::{Arena, ArenaParams, Pool, PoolParams, Registry};
    /// # let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
    /// let pool = Pool::new(PoolParams { name: "rx0".into(), ..Default::default() }, arena)?;
    /// for entry in Registry::process().dump() {
    ///     println!("{entry}");
    /// }
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    pub fn process() -> Self {
        Self(RegistryScope::Process)
    }

    /// The entry of an id; `None` if the id is not in use.
    pub fn get(&self, id: MemId) -> Option<RegistryEntry> {
        self.carrier(id).map(|carrier| carrier.entry(id))
    }

    /// All entries, ordered by id. Stops no thread: pools that start or end during the call may be missing
    /// or not.
    pub fn dump(&self) -> Vec<RegistryEntry> {
        self.carriers().iter().map(|(id, carrier)| carrier.entry(*id)).collect()
    }

    /// Ids in use.
    ///
    /// ```
    /// assert_eq!(pagepool::Registry::new().len(), 0);
    /// ```
    pub fn len(&self) -> usize {
        self.table().entries.len()
    }

    /// Whether no id is in use.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes an id. It has no entry until [`enter`](RegisteredId::enter).
    pub(crate) fn register(&self) -> Result<RegisteredId, Error> {
        Ok(RegisteredId { id: self.table().take()?, registry: self.clone() })
    }

    /// The pool or model of an id. Drop it without the lock: it may be the last reference.
    pub(crate) fn carrier(&self, id: MemId) -> Option<Arc<dyn MemCarrier>> {
        self.table().entries.get(&id)?.as_ref()?.upgrade()
    }

    /// All pools and models, ordered by id.
    pub(crate) fn carriers(&self) -> Vec<(MemId, Arc<dyn MemCarrier>)> {
        let table = self.table();
        let there =
            |(&id, entry): (&MemId, &Option<Weak<dyn MemCarrier>>)| Some((id, entry.as_ref()?.upgrade()?));
        table.entries.iter().filter_map(there).collect()
    }

    fn table(&self) -> impl DerefMut<Target = IdTable> {
        match &self.0 {
            RegistryScope::Process => PROCESS.lock(),
            RegistryScope::Own(table) => table.lock(),
        }
    }
}

/// A pool or a model of other memory.
pub(crate) trait MemCarrier: std::any::Any + Send + Sync {
    fn entry(&self, id: MemId) -> RegistryEntry;
}

struct IdTable {
    /// `None` for an id that was taken and has no entry yet.
    entries: BTreeMap<MemId, Option<Weak<dyn MemCarrier>>>,
    last: u16,
}

impl IdTable {
    const EMPTY: Self = Self { entries: BTreeMap::new(), last: 0 };

    fn take(&mut self) -> Result<MemId, Error> {
        let id = self.free_above(self.last).or_else(|| self.free_above(0)).ok_or_else(|| Error::Busy {
            what: format!(
                "all {} memory ids of the registry: wait until pools and models have ended and their frames \
                 are returned, or use another registry",
                MemId::MAX
            ),
        })?;
        self.last = id.get();
        self.entries.insert(id, None);
        Ok(id)
    }

    /// The first free id above this number.
    fn free_above(&self, number: u16) -> Option<MemId> {
        let mut free = MemId::new(number + 1)?;
        for taken in self.entries.range(free..).map(|(id, _)| *id) {
            if taken != free {
                break;
            }
            free = MemId::new(taken.get() + 1)?;
        }
        Some(free)
    }
}

/// An id that is taken until this is dropped (I8).
#[derive(Debug)]
pub(crate) struct RegisteredId {
    registry: Registry,
    id: MemId,
}

impl RegisteredId {
    pub(crate) fn id(&self) -> MemId {
        self.id
    }

    /// Sets the id's pool or model.
    pub(crate) fn enter(&self, carrier: Weak<dyn MemCarrier>) {
        self.registry.table().entries.insert(self.id, Some(carrier));
    }
}

impl Drop for RegisteredId {
    fn drop(&mut self) {
        let entry = self.registry.table().entries.remove(&self.id);
        drop(entry); // without the lock: may be the last reference to its memory
    }
}

/// Whether a pool or model hands out buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MemState {
    /// It hands out buffers.
    Live,
    /// Destroyed or dropped; some of its buffers are still out.
    Ended,
}

impl fmt::Display for MemState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Live => "live",
            Self::Ended => "ended",
        })
    }
}

/// A pool or model in a registry. Its `Display` is one line.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RegistryEntry {
    /// The memory id.
    pub id: MemId,
    /// The kind of memory.
    pub mem_type: MemType,
    /// The name.
    pub name: String,
    /// Whether it has ended.
    pub state: MemState,
    /// A pool's counters; all 0 for a model of other memory.
    pub stats: Stats,
    /// Where a pool's pages are. For other memory: how many buffers carry the id.
    pub inflight: Inflight,
}

impl fmt::Display for RegistryEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, mem_type, name, state, stats, inflight } = self;
        write!(f, "{id:>5} {mem_type:<7} {state:<5} {name}: {} out", inflight.out)?;
        if *mem_type == MemType::Pool {
            let Inflight { total, cache, lanes, ring, frag, uncollected, .. } = inflight;
            write!(f, " of {total} (cache {cache}, lanes {lanes}, ring {ring}, frag {frag}")?;
            write!(f, ", uncollected {uncollected})")?;
            write!(f, ", hold {} release {}", stats.hold, stats.release)?;
        }
        if let Some(percent) = stats.recycle_percent() {
            write!(f, ", recycled {percent:.1} %")?;
        }
        Ok(())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn ids_go_round_and_are_used_again_only_after_the_wrap() {
        let registry = Registry::new();
        let kept = registry.register().expect("it is empty");
        assert_eq!(kept.id().get(), 1);
        for id in 2..=MemId::MAX {
            assert_eq!(registry.register().expect("it is given back at once").id().get(), id);
        }
        assert_eq!(registry.register().expect("after the wrap").id().get(), 2, "1 is still carried");
        assert_eq!(registry.len(), 1);
    }

    #[test]
    fn when_all_are_taken_the_error_says_how_many_and_what_to_do() {
        let registry = Registry::new();
        let mut all: Vec<_> = (0..MemId::MAX).map(|_| registry.register().expect("one is free")).collect();
        let text = registry.register().expect_err("none is free").to_string();
        assert!(text.contains("all 65533 memory ids") && text.contains("use another registry"), "{text}");
        let back = all.swap_remove(40_000).id().get();
        assert_eq!(registry.register().expect("one came back").id().get(), back);
    }
}
