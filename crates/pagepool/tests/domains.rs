//! Domains over an arena: mapping by region, growth, refusal, a device that goes away, and the checking
//! IOMMU.
#![allow(clippy::unwrap_used)]
// UNSAFETY: tests touch the memory behind pages, as a holder of the page may.
#![expect(unsafe_code)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak, mpsc};
use std::time::Duration;

use pagepool::{
    Area, Arena, ArenaParams, DeviceAddr, DeviceMemory, DmaDomain, DomainId, Error, IdentityDomain, NodeId,
    OffsetDomain, PageBuf, PageIdx, Pool, PoolParams, Provider, Region,
};
use pagepool_testing::{CheckingIommu, IommuEvent, IommuFault};

const MIB: u64 = 1 << 20;

/// Gives pages back that the test reserved with this order, once.
fn release(provider: &dyn Provider, order: u8, pages: &[PageIdx]) {
    // SAFETY: I1. The test reserved them, has not released them since, and does not touch their memory any
    // more.
    unsafe { provider.release(order, pages) };
}

fn arena(max_bytes: u64) -> Arc<Arena> {
    Arena::new(ArenaParams { max_bytes, ..Default::default() }).unwrap()
}

fn reserve(p: &dyn Provider, order: u8, n: usize) -> Vec<PageIdx> {
    let mut out = vec![PageIdx(0); n];
    let got = p.reserve(order, None, &mut out);
    out.truncate(got);
    out
}

fn iommu() -> (Arc<CheckingIommu>, Arc<dyn DmaDomain>) {
    let iommu = CheckingIommu::new("nic0");
    (iommu.clone(), iommu)
}

/// Writes a byte of a page that this test holds.
fn poke(arena: &Arena, offset: u64, value: u8) {
    let at = (arena.area().base().unwrap() + offset as usize) as *mut u8;
    // SAFETY: I1. The test holds the page, or knows its region to be committed and unused.
    unsafe { at.write_volatile(value) };
}

/// Reads a byte of a page that this test holds.
fn peek(arena: &Arena, offset: u64) -> u8 {
    let at = (arena.area().base().unwrap() + offset as usize) as *const u8;
    // SAFETY: as above.
    unsafe { at.read_volatile() }
}

#[test]
fn growth_maps_each_region_once_and_detach_unmaps_each_once() {
    let arena = arena(14 * MIB);
    let (iommu, domain) = iommu();
    let mapping = arena.area().attach(&domain).unwrap();
    assert_eq!(iommu.counts().maps, 1);
    let pages = reserve(&*arena, 0, 3584);
    assert_eq!((pages.len(), iommu.counts().maps), (3584, 4));
    for &page in &pages {
        let at = mapping.addr_of(arena.area().offset_of(page)).unwrap();
        assert_eq!(mapping.offset_of(at), Some(arena.area().offset_of(page)));
    }
    let again = arena.area().attach(&domain).unwrap();
    arena.area().detach(&again);
    assert_eq!(iommu.counts().unmaps, 0, "one user is left");
    release(&*arena, 0, &pages);
    assert_eq!(arena.trim(), 0, "a domain maps it");
    arena.area().detach(&mapping);
    let counts = iommu.counts();
    assert_eq!((counts.maps, counts.unmaps, counts.bad_unmaps, iommu.mapped_regions()), (4, 4, 0, 0));
    let lens: Vec<_> = iommu
        .take_log()
        .iter()
        .filter_map(|e| match e {
            IommuEvent::Map(_, len) => Some(*len / MIB),
            _ => None,
        })
        .collect();
    assert_eq!(lens, [4, 4, 4, 2]);
    assert_eq!(arena.trim(), 14 * MIB);
}

