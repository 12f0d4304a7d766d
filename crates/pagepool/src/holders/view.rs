//! What observers get of the records: plain values.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::fmt;
use std::time::Duration;

use crate::holders::record::{Since, What};
use crate::mem::page::PageIdx;

/// The ages that separate the counts of [`HoldersView::ages`].
pub const AGE_EDGES: [Duration; 7] = [
    Duration::from_millis(10),
    Duration::from_millis(100),
    Duration::from_secs(1),
    Duration::from_secs(10),
    Duration::from_secs(60),
    Duration::from_secs(600),
    Duration::from_secs(3600),
];

/// Most pages of [`HoldersView::oldest`].
pub const MOST_OLDEST: usize = 32;

/// Most groups of [`HoldersView::groups`].
pub const MOST_GROUPS: usize = 64;

/// A thread of a process.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct ThreadView {
    /// The system's thread id, as in `/proc/PID/task`.
    pub tid: u32,
    /// The thread's name when it first bound a pool, allocated or returned a buffer.
    pub name: String,
}

/// Who holds the pages of a pool, and for how long: a snapshot.
///
/// Ages come from a coarse clock, which advances every 1 to 10 ms.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HoldersView {
    /// Pages that are out, including those in the deferred queue. A page in fragments counts as one, from its
    /// first fragment until it is complete again. The page that the pool currently cuts counts even with no
    /// fragment out, until the pool opens another or allocates it whole.
    pub held: u64,
    /// Pages by age: first those younger than [`AGE_EDGES`]`[0]`, last those as old as the last edge or
    /// older.
    pub ages: [u64; AGE_EDGES.len() + 1],
    /// The oldest pages, oldest first; at most [`MOST_OLDEST`].
    pub oldest: Vec<HolderView>,
    /// The largest groups of equal tag, thread and site, most pages first; at most [`MOST_GROUPS`].
    pub groups: Vec<HolderGroup>,
    /// Number of groups that are not in `groups`.
    pub more_groups: u64,
}

/// A page that is out, and its holder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HolderView {
    /// The page's number in the area.
    pub page: PageIdx,
    /// The tag last set on its buffer; else the owner's tag at the allocation. A pool with `tagging` records
    /// no more than this.
    pub tag: Option<String>,
    /// The thread that set that tag, else the one that allocated the page.
    pub thread: Option<ThreadView>,
    /// Where the page (or its first fragment) was allocated, as `src/main.rs:12:5`: the last 128 bytes of
    /// that.
    pub site: Option<String>,
    /// How long the page has been out. For a dead process: until it was last known to run.
    pub age: Option<Duration>,
    /// The stack of the allocation, one line a frame, if it was sampled.
    pub stack: Option<String>,
}

/// Pages of one tag, thread and site.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HolderGroup {
    /// The tag: see [`HolderView::tag`].
    pub tag: Option<String>,
    /// The thread: see [`HolderView::thread`].
    pub thread: Option<ThreadView>,
    /// The allocation's place: see [`HolderView::site`].
    pub site: Option<String>,
    /// Number of pages.
    pub pages: u64,
    /// Age of the oldest page.
    pub oldest: Duration,
}

impl ThreadView {
    /// A thread that a published file names.
    #[doc(hidden)]
    pub fn new(tid: u32, name: String) -> Self {
        Self { tid, name }
    }
}

impl fmt::Display for ThreadView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, self.tid)
    }
}

impl fmt::Display for HolderView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "page {:?}", self.page)?;
        self.tag.iter().try_for_each(|tag| write!(f, " held by {tag}"))?;
        self.age.iter().try_for_each(|age| write!(f, " for {:.1} s", age.as_secs_f64()))?;
        write_origin(f, &self.thread, &self.site)?;
        self.stack.iter().flat_map(|stack| stack.lines()).try_for_each(|frame| write!(f, "\n    {frame}"))
    }
}

impl fmt::Display for HolderGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = if self.pages == 1 { "" } else { "s" };
        write!(f, "{} page{s} held by {}", self.pages, self.tag.as_deref().unwrap_or("no tag"))?;
        write_origin(f, &self.thread, &self.site)?;
        write!(f, "; the oldest for {:.1} s", self.oldest.as_secs_f64())
    }
}

