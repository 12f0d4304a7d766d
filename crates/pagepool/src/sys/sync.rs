//! Atomics of the machine or of loom, and fences, locks and cells built on them.
//!
//! Any thread may call anything here, except [`OwnerCell::get`]: only the holder of the owner half (I2).
//!
//! [`light_fence`] and [`heavy_fence`] pair. If one thread does `store A; light_fence; load B` and another
//! `store B; heavy_fence; load A`, at least one sees the other's store. The heavy side pays for both
//! (`membarrier`, about 1,600 cycles); the light side is a compiler fence. If the kernel refuses
//! `membarrier` when the first pool is made, both are SeqCst fences in this process. Under loom both always
//! are.

// UNSAFETY: `Lock` hands out `&mut T` from a shared reference under its lock word; `OwnerCell` is a raw cell.
#![expect(unsafe_code)]

#[cfg(not(loom))]
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use crate::error::Error;

#[cfg(not(loom))]
pub(crate) use std::cell::UnsafeCell;
#[cfg(not(loom))]
pub use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

#[cfg(loom)]
pub use loom::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

/// The fence of code that runs for each buffer. Pairs with [`heavy_fence`].
#[inline(always)]
pub(crate) fn light_fence() {
    #[cfg(not(loom))]
    {
        if !fences_are_free() {
            fence(Ordering::SeqCst);
        }
        std::sync::atomic::compiler_fence(Ordering::SeqCst);
    }
    #[cfg(loom)]
    modelled_fence();
}

/// The light fence for code that runs only if [`fences_are_free`].
#[inline(always)]
pub(crate) fn free_fence() {
    #[cfg(not(loom))]
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
    #[cfg(loom)]
    modelled_fence();
}

/// A full fence on every running thread of this process; about 1,600 cycles. If one thread does `store A;
/// compiler fence; load B` and another `store B; fence_all_threads; load A`, at least one sees the other's
/// store.
#[cold]
pub fn heavy_fence() {
    #[cfg(not(loom))]
    {
        #[cfg(test)]
        HEAVY_FENCES.set(HEAVY_FENCES.get() + 1);
        if fences_are_free() {
            crate::sys::call::membarrier();
        }
        fence(Ordering::SeqCst);
    }
    #[cfg(loom)]
    modelled_fence();
}

/// Both fences in a model. Loom switches threads at accesses, not at fences; with this access it tries every
/// order of two fences. It is Relaxed and comes first, so it adds no ordering.
#[cfg(loom)]
fn modelled_fence() {
    loom::lazy_static! {
        static ref TURN: AtomicU32 = AtomicU32::new(0);
    }
    TURN.fetch_add(1, Ordering::Relaxed);
    fence(Ordering::SeqCst);
}

/// One of [`UNDECIDED`], [`EXPEDITED`], [`SEQ_CST`]. Written once, before the first pool exists, so no
/// returning thread finds it undecided.
#[cfg(not(loom))]
static FENCES: std::sync::atomic::AtomicU8 = std::sync::atomic::AtomicU8::new(UNDECIDED);

#[cfg(not(loom))]
const UNDECIDED: u8 = 0;
/// The heavy fence is `membarrier`, the light one a compiler fence.
#[cfg(not(loom))]
const EXPEDITED: u8 = 1;
/// Both are SeqCst fences.
#[cfg(not(loom))]
const SEQ_CST: u8 = 2;

/// Whether [`fence_all_threads`](heavy_fence) works here: the other side of its pair may then be a compiler
/// fence. Known once a pool exists. If the kernel refuses `membarrier`, the other side needs a full fence
/// or another protocol.
///
/// ```
/// # use pagepool::{Arena, ArenaParams, Pool, PoolParams};
/// # let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
/// # let _pool = Pool::new(PoolParams::default(), arena)?;
/// if pagepool::fences_are_free() {
///     pagepool::fence_all_threads();
/// }
/// # Ok::<(), pagepool::Error>(())
/// ```
#[inline(always)]
pub fn fences_are_free() -> bool {
    #[cfg(not(loom))]
    return FENCES.load(Ordering::Relaxed) == EXPEDITED;
    #[cfg(loom)]
    false
}

/// Decides once which fences this process uses, when a pool is made, before it has buffers. Fails for a
/// later pool if `membarrier` is refused since, because the pool's end would fail.
pub(crate) fn prepare_fences() -> Result<(), Error> {
    #[cfg(not(loom))]
    if FENCES.load(Ordering::Acquire) != SEQ_CST {
        let works = crate::sys::call::membarrier_works();
        let found = if works.is_ok() { EXPEDITED } else { SEQ_CST };
        let before = FENCES.compare_exchange(UNDECIDED, found, Ordering::AcqRel, Ordering::Acquire);
        if before == Err(EXPEDITED) {
            works.map_err(Error::of_call("membarrier", || crate::sys::call::MEMBARRIER_REMEDY.into()))?;
        }
    }
    Ok(())
}