#[test]
fn an_unmapped_region_is_not_committed_and_the_error_is_kept() {
    let arena = arena(12 * MIB);
    let (good, first) = iommu();
    let (bad, second) = iommu();
    let mappings = [arena.area().attach(&first).unwrap(), arena.area().attach(&second).unwrap()];
    bad.fail_map(1);
    let pages = reserve(&*arena, 0, 3000);
    assert_eq!(pages.len(), 1024, "short, by what could not be mapped");
    assert_eq!(arena.description().committed_bytes, 4 * MIB);
    let counts = good.counts();
    assert_eq!((counts.maps, counts.unmaps, bad.counts().maps, bad.counts().refused), (2, 1, 1, 1));
    let error = arena.last_growth_error().unwrap();
    assert!(matches!(&*error, Error::Map { offset, .. } if *offset == 4 * MIB), "{error}");
    assert!(error.to_string().contains("domain nic0 did not map 4194304 bytes at offset 4194304: refused"));
    assert_eq!(reserve(&*arena, 0, 3000).len(), 2048, "the refusal was once");
    assert!(arena.last_growth_error().is_none());
    mappings.iter().for_each(|m| arena.area().detach(m));
    for iommu in [good, bad] {
        let counts = iommu.counts();
        assert_eq!((counts.maps, counts.bad_unmaps), (counts.unmaps, 0));
    }
}

#[test]
fn attach_maps_all_or_nothing() {
    let arena =
        Arena::new(ArenaParams { max_bytes: 16 * MIB, commit_all: true, ..Default::default() }).unwrap();
    let (iommu, domain) = iommu();
    iommu.fail_map(3);
    let error = arena.area().attach(&domain).unwrap_err();
    assert!(matches!(error, Error::Map { offset, .. } if offset == 8 * MIB), "{error}");
    assert_eq!((iommu.counts().maps, iommu.counts().unmaps, iommu.mapped_regions()), (2, 2, 0));
    assert!(arena.area().mapping(domain.id()).is_none());
    arena.area().attach(&domain).unwrap();
    assert_eq!(iommu.mapped_regions(), 4);
    drop(arena);
    assert_eq!(
        (iommu.mapped_regions(), iommu.counts().bad_unmaps),
        (0, 0),
        "an arena that goes is unmapped first"
    );
}

#[test]
fn a_fixed_arena_does_not_grow_and_names_the_domain() {
    let arena = arena(8 * MIB);
    let umem: Arc<dyn DmaDomain> = Arc::new(OffsetDomain::new("umem0"));
    let mapping = arena.area().attach(&umem).unwrap();
    assert_eq!(arena.available(0), 1024);
    assert_eq!(reserve(&*arena, 0, 2000).len(), 1024);
    let error = arena.last_growth_error().unwrap();
    assert!(error.to_string().contains("4194304 bytes while domain umem0"), "{error}");
    assert_eq!(mapping.addr_of(4096), Some(DeviceAddr(4096)));
    arena.area().detach(&mapping);
    assert_eq!(reserve(&*arena, 0, 2000).len(), 1024, "it may grow again");
}

#[test]
fn several_domains_see_one_page_at_their_own_addresses() {
    let arena = arena(MIB);
    let (_, iommu) = iommu();
    let domains: [Arc<dyn DmaDomain>; 3] =
        [iommu, Arc::new(IdentityDomain::new("id")), Arc::new(OffsetDomain::new("umem"))];
    for domain in &domains {
        arena.area().attach(domain).unwrap();
    }
    let base = arena.area().base().unwrap() as u64;
    let at = |i: usize| arena.area().mapping(domains[i].id()).unwrap().addr_of(8192).unwrap().0;
    assert_eq!((at(1), at(2)), (base + 8192, 8192));
    assert_ne!(at(0), base + 8192);
    assert_eq!(arena.area().domains(), ["nic0", "id", "umem"]);
}

#[test]
fn a_device_that_goes_away_is_unmapped_exactly_once() {
    let arena = arena(8 * MIB);
    let (iommu, domain) = iommu();
    let mapping = arena.area().attach(&domain).unwrap();
    let pages = reserve(&*arena, 0, 2048);
    assert!(arena.area().device_gone(domain.id()));
    assert!(!arena.area().device_gone(domain.id()));
    assert_eq!(mapping.addr_of(arena.area().offset_of(pages[0])), None);
    arena.area().detach(&mapping);
    release(&*arena, 0, &pages);
    drop(arena);
    let counts = iommu.counts();
    assert_eq!((counts.maps, counts.unmaps, counts.bad_unmaps), (2, 2, 0));
}

