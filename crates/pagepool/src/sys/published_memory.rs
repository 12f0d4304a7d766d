//! Memory of this process that other processes may read: a file, mapped.
//!
//! What   once a process publishes, [placed](crate::sys::placed) values lie in a file on tmpfs that is
//!        mapped shared. Writes there are plain stores, and outlive the process.
//! Full   the file's memory is allocated before use, so no access faults if the file system is full. If that
//!        fails, a place is on the heap, and the header counts what is not shown.
//! Fork   a child gets its own copy (`pthread_atfork`), made by a system call of the thread that forks,
//!        right before. No place is taken or returned from then on, so the copy has all that this thread
//!        holds. If there is no memory for it, the child maps the file privately: pages that it has not
//!        written follow the parent.
//! Life   never unmapped: places may be used after the file was removed.
//! Lock   a short one, for places and rows; nothing takes it per buffer.

// UNSAFETY: places are raw addresses, and rows are written through raw pointers.
#![expect(unsafe_code)]

mod free_room;

use std::alloc::Layout;
use std::cell::Cell;
use std::fs::File;
use std::mem::ManuallyDrop;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use self::free_room::FreeRoom;
use crate::error::Error;
use crate::sys::call::{abort_with, at_fork, thread_id_and_name};
use crate::sys::memory::{Mapped, SharedFile, check_file_size, fallocate};
use crate::sys::published_layout::{
    BLOCKS_AT, BlockAt, ENTRIES_AT, ENTRY_ROWS, EntryRow, FILE_BYTES, Header, MAGIC, SCHEMA_AT, SCHEMA_ROWS,
    SchemaRow, THREAD_ROWS, THREADS_AT, TableAt, ThreadRow, VERSION, text, whole_lines,
};
use crate::sys::run_folder::ProcessIdentity;
use crate::sys::sync::{UnseenGuard, UnseenLock};

/// The alignment of places: two cache lines.
const ALIGN: usize = 128;

/// The unit in which the file's memory is allocated.
const EXTENT: usize = 64 << 10;

/// Null until the process publishes.
static PUBLISHED: AtomicPtr<PublishedMemory> = AtomicPtr::new(std::ptr::null_mut());

/// This process claimed the right to publish.
static TAKEN: AtomicBool = AtomicBool::new(false);

#[derive(Debug)]
pub(crate) struct PublishedMemory {
    mapping: SharedFile,
    /// No more places: the file was removed, or this is a forked child.
    closed: AtomicBool,
    /// This is a forked child: the memory is no longer the file.
    forked: AtomicBool,
    space: UnseenLock<Space>,
}

#[derive(Debug)]
struct Space {
    room: FreeRoom,
    /// End of the allocated memory, for blocks and for rows.
    backed: usize,
    backed_rows: usize,
    /// Freed rows.
    free_rows: Vec<u32>,
}

