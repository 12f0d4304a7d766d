//! What leads to another network namespace that something else keeps alive: asked from time to time whether
//! that still does.
//!
//! Rights to look at `/proc/PID/ns/net` of a process with more capabilities takes CAP_SYS_PTRACE, which a run
//!        gives up. But `/proc/PID/net` shows everybody the links of a process' namespace, and its files have
//!        other numbers in each.
//! Cost   a stat. When what led there is gone, one of each name and process, some at a time: the thread that
//!        asks tells a service manager that the run is alive.

use std::fs;
use std::io;

use super::namespace_place::{FileId, NamespacePlace, NamespacePlaces};
use crate::sys::errno;

/// A name or a process, and what tells the namespace that it led to.
#[derive(Debug)]
pub(crate) struct NamespaceWay {
    place: NamespacePlace,
    there: NamespaceMarks,
    search: Option<PlaceSearch>,
    /// The place is gone, and whether another one leads there cannot be known.
    is_lost: bool,
}

/// What a namespace is told by.
#[derive(Clone, Copy, Debug)]
pub(super) struct NamespaceMarks {
    /// Of its own file.
    pub(super) id: FileId,
    /// Of its list of links, if that can be known.
    pub(super) links: Option<FileId>,
}

/// A search for another place that leads there.
#[derive(Debug)]
struct PlaceSearch {
    places: NamespacePlaces,
    /// There are places that cannot be asked.
    is_hidden: bool,
}

impl NamespaceMarks {
    /// Whether a place leads there; `None` if it cannot be asked.
    fn are_at(&self, place: &NamespacePlace) -> Option<bool> {
        let wanted = match place {
            NamespacePlace::Name(_) => Some(self.id),
            NamespacePlace::Process(_) => self.links,
        };
        match place.mark() {
            Ok(mark) => wanted.map(|wanted| wanted == mark),
            Err(error) => is_gone(&error).then_some(false),
        }
    }
}

/// A process that ends while it is looked at gives ESRCH.
fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(errno::ESRCH)
}

impl NamespaceWay {
    pub(super) fn new(place: NamespacePlace, there: NamespaceMarks) -> Self {
        Self { place, there, search: None, is_lost: false }
    }

    /// Whether a name or a process leads to the namespace, or may do so: where that cannot be known, and
    /// while another place than the known one is looked for. Looks at so many of those at a time.
    pub(super) fn leads_there(&mut self, at_once: usize) -> bool {
        self.is_lost || self.there.are_at(&self.place) != Some(false) || self.search(at_once)
    }

    /// Takes another place that leads there, if there is one. False when it is known that there is none.
    fn search(&mut self, at_once: usize) -> bool {
        let mut search = self.search.take().unwrap_or_else(PlaceSearch::new);
        for _ in 0..at_once {
            let Some(place) = search.places.next() else {
                self.is_lost = search.is_hidden || search.places.is_cut_off();
                return self.is_lost;
            };
            match self.there.are_at(&place) {
                Some(false) => {}
                None => search.is_hidden = true,
                Some(true) => {
                    self.place = place;
                    return true;
                }
            }
        }
        self.search = Some(search);
        true
    }

    /// What stands before a command that is to run there.
    pub(super) fn prefix(&self) -> String {
        self.place.prefix()
    }
}

impl PlaceSearch {
    /// Where process 1 is not seen (`hidepid`), others are not, either.
    fn new() -> Self {
        Self { places: NamespacePlaces::new(), is_hidden: fs::metadata("/proc/1").is_err() }
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    const ALL: usize = usize::MAX;

    fn own() -> NamespaceMarks {
        let id = |path: &str| FileId::at(path).unwrap();
        NamespaceMarks { id: id("/proc/thread-self/ns/net"), links: Some(id("/proc/thread-self/net/dev")) }
    }

    fn nowhere() -> NamespaceMarks {
        let file = FileId::at("/proc/self/stat").unwrap();
        NamespaceMarks { id: file, links: Some(file) }
    }

    #[test]
    fn another_way_is_taken_when_the_known_one_is_gone() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let mut way = NamespaceWay::new(NamespacePlace::Process(child.id()), own());
        let prefix = way.prefix();
        assert!(way.leads_there(0) && way.prefix() == prefix, "the known one is asked first");
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(way.leads_there(ALL) && way.prefix() != prefix, "this process is there, too");
        assert!(way.leads_there(0) && way.search.is_none());
    }

    #[test]
    fn nothing_leads_to_what_does_not_exist() {
        let mut way = NamespaceWay::new(NamespacePlace::Process(u32::MAX), nowhere());
        assert_eq!(way.leads_there(ALL), way.is_lost, "where processes are hidden that is not known");
        way = NamespaceWay::new(NamespacePlace::Process(u32::MAX), NamespaceMarks { links: None, ..own() });
        assert!(way.leads_there(ALL), "a name, or not known");
    }

    #[test]
    fn a_search_looks_at_some_places_at_a_time() {
        let mut way = NamespaceWay::new(NamespacePlace::Process(u32::MAX), nowhere());
        assert!(way.leads_there(1) && way.search.is_some(), "not known yet");
        let asked = (0..super::super::namespace_place::MOST).find(|_| !way.leads_there(1) || way.is_lost);
        assert!(asked.is_some_and(|asked| asked > 1), "{asked:?}: this process and `cargo` at least");
        assert_eq!(way.leads_there(0), way.is_lost || way.search.is_some());
    }
}