#[test]
fn unread_memory_is_mapped_too() {
    let hbm = DeviceMemory::new("hbm", 6 * MIB, NodeId(0)).unwrap();
    let (iommu, domain) = iommu();
    let mapping = hbm.area().attach(&domain).unwrap();
    let pages = reserve(&*hbm, 0, 1);
    let at = mapping.addr_of(hbm.area().offset_of(pages[0])).unwrap();
    iommu.sync_for_device(at, 4096);
    iommu.device_write(at, &[7; 100]).unwrap();
    let mut back = [0; 100];
    iommu.device_read(at, &mut back).unwrap();
    assert_eq!(back, [7; 100]);
    let identity: Arc<dyn DmaDomain> = Arc::new(IdentityDomain::new("id"));
    let error = hbm.area().attach(&identity).unwrap_err();
    assert!(error.to_string().contains("the CPU cannot read"), "{error}");
}

#[test]
fn the_iommu_keeps_the_views_apart_until_they_are_synced() {
    let arena = arena(MIB);
    let (iommu, domain) = iommu();
    let mapping = arena.area().attach(&domain).unwrap();
    let page = reserve(&*arena, 0, 1)[0];
    let at = mapping.addr_of(arena.area().offset_of(page)).unwrap();
    let mut seen = [0u8; 8];

    (0..128).for_each(|i| poke(&arena, arena.area().offset_of(page) + i, 0xAA));
    assert_eq!(iommu.device_read(at, &mut seen), Err(IommuFault::NotSynced(at)));
    iommu.sync_for_device(at, 64);
    iommu.device_read(at, &mut seen).unwrap();
    assert_eq!(seen, [0xAA; 8]);
    let next = DeviceAddr(at.0 + 64);
    assert_eq!(iommu.device_read(DeviceAddr(at.0 + 60), &mut seen), Err(IommuFault::NotSynced(next)));

    (0..8).for_each(|i| poke(&arena, arena.area().offset_of(page) + i, 0xBB));
    iommu.device_read(at, &mut seen).unwrap();
    assert_eq!(seen, [0xAA; 8], "stale: nobody synced");
    iommu.device_write(at, &[0xCC; 8]).unwrap();
    assert_eq!(peek(&arena, arena.area().offset_of(page)), 0xBB, "stale on this side too");
    iommu.sync_for_cpu(at, 8);
    assert_eq!(peek(&arena, arena.area().offset_of(page)), 0xCC);
    assert_eq!(iommu.device_write(at, &[1]), Err(IommuFault::NotSynced(at)), "the CPU has it now");
    let syncs: Vec<_> = iommu.take_log().into_iter().skip(1).collect();
    assert_eq!(syncs, [IommuEvent::SyncForDevice(at, 64), IommuEvent::SyncForCpu(at, 8)]);
}

#[test]
fn the_iommu_faults_outside_mappings_and_reuses_no_address() {
    let arena = arena(MIB);
    let (iommu, domain) = iommu();
    let mut seen = Vec::new();
    for _ in 0..50 {
        let mapping = arena.area().attach(&domain).unwrap();
        let at = mapping.addr_of(0).unwrap();
        assert!(at.0.is_multiple_of(4096) && !seen.contains(&at));
        seen.push(at);
        iommu.sync_for_device(at, MIB as usize);
        let end = DeviceAddr(at.0 + MIB);
        assert_eq!(iommu.device_read(DeviceAddr(end.0 - 1), &mut [0; 2]), Err(IommuFault::Unmapped(end)));
        assert_eq!(
            iommu.device_read(DeviceAddr(at.0 - 1), &mut [0]),
            Err(IommuFault::Unmapped(DeviceAddr(at.0 - 1)))
        );
        arena.area().detach(&mapping);
        assert_eq!(iommu.device_write(at, &[0]), Err(IommuFault::AfterUnmap(at)));
        iommu.sync_for_device(at, 64);
    }
    let counts = iommu.counts();
    assert_eq!((counts.late_syncs, counts.faults, counts.bad_syncs), (50, 150, 0));
    assert!(!seen.is_sorted(), "addresses are in no order");
}

#[test]
fn a_coherent_iommu_needs_no_syncs() {
    let arena = arena(MIB);
    // SAFETY: this test refers to no byte while the device writes.
    let iommu = unsafe { CheckingIommu::new_coherent("nic0") };
    let domain: Arc<dyn DmaDomain> = iommu.clone();
    assert!(domain.coherent());
    let mapping = arena.area().attach(&domain).unwrap();
    let at = mapping.addr_of(0).unwrap();
    iommu.device_write(at, b"now").unwrap();
    assert_eq!([0, 1, 2].map(|i| peek(&arena, i)), *b"now");
}