impl PublishedMemory {
    /// This process's published memory, if any.
    #[inline]
    pub(crate) fn current() -> Option<&'static Self> {
        // SAFETY: it is null, or the address of a value that is never freed. Acquire pairs with publish().
        unsafe { PUBLISHED.load(Ordering::Acquire).as_ref() }
    }

    /// Claims the right to publish, once per process.
    pub(crate) fn claim() -> Result<PublishClaim, Error> {
        if TAKEN.swap(true, Ordering::Relaxed) {
            let what = "this process, or the one that forked it, has already published: a process publishes \
                        only once";
            return Err(Error::Busy { what: what.into() });
        }
        Ok(PublishClaim(()))
    }

    /// Maps a new file, writes its header, and calls `shown`, which makes it visible to other processes.
    /// From then on places are in the file.
    pub(crate) fn publish<R>(
        claim: PublishClaim,
        file: &File,
        name: &str,
        schema: &[SchemaRow],
        shown: impl FnOnce() -> Result<R, Error>,
    ) -> Result<(&'static Self, R), Error> {
        let remedy = || "publish in a folder on tmpfs with 16 MiB free: set PAGEPOOL_RUN".to_owned();
        check_file_size(FILE_BYTES as u64)?;
        file.set_len(FILE_BYTES as u64).map_err(Error::of_call("ftruncate", remedy))?;
        fallocate(file.as_fd(), 0..ENTRIES_AT).map_err(Error::of_call("fallocate", remedy))?;
        let mapping = SharedFile::new(file, FILE_BYTES).map_err(Error::of_call("mmap", remedy))?;
        let space = Space {
            room: FreeRoom::from(BLOCKS_AT),
            backed: BLOCKS_AT,
            backed_rows: ENTRIES_AT,
            free_rows: Vec::new(),
        };
        let [closed, forked] = [false; 2].map(AtomicBool::new);
        let memory = Self { mapping, closed, forked, space: UnseenLock::new(space) };
        memory.write_header(name, schema);
        at_fork(prepare, in_parent, in_child)
            .map_err(Error::of_call("pthread_atfork", || "free memory".into()))?;
        let shown = shown()?; // the file is complete; the last step that may fail
        std::mem::forget(claim);
        let memory = Box::leak(Box::new(memory));
        PUBLISHED.store(memory, Ordering::Release); // pairs with current()
        fence(Ordering::SeqCst); // pairs with that of UnseenPool::new()
        memory.count_not_shown(UNSEEN_POOLS.load(Ordering::Relaxed)); // made before the store
        Ok((memory, shown))
    }

    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }

    /// Whether this is the copy in a forked child of the publisher.
    pub(crate) fn is_of_parent(&self) -> bool {
        self.forked.load(Ordering::Relaxed)
    }

    fn is_open(&self) -> bool {
        !self.closed.load(Ordering::Relaxed)
    }

    fn at<T>(&self, offset: usize) -> *mut T {
        debug_assert!(offset + size_of::<T>() <= FILE_BYTES && offset.is_multiple_of(align_of::<T>()));
        // SAFETY: it is within the mapping.
        unsafe { self.mapping.first().add(offset) }.cast().as_ptr()
    }

    /// A number in the file, which others read.
    fn word(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: it is a number in the mapping, which is never unmapped, and it is only written as an
        // atomic.
        unsafe { AtomicU64::from_ptr(self.at(offset)) }
    }

    fn write_header(&self, name: &str, schema: &[SchemaRow]) {
        assert!(schema.len() <= SCHEMA_ROWS, "the schema has room for {} rows", schema.len());
        for (at, row) in schema.iter().enumerate() {
            // SAFETY: the row is in the mapping, which no other thread knows yet.
            unsafe { self.at::<SchemaRow>(SCHEMA_AT + at * size_of::<SchemaRow>()).write(*row) };
        }
        let own = ProcessIdentity::own();
        let table = |offset: usize, row_bytes: usize, rows: usize| TableAt {
            offset: offset as u64,
            row_bytes: row_bytes as u32,
            rows: rows as u32,
        };
        let header = Header {
            magic: [0; 8],
            version: VERSION,
            header_bytes: size_of::<Header>() as u32,
            file_bytes: FILE_BYTES as u64,
            pid: own.pid.into(),
            start_ticks: own.start_ticks,
            pid_namespace: own.pid_namespace,
            published_ns: now_ns(),
            last_sign_ns: now_ns(),
            not_shown: 0,
            schema: table(SCHEMA_AT, size_of::<SchemaRow>(), schema.len()),
            entries: table(ENTRIES_AT, size_of::<EntryRow>(), 0),
            threads: table(THREADS_AT, size_of::<ThreadRow>(), THREAD_ROWS),
            name: text(name),
            library: text(env!("CARGO_PKG_VERSION")),
            time_namespace: own.time_namespace,
        };
        // SAFETY: the header is in the mapping, which no other thread knows yet.
        unsafe { self.at::<Header>(0).write(header) };
        self.word(0).store(u64::from_ne_bytes(MAGIC), Ordering::Release); // last
    }

    /// Records that this process runs; in a forked child, in its copy.
    pub(crate) fn sign(&self) {
        self.word(std::mem::offset_of!(Header, last_sign_ns)).store(now_ns(), Ordering::Relaxed);
    }

    fn count_not_shown(&self, n: u64) {
        self.word(std::mem::offset_of!(Header, not_shown)).fetch_add(n, Ordering::Relaxed);
    }

    /// Takes a place for a value: a freed one, or one of at most `1 / part` of the unused end. `None` if the
    /// memory is full or closed.
    pub(crate) fn take(&self, layout: Layout, part: usize) -> Option<NonNull<u8>> {
        if !self.is_open() || layout.align() > ALIGN {
            return None;
        }
        let bytes = layout.size().checked_next_multiple_of(ALIGN)?;
        let mut space = self.space.lock();
        let reused = space.room.take_again(bytes);
        let fits = bytes <= (FILE_BYTES - space.room.fresh) / part;
        let offset = reused.or_else(|| if fits { space.grow(bytes, &self.mapping) } else { None })?;
        NonNull::new(self.at(offset))
    }

    /// Frees a place; `false` if it is not in this memory.
    pub(crate) fn give_back(&self, place: NonNull<u8>, layout: Layout) -> bool {
        let Some(offset) = self.offset_of(place) else { return false };
        if self.is_open() {
            let bytes = layout.size().next_multiple_of(ALIGN);
            self.space.lock().room.give_back(offset, bytes);
        }
        true
    }

    /// An address's offset in the file.
    pub(crate) fn offset_of<T: ?Sized>(&self, place: NonNull<T>) -> Option<usize> {
        let offset = place.addr().get().wrapping_sub(self.mapping.first().addr().get());
        (offset < FILE_BYTES).then_some(offset)
    }

    fn enter(&'static self, mut row: EntryRow) -> Option<PublishedRow> {
        if !self.is_open() {
            return None;
        }
        let mut space = self.space.lock();
        let rows = self.rows();
        let fresh = rows.load(Ordering::Relaxed);
        let at = space.free_rows.pop().or((fresh < ENTRY_ROWS as u32).then_some(fresh))?;
        let end = ENTRIES_AT + (at as usize + 1) * size_of::<EntryRow>();
        back(&self.mapping, &mut space.backed_rows, end, BLOCKS_AT)?;
        let entry = PublishedRow { memory: self, at };
        row.life = entry.life().load(Ordering::Relaxed) & !1;
        row.created_ns = now_ns();
        // SAFETY: the row is in the mapping and free, and this thread holds the lock.
        unsafe { self.at::<EntryRow>(entry.offset()).write(row) };
        entry.life().store(row.life + 1, Ordering::Release); // the row is complete
        rows.store(fresh.max(at + 1), Ordering::Release);
        self.sign();
        Some(entry)
    }

    /// How many rows were ever used.
    fn rows(&self) -> &AtomicU32 {
        let at = std::mem::offset_of!(Header, entries) + std::mem::offset_of!(TableAt, rows);
        // SAFETY: it is a number in the mapping, which is never unmapped, and it is only written as an
        // atomic.
        unsafe { AtomicU32::from_ptr(self.at(at)) }
    }
}

