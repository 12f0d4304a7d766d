//! The records of a pool, and the texts that they refer to.
//!
//! What   a record for each page of the pool's area (record.rs), and tables of sites, tags, threads and
//!        stacks. A text gets the next row when it is first seen. All of it lies in published memory if that
//!        has four times the room: the records then survive a kill, and pools remain published if their
//!        records no longer fit.
//! How    a pool with holders hides its idle pages from the fast paths: its cache is empty and has no room.
//!        Each allocation and each return on the owner's thread takes the slow path, which uses this table;
//!        returns on other threads take the path of pools that sync. Pools without holders pay nothing.
//! Who    `idle_cache`, `last` and `last_ms`: the pool's owner (I2). A record: see record.rs. Rows of texts
//!        and their counts: the holder of the lock of `names`. A row is written, by atomic stores, before its
//!        count is stored (Release), and never again.
//! Limit  a callback that allocates from the pool while the owner's slow path has the idle pages in the
//!        pool's own cache (inside an allocation, `shrink` or `update_nid`) may get a page without a record.
//! Cost   24 bytes per page of the area, and 56 KiB; 128 KiB more for stacks.

use std::collections::BTreeMap;
use std::panic::Location;
use std::sync::atomic::{AtomicBool as PlainBool, AtomicU32 as PlainU32, AtomicU64 as PlainU64, Ordering};

use crate::holders::record::{HolderRecord, Since, What};
use crate::holders::stack::{CallPlace, place_text, stack_text};
use crate::holders::tag::Tag;
use crate::holders::text_row::{HolderThread, TextRow};
use crate::holders::view::{HolderNames, HolderTally, HolderView, HoldersView, ThreadView};
use crate::mem::page::PageIdx;
use crate::recycle::cache::{Cache, OwnerProof};
use crate::recycle::thread;
use crate::sys::call::{coarse_ms, thread_id_and_name};
use crate::sys::placed::{Placed, block_of};
use crate::sys::published_layout::BlockAt;
use crate::sys::sync::UnseenLock;

/// A row of the table of sites; the length is in words, as below.
pub type SiteRow = TextRow<16>;
/// A row of the table of tags.
pub type TagRow = TextRow<5>;
/// A row of the table of stacks.
pub type StackRow = TextRow<256>;
/// Rows of the table of sites.
pub const SITES: usize = 256;
/// Rows of the table of tags.
pub const TAGS: usize = 256;
/// Rows of the table of threads.
pub const THREADS: usize = 64;
/// Rows of the table of stacks.
pub const STACKS: usize = 64;

/// Index of the sites in [`HolderHead::tables`] and [`HolderHead::used`].
pub const OF_SITES: usize = 0;
/// Index of the tags.
pub const OF_TAGS: usize = 1;
/// Index of the threads.
pub const OF_THREADS: usize = 2;
/// Index of the stacks.
pub const OF_STACKS: usize = 3;

/// What observers of the published file read first.
#[derive(Debug)]
#[repr(C)]
pub struct HolderHead {
    /// Where the records are.
    pub records: BlockAt,
    /// Where the tables are: sites, tags, threads, stacks.
    pub tables: [BlockAt; 4],
    /// Rows in use, for each table.
    pub used: [PlainU64; 4],
    /// log2 of the base pages that one record is for.
    pub order: u64,
    /// The coarse clock when the pool was created.
    pub made_ms: u64,
    /// The coarse clock at the pool's last allocation.
    pub last_ms: PlainU64,
    /// The idle pages, which in a pool without holders are in its cache.
    pub(crate) idle_cache: Cache,
}

impl HolderHead {
    /// Bytes that a reader of the file needs: all before the idle cache.
    pub const READ_BYTES: usize = std::mem::offset_of!(Self, idle_cache);
}

/// What a pool records.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recorded {
    /// Sites and threads, not only ages.
    pub(crate) sites: bool,
    /// A stack is taken for one in so many allocations; 0: for none.
    pub(crate) one_stack_in: u32,
}

impl CallPlace {
    /// Unique for each place.
    fn address(self) -> usize {
        match self {
            Self::Rust(at) => std::ptr::from_ref(at).addr(),
            Self::Other(behind) => behind,
        }
    }
}

