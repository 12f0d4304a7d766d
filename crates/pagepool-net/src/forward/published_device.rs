//! A device that this process publishes to its observers.

use std::sync::atomic::{AtomicU64, Ordering};

use pagepool::{Bound, PublishedEntry, publish_entry, sign_of_life};

use crate::device::{Device, DeviceDescription, DeviceStats, KernelStats};

/// The description of a device is read again in one of this many calls of `show`.
const DESCRIBED_EVERY: u32 = 20;

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// A device as [observers](pagepool::publish) of this process see it: its [description](Device::describe) and
/// its counters. It is shown until this is dropped.
///
/// A [`Forwarder`](crate::Forwarder) publishes its devices itself. Use this in your own loop:
///
/// ```
/// # use pagepool::{Arena, ArenaParams, Pool, PoolParams};
/// # use pagepool_net::{MemNicParams, NicDomain, mem_nic};
/// use pagepool_net::{Device, PublishedDevice};
/// # let arena = Arena::new(ArenaParams { max_bytes: 16 << 20, ..Default::default() })?;
/// # let domain = NicDomain::new("mem0");
/// # let params = PoolParams { domains: vec![domain.clone()], ..Default::default() };
/// # let (mut device, _wire) = mem_nic(MemNicParams::default(), domain)?;
/// # let pool = Pool::new(params, arena)?.bind();
/// let mut published = PublishedDevice::new(&device, &pool); // None if the process does not publish
/// let mut packets = Vec::with_capacity(64);
/// for round in 0..10_000 {
///     device.receive(&pool, &mut packets, 64);
///     if round % 1000 == 0 {
///         published.iter_mut().for_each(|published| published.show(&device));
///     }
/// }
/// # Ok::<(), pagepool::Error>(())
/// ```
#[derive(Debug)]
pub struct PublishedDevice {
    id: u64,
    pool: u64,
    description: DeviceDescription,
    /// `None` if the file had no room when the description changed.
    entry: Option<PublishedEntry>,
    shows: u32,
}

impl PublishedDevice {
    /// Publishes a device, with the pool that it receives into. `None` if the process does not publish, or
    /// the file is full. Call [`publish`](pagepool::publish) before, and before making pools.
    pub fn new(device: &dyn Device, pool: &Bound) -> Option<Self> {
        let (id, pool) = (NEXT_ID.fetch_add(1, Ordering::Relaxed), pool.handle().id().into());
        let description = device.describe();
        let entry = Some(enter(id, pool, &description)?);
        let this = Self { id, pool, description, entry, shows: 0 };
        this.set(device);
        Some(this)
    }

    /// Shows its current counters, and that the process [lives](sign_of_life). Call it on the thread that
    /// polls the device, about 20 times a second. Makes a system call for a socket.
    ///
    /// Reads the description again in call 1, 2, 4, 8 and 16 and in every 20th, because an XDP program may be
    /// attached later. That allocates.
    pub fn show(&mut self, device: &dyn Device) {
        self.shows = self.shows.wrapping_add(1);
        if self.shows.is_multiple_of(DESCRIBED_EVERY)
            || (self.shows < DESCRIBED_EVERY && self.shows.is_power_of_two())
        {
            self.describe(device);
        }
        self.set(device);
        sign_of_life();
    }

    fn describe(&mut self, device: &dyn Device) {
        let now = device.describe();
        if now != self.description {
            self.entry = None; // before the new entry: both have one number
            self.entry = enter(self.id, self.pool, &now);
            self.description = now;
        }
    }

    fn set(&self, device: &dyn Device) {
        if let Some(entry) = &self.entry {
            let stats = device.stats();
            let kernel = stats.kernel.unwrap_or_default();
            set(entry, stats.entries().chain(kernel.entries()));
        }
    }

    /// Publishes another entry for the device, with its number and name.
    pub(super) fn enter_beside(&self, kind: &str, counters: &[&str]) -> Option<PublishedEntry> {
        let place = self.description.place();
        publish_entry(kind, self.id, self.pool, &self.description.name(), &borrowed(&place), counters)
    }
}

fn enter(id: u64, pool: u64, description: &DeviceDescription) -> Option<PublishedEntry> {
    let mut params = description.place();
    params.extend(description.params.iter().cloned());
    let counters = [DeviceStats::NAMES, KernelStats::NAMES].concat();
    publish_entry(description.kind, id, pool, &description.name(), &borrowed(&params), &counters)
}

fn borrowed<'a>(params: &'a [(&'static str, String)]) -> Vec<(&'a str, &'a str)> {
    params.iter().map(|(name, value)| (*name, &**value)).collect()
}

/// Sets the counters of an entry, in their order.
pub(super) fn set(entry: &PublishedEntry, counters: impl Iterator<Item = (&'static str, u64)>) {
    counters.enumerate().for_each(|(at, (_, value))| entry.set(at, value));
}