impl Space {
    /// Takes bytes from the unused end, with memory.
    fn grow(&mut self, bytes: usize, mapping: &SharedFile) -> Option<usize> {
        let end = self.room.fresh.checked_add(bytes).filter(|&end| end <= FILE_BYTES)?;
        back(mapping, &mut self.backed, end, FILE_BYTES)?;
        Some(std::mem::replace(&mut self.room.fresh, end))
    }
}

/// Allocates the file's memory up to `end`, rounded up, but not beyond `limit`.
fn back(mapping: &SharedFile, backed: &mut usize, end: usize, limit: usize) -> Option<()> {
    if end > *backed {
        let until = end.next_multiple_of(EXTENT).min(limit);
        fallocate(mapping.file(), *backed..until).ok()?;
        *backed = until;
    }
    Some(())
}

/// Kept by the thread that forks, from before the fork until after.
struct ForkState {
    /// No place is taken or returned.
    _space: UnseenGuard<'static, Space>,
    /// `None` if there was no memory for it.
    copy: Option<Mapped>,
}

thread_local! {
    static PREPARED: Cell<Option<ManuallyDrop<ForkState>>> = const { Cell::new(None) };
}

/// In the thread that forks, before the fork.
extern "C" fn prepare() {
    let published = PublishedMemory::current().filter(|memory| !memory.is_of_parent());
    let Some(memory) = published else { return };
    let space = memory.space.lock();
    // Rows without memory are not read: that would allocate it.
    let copy = memory.mapping.copy([0..space.backed_rows, BLOCKS_AT..space.room.fresh]).ok();
    PREPARED.set(Some(ManuallyDrop::new(ForkState { _space: space, copy })));
}

/// In the thread that forked, after success or failure.
extern "C" fn in_parent() {
    drop(PREPARED.take().map(ManuallyDrop::into_inner));
}

