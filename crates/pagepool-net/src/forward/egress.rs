//! How a device sends a frame that another device received.
//!
//! What   an [`Egress`] belongs to one device. A frame whose memory the device's domain maps is sent
//!        unchanged, at its address there. If the domain can map more, the frame's whole area is mapped,
//!        once. Else the bytes are copied into pages of the device's own pool.
//! Who    the thread that polls the device.
//! I6     an egress is a user of each mapping that it relies on, even of one that it found: the pool that
//!        made it may end first. Close the device before the egress: the egress releases its mappings, and
//!        the device must not access the memory after that.
//! Cost   the area of the last frame: a compare per buffer. Another known area: a search. A new area: its
//!        lock.

use std::sync::Arc;

use pagepool::{Area, Bound, DmaDomain, Mapping, PageBuf, XdpBuff, XdpFrame};

use crate::device::Device;
use crate::device::counters::counters;

/// How a device reaches the memory of a frame: unchanged, by a mapping, or by a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Path {
    /// Unchanged: the device's address space maps it already, or the device copies what it sends.
    Reuse,
    /// Unchanged, after its whole area has been mapped: for the first frame of an area.
    MapOnce,
    /// Copied into pages of the device's own pool.
    Copy,
}

counters! {
    /// The paths of frames to a device. Counts are of frames unless they say otherwise.
    PathStats:
    /// Frames sent without a copy, because their memory was already mapped for this device.
    ///
    /// If it rises: normal.
    reused,
    /// Frames sent without a copy, after their area was mapped for this device.
    ///
    /// If it rises: normal once per area.
    mapped,
    /// Areas that the domain refused to map. Their frames are copied.
    ///
    /// If it rises: the device cannot map more memory. Share one UMEM between the devices.
    map_failed,
    /// Frames copied into the device's pool.
    ///
    /// If it rises: normal without a shared domain. To avoid copies, share one arena and one domain.
    copied,
    /// Frames dropped instead of copied, because the pool had no page or no chain, or because the CPU cannot
    /// read their memory.
    ///
    /// If it rises: the device's own pool is empty, or the CPU cannot read the memory of the frames.
    copy_failed,
}

#[derive(Debug)]
struct Known {
    area: Arc<Area>,
    /// Whether its frames are sent unchanged.
    reused: bool,
    /// The mapping that this egress uses; `None` if the device has no domain, or did not map the area.
    mapping: Option<Arc<Mapping>>,
}

/// Prepares frames of any memory for one device: reuses, maps or copies their memory.
///
/// ```
/// # use std::sync::Arc;
/// # use pagepool::{Arena, ArenaParams, Bound, DmaDomain, IdentityDomain, Pool, PoolParams};
/// use pagepool::XdpBuff;
/// use pagepool_net::Egress;
/// # let arena = || Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() });
/// let nic: Arc<dyn DmaDomain> = Arc::new(IdentityDomain::new("nic0"));
/// let own = Pool::new(PoolParams { domains: vec![nic.clone()], ..Default::default() }, arena()?)?.bind();
/// let other = Pool::new(PoolParams::default(), arena()?)?.bind();
///
/// let frame = |pool: &Bound| XdpBuff::received(pool.alloc_page().unwrap(), 60).unwrap().into();
/// let mut egress = Egress::to(Some(nic.clone()), true);
/// assert!(egress.prepare(frame(&own), &own).is_some() && egress.prepare(frame(&other), &own).is_some());
/// assert_eq!((egress.stats().reused, egress.stats().mapped), (1, 1));
/// let mut fixed = Egress::to(Some(Arc::new(IdentityDomain::new("nic1"))), false);
/// assert!(fixed.prepare(frame(&other), &own).is_some());
/// assert_eq!(fixed.stats().copied, 1);
/// # Ok::<(), pagepool::Error>(())
/// ```
#[derive(Debug)]
pub struct Egress {
    domain: Option<Arc<dyn DmaDomain>>,
    maps: bool,
    known: Vec<Known>,
    /// The area of the last frame.
    last: usize,
    stats: PathStats,
}

impl Egress {
    /// An egress for this device.
    pub fn new(device: &dyn Device) -> Self {
        let info = device.info();
        Self::to(info.domain.clone(), info.maps)
    }

    /// An egress for a device with this address space, if it has one. `maps` says whether more areas can be
    /// mapped there.
    pub fn to(domain: Option<Arc<dyn DmaDomain>>, maps: bool) -> Self {
        Self { domain, maps, known: Vec::new(), last: 0, stats: PathStats::default() }
    }

    /// Returns a frame that the device can send: the frame itself, or a copy in pages of `pool`, the device's
    /// pool. `None` if a copy failed: that is counted, and the frame's buffers returned.
    #[inline]
    pub fn prepare(&mut self, frame: XdpFrame, pool: &Bound) -> Option<XdpFrame> {
        match self.path_of(&frame) {
            Path::Reuse => self.stats.reused += 1,
            Path::MapOnce => self.stats.mapped += 1,
            Path::Copy => return self.copy(&frame, pool),
        }
        Some(frame)
    }