/// Stores a message (Release) if the slot holds 0; for the slot's one producer. Pairs with the Acquire load
/// of the thread that takes the message.
///
/// Models use one access for load and store. A thread's own load makes loom forget another thread's earlier
/// load, so loom would not try the store between the two.
#[inline(always)]
pub(crate) fn publish(slot: &AtomicU32, message: u32) -> bool {
    #[cfg(loom)]
    return slot.compare_exchange(0, message, Ordering::Release, Ordering::Relaxed).is_ok();
    #[cfg(not(loom))]
    {
        let empty = slot.load(Ordering::Relaxed) == 0;
        if empty {
            slot.store(message, Ordering::Release);
        }
        empty
    }
}

/// A value on two cache lines of its own, because the machines we know fetch adjacent lines in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Padded<T>(pub(crate) T);

impl<T> Deref for Padded<T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        &self.0
    }
}

/// A waiter's sleep if neither spinning nor yielding helped.
#[cfg(not(loom))]
const A_MOMENT: std::time::Duration = std::time::Duration::from_micros(50);

/// Pauses for a thread that waits for another to run some instructions. It spins, yields at every 64th
/// pause, and sleeps 50 microseconds at every 1024th. So a preempted thread gets to run, even if the waiter
/// has real-time priority.
///
/// ```
/// use std::sync::atomic::{AtomicBool, Ordering::{Acquire, Release}};
/// let done = AtomicBool::new(false);
/// std::thread::scope(|threads| {
///     threads.spawn(|| done.store(true, Release));
///     let mut backoff = pagepool::Backoff::default();
///     while !done.load(Acquire) {
///         backoff.pause();
///     }
/// });
/// ```
#[derive(Debug, Default)]
pub struct Backoff {
    #[cfg(not(loom))]
    pauses: u32,
}

impl Backoff {
    /// Waits for a moment; longer after many calls.
    pub fn pause(&mut self) {
        #[cfg(not(loom))]
        {
            self.pauses = self.pauses.wrapping_add(1);
            match self.pauses {
                n if n.is_multiple_of(1024) => crate::sys::call::sleep(A_MOMENT),
                n if n.is_multiple_of(64) => std::thread::yield_now(),
                _ => std::hint::spin_loop(),
            }
        }
        #[cfg(loom)]
        loom::thread::yield_now();
    }
}

/// A short lock for cold paths: one exchange to take, one plain store of the same width to release.
///
/// Cost: one atomic read-modify-write when uncontended. A waiter pauses with [`Backoff`].
#[derive(Debug)]
pub struct Lock<T> {
    #[cfg(not(loom))]
    word: AtomicU32,
    #[cfg(not(loom))]
    value: UnsafeCell<T>,
    #[cfg(loom)]
    inner: loom::sync::Mutex<T>,
}

#[cfg(all(test, not(loom)))]
thread_local! {
    /// Locks that this thread took, for tests.
    pub(crate) static LOCKS_TAKEN: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
    /// Heavy fences that this thread made, for tests.
    pub(crate) static HEAVY_FENCES: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

// SAFETY: the lock word admits one holder at a time; taking it is Acquire and releasing it Release.
#[cfg(not(loom))]
unsafe impl<T: Send> Sync for Lock<T> {}

#[cfg(not(loom))]
impl<T> Lock<T> {
    /// Creates an unlocked one.
    pub const fn new(value: T) -> Self {
        Self { word: AtomicU32::new(0), value: UnsafeCell::new(value) }
    }

    /// Takes it, and waits until it is free.
    #[inline]
    pub fn lock(&self) -> Guard<'_, T> {
        #[cfg(test)]
        LOCKS_TAKEN.set(LOCKS_TAKEN.get() + 1);
        if self.word.swap(1, Ordering::Acquire) != 0 {
            self.wait();
        }
        Guard { lock: self, _value: PhantomData }
    }

    #[inline(always)]
    pub(crate) fn try_lock(&self) -> Option<Guard<'_, T>> {
        let free = self.word.swap(1, Ordering::Acquire) == 0;
        #[cfg(test)]
        LOCKS_TAKEN.set(LOCKS_TAKEN.get() + u64::from(free));
        free.then(|| Guard { lock: self, _value: PhantomData })
    }

    #[cold]
    fn wait(&self) {
        let mut backoff = Backoff::default();
        loop {
            while self.word.load(Ordering::Relaxed) != 0 {
                backoff.pause();
            }
            if self.word.swap(1, Ordering::Acquire) == 0 {
                return;
            }
        }
    }
}

/// A lock that models do not check. It may be a static and outlive a model.
#[cfg(not(loom))]
pub(crate) type UnseenLock<T> = Lock<T>;
#[cfg(not(loom))]
pub(crate) type UnseenGuard<'a, T> = Guard<'a, T>;
#[cfg(loom)]
pub(crate) type UnseenGuard<'a, T> = std::sync::MutexGuard<'a, T>;
#[cfg(loom)]
#[derive(Debug)]
pub(crate) struct UnseenLock<T>(std::sync::Mutex<T>);

