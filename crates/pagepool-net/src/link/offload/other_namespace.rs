//! Another network namespace: found by the number that this one has for it, and entered for a moment.
//!
//! How    the kernel numbers those that a namespace has to do with (`link-netnsid`), and says which number
//!        that of an open file has. Such files are the names of `ip netns`, and one for each process.
//! Who    a thread of its own enters, and ends then: no other thread moves. Sockets that it opened stay
//!        there, wherever they are used.
//! Cost   a stat for each name and each process; an open, a request and a close for each namespace.

use std::collections::HashSet;
use std::fmt;
use std::fs::{self, File, Metadata};
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, Builder};

use crate::link::error::NetError;
use crate::link::netlink::Netlink;
use crate::link::sys;

/// Names and processes that are looked at.
const MOST: usize = 1 << 16;
/// Where `ip netns` keeps its names.
const NAMES: &str = "/run/netns";
/// A file of the kind that is looked for: a name in [`NAMES`] may be of another.
const OWN: &str = "/proc/thread-self/ns/net";

/// A network namespace that a name or a process leads to. The value keeps it alive.
#[derive(Clone, Debug)]
pub struct OtherNamespace {
    file: Arc<File>,
    place: PathBuf,
    id: NamespaceId,
}

/// What tells namespaces apart: the device and the number of their files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct NamespaceId(u64, u64);

impl NamespaceId {
    fn of(file: &Metadata) -> Self {
        Self(file.dev(), file.ino())
    }

    /// Of what a path leads to.
    fn at(path: &Path) -> Option<Self> {
        fs::metadata(path).ok().as_ref().map(Self::of)
    }

    /// Whether a name or a process still leads to it, first of all this one.
    pub(crate) fn is_in_use(self, place: &Path) -> bool {
        // A process with more capabilities than this one has left may not be looked at, but is there.
        let is_hidden = fs::metadata(place).is_err_and(|error| error.kind() == ErrorKind::PermissionDenied);
        is_hidden || Self::at(place) == Some(self) || places().any(|place| Self::at(&place) == Some(self))
    }
}

impl OtherNamespace {
    /// The namespace that the netlink client's has this number for; `None` if no name and no process that may
    /// be looked at leads to it.
    pub(crate) fn find(netlink: &mut Netlink, number: u32) -> Option<Self> {
        let NamespaceId(device, _) = NamespaceId::at(Path::new(OWN))?;
        let mut seen = HashSet::new();
        for place in places() {
            let Some(id) = NamespaceId::at(&place).filter(|id| id.0 == device) else { continue };
            if !seen.insert(id) {
                continue;
            }
            // One that may not be opened, or is gone already, may have another way to it.
            let opened = File::open(&place).ok();
            let found = opened.filter(|file| netlink.number_of(file.as_fd()).ok().flatten() == Some(number));
            if let Some(file) = found {
                return Some(Self { file: Arc::new(file), place, id });
            }
        }
        None
    }

    /// Runs a closure in it, on a thread that ends with that.
    pub(crate) fn run<T: Send>(
        &self,
        work: impl FnOnce() -> Result<T, NetError> + Send,
    ) -> Result<T, NetError> {
        let enter = || {
            let entered = sys::namespace::enter_network(self.file.as_fd());
            entered.map_err(|error| NetError::call("setns", self.to_string(), error))?;
            work()
        };
        thread::scope(|threads| {
            let thread = Builder::new().name("other-namespace".into()).spawn_scoped(threads, enter);
            let thread = thread.map_err(|error| NetError::call("clone", "a thread to enter it", error))?;
            thread.join().unwrap_or_else(|panic| resume_unwind(panic))
        })
    }

    /// What stands before a command that is to run there.
    ///
    /// ```
    /// use pagepool_net::link::{Netlink, OffloadOwner, Ethtool, XdpMode, offload_faults};
    /// let (mut netlink, ethtool) = (Netlink::open()?, Ethtool::open()?);
    /// for link in netlink.links()? {
    ///     for fault in offload_faults(&mut netlink, &ethtool, &link, XdpMode::Native)? {
    ///         if let OffloadOwner::PeerElsewhere { namespace, .. } = &fault.owner {
    ///             println!("{}ip link", namespace.prefix()); // ip netns exec NAME ip link
    ///         }
    ///     }
    /// }
    /// # Ok::<(), pagepool_net::link::NetError>(())
    /// ```
    pub fn prefix(&self) -> String {
        match self.name() {
            Some(name) => format!("ip netns exec {name} "),
            None => format!("nsenter --net={} ", self.place.display()),
        }
    }

    /// Where it was found, and what it is told from others by.
    pub(crate) fn found(&self) -> (PathBuf, NamespaceId) {
        (self.place.clone(), self.id)
    }

    fn name(&self) -> Option<std::path::Display<'_>> {
        self.place.strip_prefix(NAMES).ok().map(Path::display)
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
        match self.name() {
            Some(name) => write!(f, "network namespace {name}"),
            None => write!(f, "network namespace {}", self.place.display()),
        }
    }
}

/// What may lead to a namespace: names, which tell people more, and then processes.
fn places() -> impl Iterator<Item = PathBuf> {
    let in_folder = |folder| fs::read_dir(folder).into_iter().flatten().flatten();
    let names = in_folder(NAMES).map(|name| name.path());
    let processes = in_folder("/proc").filter_map(|entry| {
        let number: u32 = entry.file_name().to_str()?.parse().ok()?;
        Some(format!("/proc/{number}/ns/net").into())
    });
    names.chain(processes).take(MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_no_namespace_has_leads_to_none() {
        let mut netlink = Netlink::open().unwrap();
        assert!(OtherNamespace::find(&mut netlink, 0x7fff_ffff).is_none());
        assert!(netlink.number_of(File::open("/proc/self/stat").unwrap().as_fd()).is_err(), "no namespace");
        let own = Path::new(OWN);
        let id = NamespaceId::at(own).unwrap();
        assert!(id.is_in_use(own) && id.is_in_use(Path::new("/nowhere")), "this process is there");
        assert!(!NamespaceId(id.0, 1).is_in_use(own), "a number that no namespace has");
    }
}