/// Gives pages back, and asks for more, while it maps.
#[derive(Debug)]
struct Busy {
    id: DomainId,
    arena: OnceLock<Weak<Arena>>,
    held: std::sync::Mutex<Vec<PageIdx>>,
}

impl DmaDomain for Busy {
    fn id(&self) -> DomainId {
        self.id
    }
    fn name(&self) -> String {
        "busy".into()
    }
    fn map(&self, region: &Region) -> Result<DeviceAddr, String> {
        if let Some(arena) = self.arena.get().and_then(Weak::upgrade) {
            let held = std::mem::take(&mut *self.held.lock().unwrap());
            release(&*arena, 0, &held);
            let free = arena.available(0);
            let pages = reserve(&*arena, 0, 9000);
            assert!(pages.len() == free && free >= held.len(), "what is free, but no growth");
            release(&*arena, 0, &pages);
            assert_eq!(arena.trim(), 0);
            assert!(arena.pages_out() >= 924 && arena.describe().contains("committed"));
        }
        Ok(DeviceAddr(region.offset()))
    }
    fn unmap(&self, _region: &Region, _at: DeviceAddr) {
        if let Some(arena) = self.arena.get().and_then(Weak::upgrade) {
            let pages = reserve(&*arena, 0, 5000);
            release(&*arena, 0, &pages);
        }
    }
    fn sync_for_device(&self, _at: DeviceAddr, _len_bytes: usize) {}
    fn sync_for_cpu(&self, _at: DeviceAddr, _len_bytes: usize) {}
}

#[test]
fn a_domain_may_drop_buffers_while_it_maps() {
    let arena = arena(12 * MIB);
    let busy = Arc::new(Busy { id: DomainId::unique(), arena: OnceLock::new(), held: Default::default() });
    let domain: Arc<dyn DmaDomain> = busy.clone();
    let mapping = arena.area().attach(&domain).unwrap();
    let pages = reserve(&*arena, 0, 1024);
    *busy.held.lock().unwrap() = pages[..100].to_vec();
    busy.arena.set(Arc::downgrade(&arena)).unwrap();
    let more = reserve(&*arena, 0, 1100);
    assert_eq!(more.len(), 1100);
    assert_eq!(arena.pages_out(), 1024 - 100 + 1100);
    arena.area().detach(&mapping);
    *busy.held.lock().unwrap() = more;
    arena.area().attach(&domain).unwrap();
    assert_eq!(arena.pages_out(), 1024 - 100, "given back while the whole area was being mapped");
}

#[test]
fn an_area_whose_provider_is_gone_is_mapped_nowhere_any_more() {
    let arena = arena(8 * MIB);
    let area = arena.area().clone();
    let (iommu, domain) = iommu();
    drop(arena);
    assert_eq!(area.present_bytes(), 0);
    let error = area.attach(&domain).unwrap_err();
    assert!(error.to_string().contains("the provider of this area was dropped"), "{error}");
    assert_eq!(iommu.counts().maps, 0);
    let hbm = DeviceMemory::new("hbm", MIB, NodeId(0)).unwrap();
    let area = hbm.area().clone();
    let mapping = area.attach(&domain).unwrap();
    drop(hbm);
    assert_eq!((iommu.counts().unmaps, mapping.addr_of(0)), (1, None));
    assert!(area.attach(&domain).is_err());
    area.detach(&mapping);
    assert_eq!(iommu.counts().bad_unmaps, 0);
}

/// Maps at random and unmaps as its test says.
#[derive(Debug)]
struct Acting {
    iommu: Arc<CheckingIommu>,
    /// Dropped at the first unmap.
    held: Mutex<Option<PageBuf>>,
    /// Tells of each unmap, which then waits for its answer.
    gate: Mutex<Option<(mpsc::Sender<()>, mpsc::Receiver<()>)>>,
    /// Panics at this map, counted from 1.
    panics_at: AtomicU64,
    maps: AtomicU64,
}

impl Acting {
    fn new() -> Arc<Self> {
        let iommu = CheckingIommu::new("acting");
        let (held, gate) = (Mutex::default(), Mutex::default());
        Arc::new(Self { iommu, held, gate, panics_at: AtomicU64::new(0), maps: AtomicU64::new(0) })
    }
}