    /// Whether a whole burst can be sent unchanged: all buffers are of one pool, in the area of the last
    /// frame, which was sent unchanged. Maps nothing.
    #[inline]
    pub(crate) fn reuses(&self, packets: &[XdpBuff]) -> bool {
        let (Some(known), Some(first)) = (self.known.get(self.last), packets.first()) else { return false };
        let pool = first.buffer().pool_id();
        let is_of_it = |buffer: &PageBuf| buffer.pool_id() == pool;
        let is_like_it = |packet: &XdpBuff| {
            is_of_it(packet.buffer())
                && (!packet.has_frags() || packet.frags().iter().all(|frag| is_of_it(frag.buffer())))
        };
        known.reused && Arc::ptr_eq(&known.area, first.buffer().area()) && packets.iter().all(is_like_it)
    }

    /// Counts `frames` packets of such a burst, for which `prepare` was not called.
    #[inline]
    pub(crate) fn reused(&mut self, frames: usize) {
        self.stats.reused += frames as u64;
    }

    /// The paths of frames so far.
    pub fn stats(&self) -> PathStats {
        self.stats
    }

    /// Releases all mappings; those without another user are undone. Before, the device must have returned
    /// all frames. May be called more than once. Later frames are looked up anew.
    pub fn close(&mut self) {
        self.known.drain(..).for_each(Known::forget);
    }

    /// The path of a frame: the worst path of its buffers.
    #[inline]
    fn path_of(&mut self, frame: &XdpFrame) -> Path {
        let path = self.path_of_area(frame.buffer().area());
        if !frame.has_frags() {
            return path;
        }
        frame.frags().iter().fold(path, |worst, frag| worst.max(self.path_of_area(frag.buffer().area())))
    }

    #[inline]
    fn path_of_area(&mut self, area: &Arc<Area>) -> Path {
        match self.known.get(self.last) {
            Some(known) if Arc::ptr_eq(&known.area, area) => known.path(),
            _ => self.find_or_meet(area),
        }
    }

    #[cold]
    fn find_or_meet(&mut self, area: &Arc<Area>) -> Path {
        if let Some(at) = self.known.iter().position(|known| Arc::ptr_eq(&known.area, area)) {
            self.last = at;
            return self.known[at].path();
        }
        self.forget_dead();
        let found = self.look(area);
        let mapping = match (&self.domain, found) {
            (Some(domain), Path::Reuse | Path::MapOnce) => area.attach(domain).ok(),
            _ => None,
        };
        let refused = found != Path::Copy && self.domain.is_some() && mapping.is_none();
        self.stats.map_failed += u64::from(refused);
        let path = if refused { Path::Copy } else { found };
        self.last = self.known.len();
        self.known.push(Known { area: area.clone(), reused: path != Path::Copy, mapping });
        path
    }

    /// The path of a new area.
    fn look(&self, area: &Area) -> Path {
        match &self.domain {
            None if area.base().is_some() => Path::Reuse,
            None => Path::Copy,
            Some(domain) if area.mapping(domain.id()).is_some() => Path::Reuse,
            Some(_) if self.maps => Path::MapOnce,
            Some(_) => Path::Copy,
        }
    }

    /// Forgets areas without another holder: their memory is gone, so no frame can be in it.
    fn forget_dead(&mut self) {
        self.known.extract_if(.., |known| Arc::strong_count(&known.area) == 1).for_each(Known::forget);
    }

    fn copy(&mut self, frame: &XdpFrame, pool: &Bound) -> Option<XdpFrame> {
        let copy = copy_into(frame, pool);
        match copy {
            Some(_) => self.stats.copied += 1,
            None => self.stats.copy_failed += 1,
        }
        copy.map(XdpFrame::from)
    }
}

impl Drop for Egress {
    fn drop(&mut self) {
        self.close();
    }
}

impl Known {
    fn path(&self) -> Path {
        if self.reused { Path::Reuse } else { Path::Copy }
    }

    fn forget(self) {
        if let Some(mapping) = self.mapping {
            self.area.detach(&mapping);
        }
    }
}

/// Copies the packet's bytes into pages of this pool, as many as needed, and its metadata if there is
/// headroom.
fn copy_into(frame: &XdpFrame, pool: &Bound) -> Option<XdpBuff> {
    let mut packet = pool.packet(frame.len())?;
    let mut source = Source { now: frame.data(), frags: frame.frags().iter() };
    let mut copied = source.read(packet.data_mut());
    copied += packet.frags_mut().iter_mut().map(|frag| source.read(frag.data_mut())).sum::<usize>();
    if copied != frame.len() {
        return None; // the CPU cannot read or write all of it
    }
    let meta = frame.meta();
    if !meta.is_empty() && packet.adjust_meta(-(meta.len() as isize)).is_ok() {
        packet.meta_mut().copy_from_slice(meta);
    }
    Some(packet)
}

/// Reads over all buffers of a frame.
struct Source<'a> {
    now: &'a [u8],
    frags: std::slice::Iter<'a, pagepool::Frag>,
}

impl Source<'_> {
    /// Fills the space from its front while there are bytes. Returns how many.
    fn read(&mut self, space: &mut [u8]) -> usize {
        let mut done = 0;
        loop {
            let n = self.now.len().min(space.len() - done);
            space[done..done + n].copy_from_slice(&self.now[..n]);
            self.now = &self.now[n..];
            done += n;
            match self.frags.as_slice().first() {
                Some(frag) if self.now.is_empty() && done < space.len() => self.now = frag.data(),
                _ => return done,
            }
            self.frags.next();
        }
    }
}
