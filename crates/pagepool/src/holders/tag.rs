//! Names of holders, for the whole process.
//!
//! What   a tag is the number of a name. Names are never removed: a handle of any pool can have any tag, and
//!        a reader finds the name without its pool.
//! Limit  65,535 names; later tags have none.
//! Cost   creating a tag takes a lock and a lookup. A tag is two bytes.

use std::collections::BTreeMap;

use crate::sys::sync::UnseenLock;

/// The name of a holder of buffers, for reports. Valid for buffers of all pools in the process.
///
/// Create it once and keep it: [`new`](Self::new) takes a lock, and a name lives as long as the process.
///
/// ```
/// use pagepool::Tag;
/// let tag = Tag::new("reassembly");
/// assert_eq!((tag, tag.name()), (Tag::new("reassembly"), "reassembly"));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag(u16);

/// The names by number less one, and the numbers by name.
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

    /// Returns the tag with this name, and creates it if needed. Any thread; takes a lock. Names live as long
    /// as the process. For an empty name, or after 65,535 names, the tag has no name, and `set_tag` ignores
    /// it.
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

    /// The name; empty if it has none.
    pub fn name(self) -> &'static str {
        let at = usize::from(self.0).checked_sub(1);
        at.and_then(|at| NAMES.lock().names.get(at).copied()).unwrap_or("")
    }

    /// The number for records; 0 is no name.
    #[inline]
    pub(crate) fn number(self) -> u16 {
        self.0
    }

    /// The tag of a number that [`number`](Self::number) returned; `None` for 0.
    pub(crate) fn of_number(number: u16) -> Option<Self> {
        (number > 0).then_some(Self(number))
    }
}

impl std::fmt::Debug for Tag {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Tag").field(&self.name()).finish()
    }
}