impl DmaDomain for Acting {
    fn id(&self) -> DomainId {
        self.iommu.id()
    }
    fn name(&self) -> String {
        "acting".into()
    }
    fn map(&self, region: &Region) -> Result<DeviceAddr, String> {
        let n = self.maps.fetch_add(1, Ordering::Relaxed) + 1;
        assert_ne!(n, self.panics_at.load(Ordering::Relaxed), "the domain panics");
        self.iommu.map(region)
    }
    fn unmap(&self, region: &Region, at: DeviceAddr) {
        self.iommu.unmap(region, at);
        let held = self.held.lock().unwrap().take();
        drop(held); // with no lock of its own: it may come back here
        if let Some((began, go_on)) = &*self.gate.lock().unwrap() {
            began.send(()).unwrap();
            go_on.recv().unwrap();
        }
    }
    fn sync_for_device(&self, at: DeviceAddr, len_bytes: usize) {
        self.iommu.sync_for_device(at, len_bytes);
    }
    fn sync_for_cpu(&self, at: DeviceAddr, len_bytes: usize) {
        self.iommu.sync_for_cpu(at, len_bytes);
    }
}

fn whole_arena(max_bytes: u64) -> Arc<Arena> {
    Arena::new(ArenaParams { max_bytes, commit_all: true, ..Default::default() }).unwrap()
}

#[test]
fn unmapping_may_drop_the_last_that_keeps_the_arena() {
    let arena = whole_arena(12 * MIB);
    let (area, gone) = (arena.area().clone(), Arc::downgrade(&arena));
    let acting = Acting::new();
    let domain: Arc<dyn DmaDomain> = acting.clone();
    area.attach(&domain).unwrap();
    let (other, other_domain) = iommu();
    area.attach(&other_domain).unwrap();
    let pool = Pool::new(PoolParams::default(), arena).unwrap().bind();
    *acting.held.lock().unwrap() = pool.alloc_page();
    pool.destroy();
    assert!(gone.upgrade().is_some(), "the buffer keeps it");
    let (done, is_done) = mpsc::channel();
    let id = domain.id();
    std::thread::spawn(move || done.send(area.device_gone(id)));
    assert_eq!(is_done.recv_timeout(Duration::from_secs(60)), Ok(true), "it does not wait for itself");
    assert!(gone.upgrade().is_none());
    for counts in [acting.iommu.counts(), other.counts()] {
        assert_eq!((counts.maps, counts.unmaps, counts.bad_unmaps), (3, 3, 0));
    }
}

#[test]
fn a_call_while_a_domain_is_unmapped_waits_for_it() {
    let arena = whole_arena(4 * MIB);
    let area = arena.area().clone();
    let acting = Acting::new();
    let domain: Arc<dyn DmaDomain> = acting.clone();
    let mapping = area.attach(&domain).unwrap();
    let (began, has_begun) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel();
    *acting.gate.lock().unwrap() = Some((began, may_go_on));
    let attached = AtomicBool::new(false);
    std::thread::scope(|s| {
        s.spawn(|| area.detach(&mapping));
        has_begun.recv().unwrap();
        s.spawn(|| {
            area.attach(&domain).unwrap();
            attached.store(true, Ordering::Release);
        });
        std::thread::sleep(Duration::from_millis(50));
        assert!(!attached.load(Ordering::Acquire), "two mappings of one domain at a time");
        assert_eq!(area.domains(), [""; 0], "asking does not wait");
        go_on.send(()).unwrap();
    });
    assert_eq!((area.domains(), acting.iommu.mapped_regions()), (vec!["acting".to_owned()], 1));
    let gone = AtomicBool::new(false);
    std::thread::scope(|s| {
        s.spawn(|| area.device_gone(domain.id()));
        has_begun.recv().unwrap();
        s.spawn(|| {
            drop(arena);
            gone.store(true, Ordering::Release);
        });
        std::thread::sleep(Duration::from_millis(50));
        assert!(!gone.load(Ordering::Acquire), "the memory stays while a domain is being unmapped");
        go_on.send(()).unwrap();
    });
    assert_eq!((acting.iommu.mapped_regions(), acting.iommu.counts().bad_unmaps), (0, 0));
}

