//! Reference counts as a user of deferred buffers.
//!
//! Who    any thread takes and puts; the thread that polls the pool reads.
//! Pairs  [`UseCounts::put`] (Release) -> `in_use` (Acquire): a user's accesses before its put happen before
//!        the buffer returns to its pool. [`UseCounts::take`] needs no ordering: its caller already has a
//!        count, or the buffer.
//! Cost   take and put: one atomic read-modify-write each. Sixteen counts share a cache line.

use std::sync::Arc;

use crate::pool::deferred_queue::InUse;
use crate::sys::sync::{AtomicU32, Ordering};

/// More users than possible: a count this high is refused, and a few more mistakes do not bring it to 0.
const STUCK: u32 = u32::MAX / 2;

/// A fixed number of use counts, as a user of deferred buffers. A buffer's cookie is the index of its count;
/// the buffer is in use while the count is not 0.
///
/// For code that only counts. Readers that can own a value should use [`SharedBuf`](crate::SharedBuf), which
/// returns by itself.
///
/// ```
/// use pagepool::{Arena, ArenaParams, Pool, PoolParams, UseCounts};
/// let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
/// let pool = Pool::new(PoolParams { defer_capacity: 8, ..Default::default() }, arena)?.bind();
/// let counts = UseCounts::new(8);
/// let user = pool.deferred_user(counts.clone())?;
///
/// counts.take(3); // for the other thread
/// let other = counts.clone();
/// let reader = std::thread::spawn(move || other.put(3));
/// pool.defer(&user, pool.alloc_page().unwrap(), 3).expect("there is room");
/// reader.join().unwrap();
/// assert_eq!((pool.poll_deferred(), pool.inflight().out), (1, 0));
/// # Ok::<(), pagepool::Error>(())
/// ```
#[derive(Debug)]
pub struct UseCounts(Box<[AtomicU32]>);

impl UseCounts {
    /// Creates `counts` counts of 0.
    ///
    /// ```
    /// # use pagepool::{InUse, UseCounts};
    /// assert!(!UseCounts::new(1).in_use(0));
    /// ```
    pub fn new(counts: usize) -> Arc<Self> {
        Arc::new(Self((0..counts).map(|_| AtomicU32::new(0)).collect()))
    }

    /// Adds a user. Call it before the buffer is queued, or on behalf of a user that is already counted.
    ///
    /// # Panics
    /// If there is no such count.
    ///
    /// ```
    /// # use pagepool::{InUse, UseCounts};
    /// let counts = UseCounts::new(4);
    /// counts.take(2);
    /// assert!(counts.in_use(2) && !counts.in_use(1));
    /// # counts.put(2);
    /// ```
    #[inline]
    pub fn take(&self, cookie: u64) {
        let before = self.count(cookie).fetch_add(1, Ordering::Relaxed);
        assert!(before < STUCK, "use count {cookie} is {before}: it is taken and never put");
    }

    /// Removes a user, which no longer reads the bytes.
    ///
    /// # Panics
    /// If there is no such count, or if it is 0, because it was put too often. The count then stays in use,
    /// to prevent a too early reuse of the buffer.
    ///
    /// ```
    /// # use pagepool::{InUse, UseCounts};
    /// let counts = UseCounts::new(1);
    /// counts.take(0);
    /// counts.take(0);
    /// counts.put(0);
    /// assert!(counts.in_use(0), "there is one more");
    /// counts.put(0);
    /// assert!(!counts.in_use(0));
    /// ```
    #[inline]
    pub fn put(&self, cookie: u64) {
        let before = self.count(cookie).fetch_sub(1, Ordering::Release); // pairs with in_use()
        if before == 0 {
            self.count(cookie).store(STUCK, Ordering::Relaxed);
            panic!("use count {cookie} was put more often than it was taken");
        }
    }

    #[inline]
    fn at(&self, cookie: u64) -> Option<&AtomicU32> {
        self.0.get(usize::try_from(cookie).ok()?)
    }

    #[inline]
    fn count(&self, cookie: u64) -> &AtomicU32 {
        let have = self.0.len();
        self.at(cookie).unwrap_or_else(|| panic!("use count {cookie} of {have}: create UseCounts with more"))
    }
}

impl InUse for UseCounts {
    /// A missing count cannot have been taken.
    fn in_use(&self, cookie: u64) -> bool {
        self.at(cookie).is_some_and(|count| count.load(Ordering::Acquire) != 0) // pairs with put()
    }
}