/// What the owner's allocations cache. Relaxed: only the owner uses it (I2).
#[derive(Debug, Default)]
struct LastAllocations {
    number: PlainU64,
    tag: PlainU64,
    /// The owner's token, and its id in records.
    token: PlainU64,
    thread: PlainU64,
    /// The return address of the current call from outside Rust code, or 0.
    behind: PlainU64,
}

/// Twice the number of rows, to find a place for most sites.
const KNOWN_SITES: usize = 2 * SITES;
/// How many places a lookup tries for a site.
const LOOKS: usize = 16;
/// Tags are numbered in order of creation: two share a place if they are this far apart.
const KNOWN_TAGS: usize = 1024;

/// Cached ids of tags, each word a tag's number and its id. Any thread.
type LastTags = Box<[PlainU32; KNOWN_TAGS]>;

/// The row of each known text. Ordered maps: a hash map's random keys are a cancellation point.
#[derive(Debug, Default)]
struct KnownTexts {
    sites: BTreeMap<String, u16>,
    /// By return address; limited to [`KNOWN_SITES`].
    calls: BTreeMap<usize, u16>,
    /// By thread token.
    threads: BTreeMap<u64, u16>,
    tags: BTreeMap<Tag, u16>,
    /// By id less one.
    tags_of_rows: Vec<Tag>,
    stacks: BTreeMap<String, u16>,
}

/// The records of a pool.
#[derive(Debug)]
pub(crate) struct HolderTable {
    head: Placed<HolderHead>,
    records: Placed<[HolderRecord]>,
    sites: Placed<[SiteRow]>,
    tags: Placed<[TagRow]>,
    threads: Placed<[HolderThread]>,
    stacks: Placed<[StackRow]>,
    recorded: Recorded,
    last: LastAllocations,
    /// Like `last`: addresses of sites, and their ids. A site is at its place or a few after it.
    last_sites: Box<[(PlainU64, PlainU64); KNOWN_SITES]>,
    last_tags: LastTags,
    /// Whether the owner's slow path has the idle pages in the pool's own cache.
    idle_cache_is_lent: PlainBool,
    names: UnseenLock<KnownTexts>,
}

impl HolderTable {
    /// For a pool with pages of `order`, an area of `pages` base pages, and a cache of `cache` pages.
    pub(crate) fn new(recorded: Recorded, pages: u32, order: u8, cache: usize) -> Self {
        let some = |rows: usize, wanted: bool| 0..if wanted { rows } else { 0 };
        let records = Placed::all_sparingly((0..(pages >> order) as usize).map(|_| HolderRecord::default()));
        let sites = Placed::all_sparingly(some(SITES, recorded.sites).map(|_| SiteRow::empty()));
        let tags = Placed::all_sparingly((0..TAGS).map(|_| TagRow::empty()));
        let threads = Placed::all_sparingly(some(THREADS, recorded.sites).map(|_| HolderThread::empty()));
        let stacks = Placed::all(some(STACKS, recorded.one_stack_in > 0).map(|_| StackRow::empty()));
        let tables = [place_of(&sites), place_of(&tags), place_of(&threads), place_of(&stacks)];
        let head = HolderHead {
            records: place_of(&records),
            tables,
            used: Default::default(),
            order: order.into(),
            made_ms: coarse_ms(),
            last_ms: PlainU64::new(coarse_ms()),
            idle_cache: Cache::new(cache, false),
        };
        Self {
            head: Placed::new(head),
            records,
            sites,
            tags,
            threads,
            stacks,
            recorded,
            last: LastAllocations::default(),
            last_sites: on_heap(),
            last_tags: on_heap(),
            idle_cache_is_lent: PlainBool::new(false),
            names: UnseenLock::new(KnownTexts::default()),
        }
    }

    /// Its place in the published file, if all of it is there.
    pub(crate) fn block(&self) -> Option<BlockAt> {
        block_of(&*self.head, 1)
    }

    /// The owner's idle pages.
    #[inline]
    pub(crate) fn idle_cache(&self) -> &Cache {
        &self.head.idle_cache
    }

