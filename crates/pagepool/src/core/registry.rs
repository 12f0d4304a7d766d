//! Memory ids and their pools: the list of all pools of the process.
//!
//! What   a [`Registry`] hands out ids from 1 to 65533 in turn. An id is reused only after all others were,
//!        and never while a pool or one of its buffers carries it (I8).
//! Who    any thread. A pool enters when made and leaves when its last buffer has returned. Returning a
//!        buffer looks nothing up: it leads to its pool.
//! Life   a registry keeps nothing alive: it has weak references. A look-up upgrades one and drops it
//!        outside the lock, because it may be the last.
//! Lock   a short one; no callback runs under it, and of a pool only the reference count is touched.
//! Why    mirrors net/core/xdp.c:__xdp_reg_mem_model (v7.3), whose table also hashes an id to itself.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU16;
use std::ops::DerefMut;
use std::sync::{Arc, Weak};

use crate::error::Error;
use crate::sys::sync::UnseenLock;

/// The id of a pool in its registry. Linux: `xdp_mem_info::id`.
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

/// Finds pools by their ids, without keeping them alive. Clones refer to one registry.
///
/// ```
/// # use pagepool::{Arena, ArenaParams, Pool, PoolParams, Registry};
/// # let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
/// let registry = Registry::new();
/// let params = PoolParams { name: "rx0".into(), registry: Some(registry.clone()), ..Default::default() };
/// let pool = Pool::new(params, arena)?.bind();
/// let id = pool.handle().mem_id();
/// assert_eq!(registry.pool(id).unwrap().name(), "rx0");
/// drop(pool);
/// assert!(registry.is_empty());
/// # Ok::<(), pagepool::Error>(())
/// ```
#[derive(Clone)]
pub struct Registry(Option<Arc<UnseenLock<IdTable>>>); // none: the process's

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
        Self(Some(Arc::new(UnseenLock::new(IdTable::EMPTY))))
    }

    /// The process's registry, the default for pools.
    ///
    /// ```
    /// # use pagepool::{Arena, ArenaParams, Pool, PoolParams, Registry};
    /// # let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
    /// let pool = Pool::new(PoolParams { name: "rx0".into(), ..Default::default() }, arena)?;
    /// for pool in Registry::process().pools() {
    ///     println!("{pool}");
    /// }
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    pub fn process() -> Self {
        Self(None)
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

    /// The pool of an id. Drop it without the lock: it may be the last reference.
    pub(crate) fn entry(&self, id: MemId) -> Option<Arc<AnyPool>> {
        self.table().entries.get(&id)?.as_ref()?.upgrade()
    }

    /// All pools, ordered by id.
    pub(crate) fn entries(&self) -> Vec<Arc<AnyPool>> {
        self.table().entries.values().flatten().filter_map(Weak::upgrade).collect()
    }

    fn table(&self) -> impl DerefMut<Target = IdTable> {
        match &self.0 {
            None => PROCESS.lock(),
            Some(table) => table.lock(),
        }
    }
}

/// A pool, whose type this file does not know.
pub(crate) type AnyPool = dyn Any + Send + Sync;

struct IdTable {
    /// `None` for an id that was taken and has no entry yet.
    entries: BTreeMap<MemId, Option<Weak<AnyPool>>>,
    last: u16,
}

impl IdTable {
    const EMPTY: Self = Self { entries: BTreeMap::new(), last: 0 };

    fn take(&mut self) -> Result<MemId, Error> {
        let id = self.free_above(self.last).or_else(|| self.free_above(0)).ok_or_else(|| Error::Busy {
            what: format!(
                "all {} memory ids of the registry: wait until pools have ended and their buffers are \
                 returned, or use another registry",
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

    /// Sets the id's pool.
    pub(crate) fn enter(&self, pool: Weak<AnyPool>) {
        self.registry.table().entries.insert(self.id, Some(pool));
    }
}

impl Drop for RegisteredId {
    fn drop(&mut self) {
        let entry = self.registry.table().entries.remove(&self.id);
        drop(entry); // without the lock: may be the last reference to the memory
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

    fn pool(registry: &Registry) -> Result<crate::Pool, Error> {
        let memory = crate::DeviceMemory::new("16 pages", 16 << 12, crate::NodeId(0))?;
        let registry = Some(registry.clone());
        crate::Pool::new(crate::PoolParams { name: "ending".into(), registry, ..Default::default() }, memory)
    }

    #[test]
    fn a_pool_keeps_its_id_until_the_last_buffer_returns() {
        let registry = Registry::new();
        let ending = pool(&registry).expect("the first").bind();
        let (buffer, id) = (ending.alloc_page().expect("16 are free"), ending.handle().mem_id());
        let observer = ending.handle();
        drop(ending);
        let entry = registry.pool(id).expect("a buffer is out");
        assert_eq!((entry.is_destroyed(), entry.inflight().out), (true, 1));
        // All other ids go round, and this one is left out at the wrap.
        let next_id = || registry.register().expect("it is given back at once").id();
        for _ in 0..MemId::MAX {
            assert_ne!(next_id(), id);
        }
        std::thread::spawn(move || drop(buffer)).join().expect("a drop does not panic");
        assert!(registry.is_empty(), "the observers keep no id");
        for number in 3..=MemId::MAX {
            assert_eq!(next_id().get(), number);
        }
        assert_eq!(next_id(), id, "after all others");
        drop((observer, entry));
    }

    #[test]
    fn a_full_registry_refuses_pools_and_says_what_to_do() {
        let registry = Registry::new();
        let all: Vec<_> = (0..MemId::MAX).map(|_| registry.register().expect("one is free")).collect();
        let refused = pool(&registry).expect_err("no id is free");
        assert!(matches!(refused, Error::Busy { .. }) && refused.to_string().contains("65533"), "{refused}");
        drop(pool(&Registry::new()).expect("another registry"));
        drop(all);
        drop(pool(&registry).expect("there is room"));
    }
}