#[test]
fn a_region_is_not_trimmed_while_a_domain_is_unmapped() {
    let arena = arena(4 * MIB);
    let acting = Acting::new();
    let domain: Arc<dyn DmaDomain> = acting.clone();
    let mapping = arena.area().attach(&domain).unwrap();
    let (began, has_begun) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel();
    *acting.gate.lock().unwrap() = Some((began, may_go_on));
    std::thread::scope(|s| {
        s.spawn(|| arena.area().detach(&mapping));
        has_begun.recv().unwrap();
        assert_eq!(arena.trim(), 0);
        go_on.send(()).unwrap();
    });
    assert_eq!(arena.trim(), 4 * MIB);
}

#[test]
fn a_domain_that_panics_while_it_maps_leaves_nothing_mapped() {
    let acting = Acting::new();
    let domain: Arc<dyn DmaDomain> = acting.clone();
    let fixed = whole_arena(12 * MIB);
    acting.panics_at.store(3, Ordering::Relaxed);
    assert!(catch_unwind(AssertUnwindSafe(|| fixed.area().attach(&domain))).is_err());
    assert_eq!((acting.iommu.counts().maps, acting.iommu.mapped_regions()), (2, 0));
    assert!(fixed.area().mapping(domain.id()).is_none());

    let (iommu, first) = iommu();
    let growing = arena(12 * MIB);
    growing.area().attach(&first).unwrap();
    growing.area().attach(&domain).unwrap();
    acting.panics_at.store(acting.maps.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    assert!(catch_unwind(AssertUnwindSafe(|| reserve(&*growing, 0, 1025))).is_err());
    assert_eq!((iommu.mapped_regions(), acting.iommu.mapped_regions()), (1, 1), "the first region alone");
    assert_eq!(growing.area().present_bytes(), 4 * MIB);

    acting.panics_at.store(acting.maps.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    let params = PoolParams { domains: vec![first.clone(), domain.clone()], ..Default::default() };
    let before = iommu.mapped_regions();
    assert!(catch_unwind(AssertUnwindSafe(|| Pool::new(params, fixed.clone()))).is_err());
    assert_eq!(iommu.mapped_regions(), before, "no pool, no domain");
    assert_eq!(fixed.area().domains(), [""; 0]);
}

#[test]
fn debug_output_is_short_whatever_the_size() {
    let arena = arena(64 * MIB);
    let (_, domain) = iommu();
    let mapping = arena.area().attach(&domain).unwrap();
    let text = format!("{:?}", arena.area());
    assert!(text.contains("regions_present: 1") && text.contains("nic0"), "{text}");
    assert!(format!("{mapping:?}").starts_with("Mapping { domain: \"nic0\", id: "), "{mapping:?}");
    let hbm = DeviceMemory::new("hbm", 64 * MIB, NodeId(0)).unwrap();
    for text in [text, format!("{arena:?}"), format!("{hbm:?}")] {
        assert!(text.len() < 4096, "{} bytes: {text}", text.len());
    }
    let pool = Pool::new(PoolParams::default(), arena).unwrap();
    let handle = format!("{:?}", pool.handle()).len();
    let shutdown = format!("{:?}", pool.destroy()).len();
    println!("a handle takes {handle} bytes, a shutdown {shutdown}");
    assert!(shutdown < 4096 && handle < 100_000, "{handle} {shutdown}");
}

/// An arena that cannot say how much is free.
#[derive(Debug)]
struct Mute(Arc<Arena>);

// SAFETY: all that it gives is the arena's, which it keeps.
unsafe impl Provider for Mute {
    fn area(&self) -> &Arc<Area> {
        self.0.area()
    }
    fn reserve(&self, order: u8, node: Option<NodeId>, out: &mut [PageIdx]) -> usize {
        self.0.reserve(order, node, out)
    }
    unsafe fn release(&self, order: u8, pages: &[PageIdx]) {
        // SAFETY: the caller promises just this.
        unsafe { self.0.release(order, pages) };
    }
    fn available(&self, _order: u8) -> usize {
        panic!("the provider panics")
    }
    fn describe(&self) -> String {
        self.0.describe()
    }
}

#[test]
fn a_pool_that_is_not_made_leaves_no_domain_attached() {
    let arena = arena(4 * MIB);
    let (iommu, domain) = iommu();
    let params = PoolParams { domains: vec![domain], ..Default::default() };
    let provider = Arc::new(Mute(arena.clone()));
    assert!(catch_unwind(AssertUnwindSafe(|| Pool::new(params, provider))).is_err());
    assert_eq!((iommu.counts().maps, iommu.mapped_regions()), (1, 0));
    assert_eq!(arena.area().domains(), [""; 0]);
}