#[cfg(loom)]
impl<T> UnseenLock<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(std::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> std::sync::MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// Holds a [`Lock`]. Dropping it is the last access to the lock's memory.
#[cfg(not(loom))]
pub struct Guard<'a, T> {
    lock: &'a Lock<T>,
    /// As a `&mut T`, which is `Sync` only if `T` is.
    _value: PhantomData<&'a mut T>,
}

#[cfg(not(loom))]
impl<T> Deref for Guard<'_, T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: this guard exists only while its thread holds the lock word, which admits one holder.
        unsafe { &*self.lock.value.get() }
    }
}

#[cfg(not(loom))]
impl<T> DerefMut for Guard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard exists only while its thread holds the lock word, which admits one holder.
        unsafe { &mut *self.lock.value.get() }
    }
}

#[cfg(not(loom))]
impl<T> Drop for Guard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        self.lock.word.store(0, Ordering::Release); // pairs with lock() and wait()
    }
}

#[cfg(loom)]
impl<T> Lock<T> {
    /// Creates an unlocked one.
    pub fn new(value: T) -> Self {
        Self { inner: loom::sync::Mutex::new(value) }
    }

    /// Takes it, and waits until it is free.
    pub fn lock(&self) -> impl DerefMut<Target = T> + '_ {
        self.inner.lock().expect("loom's mutex is never poisoned: a panic ends the model")
    }

    /// A model waits here: callers do the same work after a wait as without one.
    pub(crate) fn try_lock(&self) -> Option<impl DerefMut<Target = T> + '_> {
        Some(self.lock())
    }
}

/// For models: checks that one thread at a time touches what this stands beside, each ordered after the
/// last. Otherwise it is nothing.
#[derive(Debug, Default)]
pub(crate) struct OneAtATime(#[cfg(loom)] loom::cell::UnsafeCell<()>);

// SAFETY: it holds no data; loom fails the model if two threads touch it unordered.
#[cfg(loom)]
unsafe impl Sync for OneAtATime {}

impl OneAtATime {
    /// Fails the model unless every earlier touch, by any thread, happened before this one.
    #[inline(always)]
    pub(crate) fn touch(&self) {
        #[cfg(loom)]
        self.0.with_mut(|_| ());
    }

    /// Fails the model unless every earlier [`touch`](Self::touch) happened before this. Threads may look at
    /// once.
    #[inline(always)]
    pub(crate) fn look(&self) {
        #[cfg(loom)]
        self.0.with(|_| ());
    }
}

/// A cell that only the holder of the owner half touches (I2). Loom checks every access for a data race.
#[derive(Debug)]
pub(crate) struct OwnerCell<T> {
    value: std::cell::UnsafeCell<T>,
    watch: OneAtATime,
}

// SAFETY: I2. A shared reference gives only a raw pointer; only the holder of the owner half follows it.
unsafe impl<T: Send> Sync for OwnerCell<T> {}

impl<T> OwnerCell<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { value: std::cell::UnsafeCell::new(value), watch: OneAtATime::default() }
    }

    /// The value's address, which only the holder of the owner half may follow. No reference made from it
    /// may live across a callback.
    #[inline(always)]
    pub(crate) fn get(&self) -> *mut T {
        self.watch.touch();
        self.value.get()
    }
}

/// A cell with many readers, until its last user takes the value. Loom fails a read that is not ordered
/// before the take: so a model finds a use after the end.
#[derive(Debug)]
pub struct LastCell<T> {
    value: std::cell::UnsafeCell<Option<T>>,
    watch: OneAtATime,
}

// SAFETY: shared reads are of a `T: Sync`; the contract of `take` makes the one take exclusive.
unsafe impl<T: Send + Sync> Sync for LastCell<T> {}

impl<T> LastCell<T> {
    /// Creates a cell with a value.
    pub fn new(value: T) -> Self {
        Self { value: std::cell::UnsafeCell::new(Some(value)), watch: OneAtATime::default() }
    }

    /// Reads the value.
    ///
    /// # Safety
    /// [`take`](Self::take) has not happened, and cannot happen while the reference lives.
    #[inline(always)]
    pub unsafe fn read(&self) -> &T {
        self.watch.look();
        // SAFETY: nothing takes the value while this reference lives, by the caller's promise, and nothing
        // writes it.
        let value = unsafe { &*self.value.get() };
        value.as_ref().expect("I9: the pool's parts exist until the last buffer has returned")
    }

    /// Takes the value.
    ///
    /// # Safety
    /// Nothing else reads or takes it, now or later, and no reference from [`read`](Self::read) lives.
    pub unsafe fn take(&self) -> Option<T> {
        self.watch.touch();
        // SAFETY: exclusive by the caller's promise.
        unsafe { &mut *self.value.get() }.take()
    }
}