    /// Whether the idle pages are in the pool's own cache; the owner sets it.
    pub(crate) fn idle_cache_is_lent(&self) -> bool {
        self.idle_cache_is_lent.load(Ordering::Relaxed)
    }

    pub(crate) fn set_idle_cache_lent(&self, out: bool) {
        self.idle_cache_is_lent.store(out, Ordering::Relaxed);
    }

    pub(crate) fn record(&self, page: PageIdx) -> Option<&HolderRecord> {
        self.records.get((page.0 >> self.head.order) as usize)
    }

    /// The owner allocates a page, for a call at `at`.
    pub(crate) fn out(&self, page: PageIdx, at: &'static Location<'static>) {
        let Some(record) = self.record(page) else { return };
        let (now, number) = (coarse_ms(), self.last.number.load(Ordering::Relaxed));
        self.last.number.store(number.wrapping_add(1), Ordering::Relaxed);
        let tag = self.last.tag.load(Ordering::Relaxed) as u16;
        let mut what = What { tag, ..What::default() };
        if self.recorded.sites {
            let behind = self.last.behind.load(Ordering::Relaxed) as usize;
            let site = if behind == 0 { CallPlace::Rust(at) } else { CallPlace::Other(behind) };
            (what.site, what.thread, what.stack) = (self.site(site), self.owner(), self.stack(number, site));
        }
        record.out(Since::new(now, number), what);
        self.head.last_ms.store(now, Ordering::Relaxed);
    }