/// In the child, before any other code.
extern "C" fn in_child() {
    let prepared = PREPARED.take().map(ManuallyDrop::into_inner);
    if let Some(memory) = PublishedMemory::current() {
        memory.close();
        if memory.forked.swap(true, Ordering::Relaxed) {
            return; // a child of a child: no longer the file
        }
        let copied = prepared.and_then(|prepared| memory.mapping.replace_by(prepared.copy?).ok());
        if copied.is_none() && memory.mapping.make_private().is_err() {
            // Else this child would change what its parent publishes and uses.
            abort_with(b"pagepool: no memory for a private copy of published memory in a child of fork\n");
        }
    }
}

/// Counts the pools that exist and are in no file.
static UNSEEN_POOLS: AtomicU64 = AtomicU64::new(0);

/// A pool that is in no file; counted until this is dropped.
#[derive(Debug)]
pub(crate) struct UnseenPool(());

impl UnseenPool {
    /// Made before the pool checks whether this process publishes. If it does not yet, publish() counts the
    /// pool.
    pub(crate) fn new() -> Self {
        UNSEEN_POOLS.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst); // pairs with that of publish()
        Self(())
    }

    pub(crate) fn count() -> u64 {
        UNSEEN_POOLS.load(Ordering::Relaxed)
    }
}

impl Drop for UnseenPool {
    fn drop(&mut self) {
        UNSEEN_POOLS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The right to publish; returned when dropped unused.
#[derive(Debug)]
pub(crate) struct PublishClaim(());

impl Drop for PublishClaim {
    fn drop(&mut self) {
        TAKEN.store(false, Ordering::Relaxed);
    }
}

/// A row of the entry table; dropping it frees the row.
#[derive(Debug)]
pub(crate) struct PublishedRow {
    memory: &'static PublishedMemory,
    at: u32,
}

impl PublishedRow {
    /// Writes a row if this process publishes and has room; else counts it as not shown.
    pub(crate) fn enter(row: impl FnOnce() -> Option<EntryRow>) -> Option<Self> {
        let memory = PublishedMemory::current().filter(|memory| memory.is_open())?;
        let entered = row().and_then(|row| memory.enter(row));
        if entered.is_none() {
            memory.count_not_shown(1);
        }
        entered
    }

    fn offset(&self) -> usize {
        ENTRIES_AT + self.at as usize * size_of::<EntryRow>()
    }

    fn life(&self) -> &AtomicU64 {
        self.memory.word(self.offset() + std::mem::offset_of!(EntryRow, life))
    }

    /// Records that what the row describes has ended, but exists.
    pub(crate) fn end(&self) {
        let at = self.offset() + std::mem::offset_of!(EntryRow, ended_ns);
        self.memory.word(at).store(now_ns(), Ordering::Relaxed);
        self.memory.sign();
    }
}

impl Drop for PublishedRow {
    fn drop(&mut self) {
        if self.memory.is_open() {
            let mut space = self.memory.space.lock();
            self.life().fetch_add(1, Ordering::Release); // before its block is used again
            space.free_rows.push(self.at);
            self.memory.sign();
        }
    }
}

/// An empty row of a kind.
pub(crate) fn entry_row(kind: &str, id: u64, parent: u64, name: &str, params: &str) -> EntryRow {
    EntryRow {
        life: 0,
        id,
        parent,
        created_ns: 0,
        ended_ns: 0,
        mem_id: 0,
        page_bytes: 0,
        block: BlockAt::default(),
        lanes: BlockAt::default(),
        deferred: BlockAt::default(),
        holders: BlockAt::default(),
        kind: text(kind),
        name: text(name),
        params: whole_lines(params),
    }
}

/// Shows the calling thread's id and name under its token.
pub(crate) fn show_thread(token: u64) {
    let Some(memory) = PublishedMemory::current().filter(|memory| memory.is_open()) else { return };
    let (tid, name) = thread_id_and_name();
    let at = THREADS_AT + (token % THREAD_ROWS as u64) as usize * size_of::<ThreadRow>();
    let _alone = memory.space.lock();
    memory.word(at).store(0, Ordering::Release);
    for (word, bytes) in [tid.to_ne_bytes()].iter().chain(name.as_chunks().0).enumerate() {
        memory.word(at + 8 + word * 8).store(u64::from_ne_bytes(*bytes), Ordering::Release);
    }
    memory.word(at).store(token, Ordering::Release);
}

/// The time of day in nanoseconds since 1970.
pub fn now_ns() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}
