//! The stack as observers see it, if the process publishes.

use std::sync::atomic::{AtomicU64, Ordering};

use pagepool::{PublishedEntry, publish_entry};

use super::stats::KernelStackStats;

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

#[derive(Debug)]
pub(super) struct PublishedStack {
    id: u64,
    index: String,
    /// `None` if the file had no room when the stack stopped.
    entry: Option<PublishedEntry>,
    says_why: bool,
}

impl PublishedStack {
    /// `None` if the process does not publish, or the file is full.
    pub(super) fn new(interface: &str, index: u32) -> Option<Self> {
        let (id, index) = (NEXT_ID.fetch_add(1, Ordering::Relaxed), index.to_string());
        let entry = Some(enter(id, interface, &index, None)?);
        Some(Self { id, index, entry, says_why: false })
    }

    /// Shows the counters. Once the stack has stopped, also why.
    pub(super) fn show(&mut self, interface: &str, stats: KernelStackStats, stopped: Option<&str>) {
        if !self.says_why && stopped.is_some() {
            self.entry = None; // before the new entry: both have one number
            self.entry = enter(self.id, interface, &self.index, stopped);
            self.says_why = true;
        }
        if let Some(entry) = &self.entry {
            stats.entries().enumerate().for_each(|(at, (_, value))| entry.set(at, value));
        }
    }
}

fn enter(id: u64, interface: &str, index: &str, stopped: Option<&str>) -> Option<PublishedEntry> {
    let mut params = vec![("interface", interface), ("ifindex", index)];
    params.extend(stopped.map(|why| ("stopped", why)));
    publish_entry("stack", id, 0, interface, &params, KernelStackStats::NAMES)
}