    /// Attributes the owner's allocations to a call from outside Rust code, until the result is dropped.
    pub(crate) fn call_from(&self, behind: usize) -> OtherCall<'_> {
        let outer = self.last.behind.load(Ordering::Relaxed);
        self.last.behind.store(behind as u64, Ordering::Relaxed);
        OtherCall { behind: &self.last.behind, outer }
    }

    /// Sets or clears the tag of the owner's next allocations.
    pub(crate) fn tag_next(&self, tag: Option<Tag>) {
        self.last.tag.store(tag.map_or(0, |tag| self.tag_id(tag)).into(), Ordering::Relaxed);
    }

    /// The calling thread takes a page over, with this tag. `owner`: its proof if it is the owner.
    pub(crate) fn hand_over(&self, page: PageIdx, tag: Tag, owner: Option<OwnerProof>) {
        let thread = match owner {
            _ if !self.recorded.sites => 0,
            Some(_) => self.owner(),
            None => self.thread(thread::token_or_new()),
        };
        if let Some(record) = self.record(page) {
            record.hand_over(self.tag_id(tag), thread);
        }
    }

    /// The id of a tag; 0 if it has no name, or no row in the table.
    fn tag_id(&self, tag: Tag) -> u16 {
        if tag == Tag::NONE {
            return 0;
        }
        let last = &self.last_tags[usize::from(tag.number()) % self.last_tags.len()];
        let seen = last.load(Ordering::Relaxed); // number and id in one word, to be consistent
        if (seen >> 16) as u16 == tag.number() { seen as u16 } else { self.find_tag(tag, last) }
    }

    #[cold]
    fn find_tag(&self, tag: Tag, last: &PlainU32) -> u16 {
        let name = tag.name(); // outside the lock below
        let mut names = self.names.lock();
        let KnownTexts { tags, tags_of_rows, .. } = &mut *names;
        let id = self.id_of(OF_TAGS, &self.tags, tags, tag, |row| row.write(name));
        if usize::from(id) > tags_of_rows.len() {
            tags_of_rows.push(tag);
        }
        last.store(u32::from(tag.number()) << 16 | u32::from(id), Ordering::Relaxed);
        id
    }

    /// Whether a tag has a row.
    pub(crate) fn knows(&self, tag: Tag) -> bool {
        self.names.lock().tags.contains_key(&tag)
    }

    /// The id of a site, usually found at its place.
    fn site(&self, at: CallPlace) -> u16 {
        let address = at.address();
        let (known, id) = &self.last_sites[address / 8 % KNOWN_SITES];
        if known.load(Ordering::Relaxed) == address as u64 {
            return id.load(Ordering::Relaxed) as u16;
        }
        self.look_for_site(at, address)
    }

    /// Finds a site that is not at its first place. Takes the lock when the owner first sees the site, and
    /// each time if its places are occupied. A function of its own to keep the caller short.
    #[inline(never)]
    fn look_for_site(&self, at: CallPlace, address: usize) -> u16 {
        for place in (0..LOOKS).map(|step| (address / 8 + step) % KNOWN_SITES) {
            let (known, id) = &self.last_sites[place];
            match known.load(Ordering::Relaxed) as usize {
                seen if seen == address => return id.load(Ordering::Relaxed) as u16,
                0 => {
                    let found = self.find_site(at);
                    id.store(found.into(), Ordering::Relaxed);
                    known.store(address as u64, Ordering::Relaxed);
                    return found;
                }
                _ => {}
            }
        }
        self.find_site(at)
    }

    #[cold]
    fn find_site(&self, at: CallPlace) -> u16 {
        match at {
            CallPlace::Rust(at) => self.enter_site(at.to_string()),
            CallPlace::Other(behind) => self.find_call(behind),
        }
    }

    /// Looks up each call once, up to [`KNOWN_SITES`] calls, because a lookup is slow.
    fn find_call(&self, behind: usize) -> u16 {
        let (known, full) = {
            let calls = &self.names.lock().calls;
            (calls.get(&behind).copied(), calls.len() == KNOWN_SITES)
        };
        if known.is_some() || full {
            return known.unwrap_or(0);
        }
        let id = self.enter_site(place_text(behind)); // outside the lock
        self.names.lock().calls.insert(behind, id);
        id
    }

    /// The id of a site by its text: copies of a call share one.
    fn enter_site(&self, text: String) -> u16 {
        let known = &mut self.names.lock().sites;
        self.id_of(OF_SITES, &self.sites, known, text.clone(), |row| row.write_end(&text))
    }

    /// The current owner thread's id in records.
    fn owner(&self) -> u16 {
        let token = match thread::token() {
            0 => thread::token_or_new(),
            token => token,
        };
        if self.last.token.load(Ordering::Relaxed) != token {
            self.last.thread.store(self.thread(token).into(), Ordering::Relaxed);
            self.last.token.store(token, Ordering::Relaxed);
        }
        self.last.thread.load(Ordering::Relaxed) as u16
    }

    /// The calling thread's id in records; `token` is its token.
    #[cold]
    fn thread(&self, token: u64) -> u16 {
        let known = &mut self.names.lock().threads;
        self.id_of(OF_THREADS, &self.threads, known, token, |row| {
            let (tid, name) = thread_id_and_name();
            row.write(tid, name);
        })
    }

    /// The id of this allocation's stack, if it is sampled.
    fn stack(&self, number: u64, at: CallPlace) -> u16 {
        let sampled =
            self.recorded.one_stack_in > 0 && number.is_multiple_of(self.recorded.one_stack_in.into());
        let sampled = sampled && (self.head.used[OF_STACKS].load(Ordering::Relaxed) as usize) < STACKS;
        if sampled { self.find_stack(at) } else { 0 }
    }

    #[cold]
    fn find_stack(&self, at: CallPlace) -> u16 {
        let text = stack_text(at); // outside the lock
        let known = &mut self.names.lock().stacks;
        self.id_of(OF_STACKS, &self.stacks, known, text.clone(), |row| row.write(&text))
    }

    /// The id of what `key` stands for, with the lock held. Something new gets the next row, if there is one;
    /// otherwise 0, and the map grows no further.
    fn id_of<K: Ord, T>(
        &self,
        table: usize,
        rows: &[T],
        known: &mut BTreeMap<K, u16>,
        key: K,
        write: impl FnOnce(&T),
    ) -> u16 {
        if let Some(&id) = known.get(&key) {
            return id;
        }
        let Some(row) = rows.get(known.len()) else { return 0 };
        write(row);
        let id = known.len() as u16 + 1;
        self.head.used[table].store(id.into(), Ordering::Release);
        known.insert(key, id);
        id
    }

    /// The holder of a page that is out: when it went out, its tag, and the rest. `now_ms` of the coarse
    /// clock.
    pub(crate) fn holder(&self, page: PageIdx, now_ms: u64) -> Option<(Since, Option<Tag>, HolderView)> {
        let (since, what) = self.record(page)?.read()?;
        let mut tally = HolderTally::new(now_ms);
        tally.add(page, since, what);
        let row = usize::from(what.tag).checked_sub(1);
        let tag = row.and_then(|row| self.names.lock().tags_of_rows.get(row).copied());
        Some((since, tag, tally.view(self).oldest.pop()?))
    }

    /// A snapshot of all holders. Any thread; time in proportion to the area's pages. Skips the pages in
    /// `complete`, which the owner has not counted yet.
    pub(crate) fn view(&self, complete: &[PageIdx]) -> HoldersView {
        let mut tally = HolderTally::new(coarse_ms());
        for (at, record) in (0u32..).zip(self.records.iter()) {
            let page = PageIdx(at << self.head.order);
            if let Some((since, what)) = record.read().filter(|_| complete.binary_search(&page).is_err()) {
                tally.add(page, since, what);
            }
        }
        tally.view(self)
    }

    /// The row of an id, if it is in use.
    fn row<'a, T>(&self, table: usize, rows: &'a [T], id: u16) -> Option<&'a T> {
        let in_use = u64::from(id) <= self.head.used[table].load(Ordering::Acquire);
        rows.get(usize::from(id.checked_sub(1)?)).filter(|_| in_use)
    }
}

