//! Finds what would misdirect passed packets: a generic XDP program, another network namespace.
//!
//! When   the XDP program: at the start, before the first packets, and 10 times a second while packets pass.
//!        The namespace: before each burst, if the BPF program cannot compare it.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use pagepool::Error;
use pagepool_link::{Netlink, XdpMode};

use crate::interface::lookup;

const EVERY: Duration = Duration::from_millis(100);
/// An interface in a bond in a bridge, and more.
const LEVELS: usize = 8;

#[derive(Debug)]
pub(super) struct LoopWatch {
    netlink: Netlink,
    index: u32,
    /// When to look again.
    next: Instant,
    /// The interface's namespace, if this compares it.
    here: Option<u64>,
}

impl LoopWatch {
    pub(super) fn new(index: u32) -> Result<Self, Error> {
        Ok(Self { netlink: lookup::netlink()?, index, next: Instant::now(), here: None })
    }

    /// The cookie of the interface's network namespace.
    pub(super) fn namespace(&self) -> u64 {
        self.netlink.namespace()
    }

    /// Looks, if it is time to.
    pub(super) fn look_if_due(&mut self) -> Result<Option<String>, Error> {
        let now = Instant::now();
        if now < self.next {
            return Ok(None);
        }
        let found = self.look()?;
        self.next = now + EVERY;
        Ok(found)
    }

    /// The interface, or the bridge or bond above it, that has a generic XDP program.
    pub(super) fn look(&mut self) -> Result<Option<String>, Error> {
        let mut index = Some(self.index);
        for _ in 0..LEVELS {
            let link = index.map(|index| self.netlink.link_at(index)).transpose().map_err(lookup::system)?;
            let Some(link) = link.flatten() else { break };
            if link.xdp.iter().any(|attached| attached.mode == XdpMode::Generic) {
                return Ok(Some(link.name));
            }
            index = link.master;
        }
        Ok(None)
    }

    /// Compares the thread's namespace with this one from now on.
    pub(super) fn compare_namespaces(&mut self) -> io::Result<()> {
        self.here = Some(namespace_of_thread()?);
        Ok(())
    }

    /// Whether this thread is in another namespace. False if that is not compared.
    pub(super) fn is_elsewhere(&self) -> bool {
        self.here.is_some() && namespace_of_thread().ok() != self.here
    }
}

/// The number of the thread's network namespace.
fn namespace_of_thread() -> io::Result<u64> {
    Ok(std::fs::metadata("/proc/thread-self/ns/net")?.ino())
}
