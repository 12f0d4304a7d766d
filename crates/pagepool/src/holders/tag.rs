//! Names of holders, known to the whole process.
//!
//! What   a tag is the number of a name. Names are entered once and stay: a handle of any pool can have any
//!        of them, and who reads a number finds its name without asking the pool.
//! Limit  65,535 names; a tag of a later one has none.
//! Cost   to make one: a lock and a look-up. A tag itself is two bytes.

use std::collections::BTreeMap;

use crate::sys::sync::UnseenLock;

/// The name of a holder of buffers, for reports: of any pool's buffers, in all of the process.
///
/// Make it once and keep it: [`new`](Self::new) takes a lock, and a name stays for the life of the process.
///
/// ```
/// use pagepool::Tag;
/// let tag = Tag::new("reassembly");
/// assert_eq!((tag, tag.name()), (Tag::new("reassembly"), "reassembly"));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag(u16);

/// The names by their numbers less one, and the other way round.
#[derive(Debug)]
struct TagNames {
    names: Vec<&'static str>,
    numbers: BTreeMap<&'static str, Tag>,
}

static NAMES: UnseenLock<TagNames> =
    UnseenLock::new(TagNames { names: Vec::new(), numbers: BTreeMap::new() });

impl Tag {
    /// No name.
    pub(crate) const NONE: Self = Self(0);

    /// The tag of this name, any thread. Names stay as long as the process; after 65,535 of them, and of no
    /// text, it is one without a name, with which `set_tag` changes nothing.
    pub fn new(name: &str) -> Self {
        if name.is_empty() {
            return Self::NONE;
        }
        let mut names = NAMES.lock();
        let TagNames { names, numbers } = &mut *names;
        if let Some(&known) = numbers.get(name) {
            return known;
        }
        let Ok(number) = u16::try_from(names.len() + 1) else { return Self::NONE };
        let name: &'static str = Box::leak(name.into());
        names.push(name);
        numbers.insert(name, Self(number));
        Self(number)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        let at = usize::from(self.0).checked_sub(1);
        at.and_then(|at| NAMES.lock().names.get(at).copied()).unwrap_or("")
    }

    /// A number for records; 0: no name.
    #[inline]
    pub(crate) fn number(self) -> u16 {
        self.0
    }

    /// The tag that a number stands for, which [`number`](Self::number) gave; none for 0.
    pub(crate) fn of_number(number: u16) -> Option<Self> {
        (number > 0).then_some(Self(number))
    }
}

impl std::fmt::Debug for Tag {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Tag").field(&self.name()).finish()
    }
}