/// A call from outside Rust code; ends with its drop.
pub(crate) struct OtherCall<'a> {
    behind: &'a PlainU64,
    outer: u64,
}

impl Drop for OtherCall<'_> {
    fn drop(&mut self) {
        self.behind.store(self.outer, Ordering::Relaxed);
    }
}

impl HolderNames for HolderTable {
    fn site(&self, id: u16) -> Option<String> {
        self.row(OF_SITES, &self.sites, id).map(TextRow::read)
    }

    fn tag(&self, id: u16) -> Option<String> {
        self.row(OF_TAGS, &self.tags, id).map(TextRow::read)
    }

    fn thread(&self, id: u16) -> Option<ThreadView> {
        let (tid, name) = self.row(OF_THREADS, &self.threads, id)?.read();
        Some(ThreadView { tid, name })
    }

    fn stack(&self, id: u16) -> Option<String> {
        self.row(OF_STACKS, &self.stacks, id).map(TextRow::read)
    }
}

/// An array made on the heap: a stack may be too small for it.
fn on_heap<T: Default, const N: usize>() -> Box<[T; N]> {
    let all: Box<[T]> = std::iter::repeat_with(T::default).take(N).collect();
    all.try_into().unwrap_or_else(|_| unreachable!("there are N"))
}

/// A table's place in the published file; the default if it has no rows or is on the heap.
fn place_of<T>(table: &Placed<[T]>) -> BlockAt {
    block_of(&**table, table.len()).unwrap_or_default()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::*;

    #[track_caller]
    fn here() -> &'static Location<'static> {
        Location::caller()
    }

    #[rustfmt::skip]
    fn many_sites() -> [&'static Location<'static>; 80] {
        [
            here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
            here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
            here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
            here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
            here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
            here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
            here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
            here(), here(), here(), here(), here(), here(), here(), here(), here(), here(),
        ]
    }

    #[test]
    fn what_was_seen_before_is_found_without_the_lock() {
        let (done, wait) = channel();
        std::thread::spawn(move || {
            let table = HolderTable::new(Recorded { sites: true, one_stack_in: 0 }, 16, 0, 8);
            let tags: Vec<_> = (0..200).map(|at| Tag::new(&format!("lock-{at}"))).collect();
            let ids = || -> Vec<u16> {
                let sites = many_sites().map(|at| table.site(CallPlace::Rust(at))); // by the owner
                sites.into_iter().chain(tags.iter().map(|&tag| table.tag_id(tag))).collect()
            };
            let (first, _names) = (ids(), table.names.lock());
            done.send((first, ids())).unwrap_or_default();
        });
        let (first, again) = wait.recv_timeout(Duration::from_secs(60)).expect("it waits for no lock");
        assert_eq!(first, again);
        let expected = (1..=80).chain(1..=200);
        assert!(first.into_iter().eq(expected), "each has a row of its own");
    }
}