fn write_origin(
    f: &mut fmt::Formatter<'_>,
    thread: &Option<ThreadView>,
    site: &Option<String>,
) -> fmt::Result {
    thread.iter().try_for_each(|thread| write!(f, ", thread {thread}"))?;
    site.iter().try_for_each(|site| write!(f, ", allocated at {site}"))
}

/// Text of how many pages have which age; `None` without pages.
pub(crate) fn ages_text(ages: &[u64; AGE_EDGES.len() + 1]) -> Option<String> {
    let age = |edge: Duration| match edge.as_millis() {
        ms @ ..1000 => format!("{ms} ms"),
        ms => format!("{} s", ms / 1000),
    };
    let younger = AGE_EDGES.map(|edge| format!("younger than {}", age(edge)));
    let older = format!("{} or older", age(AGE_EDGES[AGE_EDGES.len() - 1]));
    let some = younger.into_iter().chain([older]).zip(ages).filter(|&(_, &pages)| pages > 0);
    let texts: Vec<_> = some.map(|(age, pages)| format!("{pages} {age}")).collect();
    (!texts.is_empty()).then(|| texts.join(", "))
}

/// Looks up the texts of a record's ids.
pub trait HolderNames {
    /// The text of a site.
    fn site(&self, id: u16) -> Option<String>;
    /// The name of a tag.
    fn tag(&self, id: u16) -> Option<String>;
    /// A thread.
    fn thread(&self, id: u16) -> Option<ThreadView>;
    /// The text of a stack.
    fn stack(&self, id: u16) -> Option<String>;
}

/// Ids, number of pages with them, and when the oldest went out.
type Group = (What, (u64, u64));

/// Counts records as they are read.
pub struct HolderTally {
    now_ms: u64,
    held: u64,
    ages: [u64; AGE_EDGES.len() + 1],
    /// A heap of the oldest pages, the youngest of them on top.
    oldest: BinaryHeap<(Since, u32, u64)>,
    groups: BTreeMap<What, (u64, u64)>,
}

impl HolderTally {
    /// Ages end at `now_ms` of the coarse clock.
    pub fn new(now_ms: u64) -> Self {
        let (oldest, groups) = (BinaryHeap::new(), BTreeMap::new());
        Self { now_ms, held: 0, ages: Default::default(), oldest, groups }
    }

    fn age(&self, ms: u64) -> Duration {
        Duration::from_millis(self.now_ms.saturating_sub(ms))
    }

    /// Counts a page that is out.
    pub fn add(&mut self, page: PageIdx, since: Since, what: What) {
        let age = self.age(since.ms());
        self.held += 1;
        self.ages[AGE_EDGES.partition_point(|&edge| edge <= age)] += 1;
        let group = self.groups.entry(What { stack: 0, ..what }).or_insert((0, u64::MAX));
        *group = (group.0 + 1, group.1.min(since.ms()));
        self.oldest.push((since, page.0, what.word()));
        if self.oldest.len() > MOST_OLDEST {
            self.oldest.pop();
        }
    }

    /// What was counted, with the texts of its ids.
    pub fn view(self, names: &impl HolderNames) -> HoldersView {
        let oldest = self.oldest.clone().into_sorted_vec();
        let oldest = oldest.into_iter().map(|(since, page, what)| {
            let what = What::of_word(what);
            HolderView {
                page: PageIdx(page),
                tag: names.tag(what.tag),
                thread: names.thread(what.thread),
                site: names.site(what.site),
                age: Some(self.age(since.ms())),
                stack: names.stack(what.stack),
            }
        });
        let (largest, more_groups) = self.largest_groups();
        let groups = largest.into_iter().map(|(what, (pages, oldest_ms))| HolderGroup {
            tag: names.tag(what.tag),
            thread: names.thread(what.thread),
            site: names.site(what.site),
            pages,
            oldest: self.age(oldest_ms),
        });
        let (oldest, mut groups): (_, Vec<_>) = (oldest.collect(), groups.collect());
        groups.sort_by(|a, b| {
            let rest = |group: &HolderGroup| (group.site.clone(), group.tag.clone(), group.thread.clone());
            (b.pages, b.oldest).cmp(&(a.pages, a.oldest)).then_with(|| rest(a).cmp(&rest(b)))
        });
        HoldersView { held: self.held, ages: self.ages, oldest, groups, more_groups }
    }

