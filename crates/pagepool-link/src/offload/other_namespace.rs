//! Another network namespace: found by this namespace's id for it, and entered briefly.
//!
//! How    the kernel numbers the related namespaces of a namespace (`link-netnsid`), and maps an open
//!        namespace file to its number. Such files are the names of `ip netns`, and one per process.
//! Who    a separate thread enters, and then ends: no other thread changes its namespace. Sockets that it
//!        opened stay in that namespace, whichever thread uses them.
//! Rights opening the file of a process with more capabilities requires CAP_SYS_PTRACE; entering requires
//!        CAP_SYS_ADMIN.
//! Cost   a stat for each name and process; an open, a request and a close for each namespace.

use std::collections::HashSet;
use std::fmt;
use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread::{self, Builder};

use super::namespace_place::{FileId, NamespacePlace, places};
use crate::error::LinkError;
use crate::netlink::Netlink;
use crate::sys;

/// A namespace file, for comparison: a name may lead to another kind of file.
const OWN: &str = "/proc/thread-self/ns/net";

/// A network namespace, found by a name or a process. This value keeps it alive.
#[derive(Clone, Debug)]
pub(crate) struct OtherNamespace {
    file: Arc<File>,
    place: NamespacePlace,
    id: FileId,
}

impl OtherNamespace {
    /// The namespace with this number in the netlink client's namespace, or why it was not found.
    pub(crate) fn find(netlink: &mut Netlink, number: u32) -> Result<Self, String> {
        let kind = FileId::at(OWN);
        let kind = kind.map_err(|error| format!("{OWN} cannot be examined: {error}; mount /proc"))?;
        Self::search(places(), kind, |file| {
            netlink.number_of(file.as_fd()).ok().map(|found| found == Some(number))
        })
    }

    /// The first of these places that leads to the namespace. `is_it` returns `None` if the kernel does
    /// not identify a file; then other places of that namespace are tried.
    fn search(
        places: impl Iterator<Item = NamespacePlace>,
        kind: FileId,
        mut is_it: impl FnMut(&File) -> Option<bool>,
    ) -> Result<Self, String> {
        let (mut others, mut denied) = (HashSet::new(), Vec::new());
        for place in places {
            let Ok(mark) = place.mark() else { continue };
            let is_other_file = matches!(place, NamespacePlace::Name(_)) && !mark.is_beside(kind);
            if is_other_file || others.contains(&mark) {
                continue;
            }
            match place.open() {
                Ok(file) => match is_it(&file) {
                    Some(true) => return Self::at(file, place),
                    Some(false) => _ = others.insert(mark),
                    None => {} // another place may identify it
                },
                Err(error) if error.kind() == ErrorKind::PermissionDenied => denied.push(mark),
                Err(_) => {} // the process ended
            }
        }
        Err(not_found(denied.iter().filter(|mark| !others.contains(mark)).count()))
    }

    fn at(file: File, place: NamespacePlace) -> Result<Self, String> {
        let id = file.metadata().map_err(|error| format!("fstat of its namespace failed: {error}"))?;
        Ok(Self { id: FileId::new(&id), file: Arc::new(file), place })
    }

    /// Runs a closure in it, on a thread that then ends.
    pub(crate) fn run<T: Send>(
        &self,
        work: impl FnOnce() -> Result<T, LinkError> + Send,
    ) -> Result<T, LinkError> {
        let enter = || {
            let entered = sys::namespace::enter_network(self.file.as_fd());
            entered.map_err(|error| LinkError::call("setns", self.to_string(), error))?;
            work()
        };
        thread::scope(|threads| {
            let thread = Builder::new().name("other-namespace".into()).spawn_scoped(threads, enter);
            let thread = thread.map_err(|error| LinkError::call("clone", "a thread to enter it", error))?;
            thread.join().unwrap_or_else(|panic| resume_unwind(panic))
        })
    }

    /// The prefix of a command that is to run there.
    pub(super) fn prefix(&self) -> String {
        self.place.prefix()
    }
}

impl PartialEq for OtherNamespace {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Eq for OtherNamespace {}

impl fmt::Display for OtherNamespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "network namespace {}", self.place.text())
    }
}

/// Why it was not found. `denied`: processes that cannot be examined, in namespaces that no other place leads
/// to.
fn not_found(denied: usize) -> String {
    let none = "no `ip netns` name and no visible process leads to its namespace";
    match denied {
        0 => none.into(),
        1 => format!("{none}; 1 process cannot be examined without CAP_SYS_PTRACE"),
        many => format!("{none}; {many} processes cannot be examined without CAP_SYS_PTRACE"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_no_namespace_has_leads_to_none() {
        let mut netlink = Netlink::open().unwrap();
        let why = OtherNamespace::find(&mut netlink, 0x7fff_ffff).unwrap_err();
        assert!(why.starts_with("no `ip netns` name and no visible process"), "{why}");
        assert!(netlink.number_of(File::open("/proc/self/stat").unwrap().as_fd()).is_err(), "no namespace");
        assert!(not_found(2).contains("; 2 processes cannot be examined without CAP_SYS_PTRACE"));
    }

    #[test]
    fn places_are_tried_until_one_answers_for_the_namespace() {
        let kind = FileId::at(OWN).unwrap();
        let own = || NamespacePlace::Process(std::process::id());
        let search = |second: Option<bool>| {
            let (places, mut asked) = ([own(), own(), own()].into_iter(), 0);
            let found = OtherNamespace::search(places, kind, |_| {
                asked += 1;
                second.filter(|_| asked == 2)
            });
            (found.is_ok(), asked)
        };
        assert_eq!(search(Some(true)), (true, 2), "the first could not tell");
        assert_eq!(search(Some(false)), (false, 2), "the third need not");
        assert_eq!(search(None), (false, 3));
    }

    #[test]
    fn a_name_of_another_file_is_not_opened() {
        let kind = FileId::at(OWN).unwrap();
        let places = ["/proc/self/stat", OWN].map(|path| NamespacePlace::Name(path.into()));
        let found = OtherNamespace::search(places.into_iter(), kind, |_| Some(true)).unwrap();
        assert_eq!(found.id, kind);
        assert_eq!(found.to_string(), "network namespace net");
    }
}
