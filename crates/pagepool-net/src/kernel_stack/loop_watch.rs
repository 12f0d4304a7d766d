//! Finds what would misdirect passed packets: a generic XDP program, another network namespace.
//!
//! When   the XDP program: at the start, before the first packets, and 10 times a second while packets pass.
//!        The namespace: before each burst, if the BPF program cannot compare it.

use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use pagepool::Error;
use pagepool_link::{Netlink, XdpMode};

use crate::interface::lookup;

const EVERY: Duration = Duration::from_millis(100);

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

    /// Whether to look again, now.
    pub(super) fn is_due(&mut self) -> bool {
        let now = Instant::now();
        let is_due = now >= self.next;
        if is_due {
            self.next = now + EVERY;
        }
        is_due
    }

    /// Whether the interface has a generic XDP program.
    pub(super) fn would_loop(&mut self) -> Result<bool, Error> {
        let link = self.netlink.link_at(self.index).map_err(lookup::system)?;
        let programs = link.map(|link| link.xdp).unwrap_or_default();
        Ok(programs.iter().any(|attached| attached.mode == XdpMode::Generic))
    }

    /// Compares the thread's namespace with this one from now on.
    pub(super) fn compare_namespaces(&mut self) {
        self.here = namespace_of_thread();
    }

    /// Whether this thread is in another namespace. False if that is not compared.
    pub(super) fn is_elsewhere(&self) -> bool {
        self.here.is_some() && namespace_of_thread() != self.here
    }
}

/// The number of the thread's network namespace.
fn namespace_of_thread() -> Option<u64> {
    Some(std::fs::metadata("/proc/thread-self/ns/net").ok()?.ino())
}