    /// The groups to show, unsorted, and the number of others. Compares ids, because a file can have a
    /// million groups, and only the shown ones need texts.
    fn largest_groups(&self) -> (Vec<Group>, u64) {
        let mut all: Vec<_> = self.groups.iter().map(|(&what, &group)| (what, group)).collect();
        let more = all.len().saturating_sub(MOST_GROUPS);
        if more > 0 {
            let rank =
                |&(what, (pages, oldest_ms)): &(What, (u64, u64))| (Reverse(pages), oldest_ms, what.word());
            all.select_nth_unstable_by_key(MOST_GROUPS - 1, rank);
            all.truncate(MOST_GROUPS);
        }
        (all, more as u64)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    struct IdTexts;

    impl HolderNames for IdTexts {
        fn site(&self, id: u16) -> Option<String> {
            (id > 0).then(|| format!("site {id}"))
        }
        fn tag(&self, _: u16) -> Option<String> {
            None
        }
        fn thread(&self, _: u16) -> Option<ThreadView> {
            None
        }
        fn stack(&self, id: u16) -> Option<String> {
            (id > 0).then(|| format!("stack {id}"))
        }
    }

    #[test]
    fn ages_lie_between_their_edges() {
        let now = 10_000_000;
        let mut tally = HolderTally::new(now);
        let ages_ms =
            [0, 9, 10, 99, 100, 1_000, 9_999, 10_000, 60_000, 600_000, 3_599_999, 3_600_000, 9_000_000];
        for (page, age) in (0..).zip(ages_ms) {
            tally.add(PageIdx(page), Since::new(now - age, 0), What::default());
        }
        tally.add(PageIdx(99), Since::new(now + 5, 0), What::default()); // allocated after the scan began
        let view = tally.view(&IdTexts);
        assert_eq!(view.ages, [3, 2, 1, 2, 1, 1, 2, 2]);
        assert_eq!((view.held, view.ages.iter().sum::<u64>()), (14, 14));
        assert_eq!((view.oldest[0].page, view.oldest[0].age), (PageIdx(12), Some(Duration::from_secs(9000))));
        assert_eq!(view.oldest[13].age, Some(Duration::ZERO));
    }

    #[test]
    fn the_oldest_are_kept_and_the_largest_groups_come_first() {
        let mut tally = HolderTally::new(1_000);
        for page in 0..100 {
            let what =
                What { site: if page % 10 == 0 { 1 } else { 2 }, stack: page as u16, ..What::default() };
            tally.add(PageIdx(page), Since::new(900 - u64::from(page), 0), what);
        }
        let view = tally.view(&IdTexts);
        assert_eq!(view.oldest.len(), MOST_OLDEST);
        assert_eq!((view.oldest[0].page, view.oldest[31].page), (PageIdx(99), PageIdx(68)));
        assert_eq!(view.oldest[0].stack.as_deref(), Some("stack 99"));
        let groups: Vec<_> = view.groups.iter().map(|g| (g.site.clone().unwrap(), g.pages)).collect();
        assert_eq!(groups, [("site 2".to_owned(), 90), ("site 1".to_owned(), 10)]);
        assert_eq!((view.groups[1].oldest, view.more_groups), (Duration::from_millis(190), 0));
    }

    #[test]
    fn of_many_groups_the_largest_have_texts() {
        let mut tally = HolderTally::new(1_000);
        for page in 0..1000 {
            let site = if page < 10 { 7 } else { page as u16 };
            tally.add(PageIdx(page), Since::new(500 + u64::from(page), 0), What { site, ..What::default() });
        }
        let view = tally.view(&IdTexts);
        assert_eq!((view.held, view.groups.len(), view.more_groups), (1000, MOST_GROUPS, 991 - 64));
        assert_eq!((view.groups[0].site.as_deref(), view.groups[0].pages), (Some("site 7"), 10));
        assert_eq!(view.groups[63].site.as_deref(), Some("site 72"), "of groups of one size the oldest");
    }
}
