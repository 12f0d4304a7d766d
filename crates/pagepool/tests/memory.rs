//! Frames of memory that is not a pool's: whose it is, and how it goes back.

// UNSAFETY: frames of external memory are made of what the test leaked.
#![expect(unsafe_code)]
#![allow(clippy::unwrap_used)]

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use pagepool::{
    Bound, DeviceMemory, Error, IdentityDomain, MemModel, MemState, MemType, NodeId, Page, Pool, PoolParams,
    Registry, XdpBuff, XdpFrame, XdpFrameBulk,
};
use pagepool_testing::PlainMemory;

fn pool(params: PoolParams) -> Bound {
    Pool::new(params, PlainMemory::new(64, 0).unwrap()).unwrap().bind()
}

/// A model of memory that was leaked from boxes, and how often some came back.
fn heap(registry: &Registry) -> (MemModel, Arc<AtomicUsize>) {
    let back = Arc::new(AtomicUsize::new(0));
    let count = back.clone();
    let free = move |memory: NonNull<[u8]>| {
        count.fetch_add(1, Relaxed);
        // SAFETY: every frame of this model was made of a leaked box, and this is called once for it.
        drop(unsafe { Box::from_raw(memory.as_ptr()) });
    };
    (MemModel::external(registry, "heap", free).unwrap(), back)
}

fn external(model: &MemModel, len: usize) -> XdpFrame {
    let memory = NonNull::from(Box::leak(vec![9; 2048].into_boxed_slice()));
    // SAFETY: the memory is initialised and nobody's until the model's callback is given it.
    unsafe { XdpFrame::from_external(model, memory, 100, len) }.unwrap()
}

/// One frame of each kind that is no pool's.
fn one_of_each(model: &MemModel) -> [XdpFrame; 3] {
    let page = XdpFrame::from_page(Page::new(), 100, 60).unwrap();
    let shared = XdpFrame::from_shared(Page::new().into_shared(), 100, 60).unwrap();
    [page, shared, external(model, 60)]
}

#[test]
fn frames_of_other_memory_are_frames() {
    let (model, back) = heap(&Registry::new());
    let types = [MemType::Page, MemType::SharedPage, MemType::External];
    for (mut frame, mem_type) in one_of_each(&model).into_iter().zip(types) {
        assert_eq!((frame.mem_type(), frame.domain(), frame.has_frags()), (mem_type, None, false));
        assert_eq!(
            (frame.len(), frame.headroom(), frame.meta(), frame.segment_count()),
            (60, 100, &b""[..], 1)
        );
        frame.data_mut().fill(3);
        let segment = frame.segments().next().unwrap();
        assert_eq!((segment.data(), segment.offset(), segment.len()), (&[3; 60][..], 100, 60));
        assert!(segment.buffer().is_none());
        assert_eq!(segment.dma_addr_in(pagepool::DmaDomain::id(&IdentityDomain::new("nic0"))), None);
        segment.sync_for_device();
        let back = frame.into_buff().unwrap_err();
        assert_eq!(back.data(), [3; 60]);
    }
    assert_eq!(back.load(Relaxed), 1);
}

#[test]
fn other_memory_goes_back_by_every_way() {
    let (model, back) = heap(&Registry::new());
    let pool = pool(PoolParams::default());
    for frame in one_of_each(&model) {
        frame.put_in_poll(&pool).unwrap_err().put_ring();
    }
    pagepool::put_frames(&mut one_of_each(&model).into());
    let mut bulk = XdpFrameBulk::new();
    for frame in one_of_each(&model) {
        bulk.push(frame);
    }
    assert!(bulk.is_empty(), "at once");
    let away = external(&model, 60);
    std::thread::spawn(move || drop(away)).join().unwrap();
    assert_eq!(back.load(Relaxed), 4);
}

#[test]
fn what_does_not_fit_stays_with_the_caller() {
    let registry = Registry::new();
    let (model, back) = heap(&registry);
    assert!(XdpFrame::from_page(Page::new(), 4096, 1).is_err());
    assert!(XdpFrame::from_shared(Page::new().into_shared(), usize::MAX, 2).is_err());
    assert!(XdpFrame::from_page(Page::new(), 4096, 0).is_ok());
    let mut bytes = [0u8; 16];
    let memory = NonNull::from(&mut bytes[..]);
    // SAFETY: it is refused.
    assert!(unsafe { XdpFrame::from_external(&model, memory, 10, 7) }.is_none());
    let ordinary = MemModel::new(&registry, "ordinary", MemType::SharedPage).unwrap();
    // SAFETY: it is refused.
    assert!(unsafe { XdpFrame::from_external(&ordinary, memory, 0, 7) }.is_none());
    assert_eq!(
        (back.load(Relaxed), registry.dump().iter().map(|entry| entry.inflight.out).sum::<u64>()),
        (0, 0)
    );
    for refused in [MemType::Pool, MemType::External] {
        assert!(matches!(
            MemModel::new(&registry, "", refused),
            Err(Error::Parameter { field: "mem_type", .. })
        ));
    }
}

#[test]
fn an_id_is_taken_until_the_model_and_all_its_memory_are_gone() {
    let registry = Registry::new();
    let (model, _back) = heap(&registry);
    let pages = MemModel::new(&registry, "pages", MemType::Page).unwrap();
    let frames = [external(&model, 60), external(&model, 60)];
    let shared = Page::of(&pages).into_shared();
    let clone = XdpFrame::from_shared(shared.clone(), 0, 60).unwrap();
    assert_eq!((frames[0].mem_id(), clone.mem_id()), (Some(model.mem_id()), Some(pages.mem_id())));
    let out = || registry.dump().iter().map(|entry| (entry.state, entry.inflight.out)).collect::<Vec<_>>();
    assert_eq!(out(), [(MemState::Live, 2), (MemState::Live, 1)]);
    drop((model, shared));
    assert_eq!(out(), [(MemState::Ended, 2), (MemState::Live, 1)]);
    drop(frames);
    assert_eq!(registry.len(), 1);
    drop(pages);
    assert_eq!(out(), [(MemState::Ended, 1)]);
    drop(clone);
    assert!(registry.is_empty());
}

#[test]
fn a_shared_page_is_written_only_by_its_last_holder() {
    let page = Page::new().into_shared();
    let mut frame = XdpFrame::from_shared(page.clone(), 0, 60).unwrap();
    assert!(frame.data_mut().is_empty() && frame.data().len() == 60);
    drop(page);
    assert_eq!(frame.data_mut().len(), 60);
}

#[test]
fn a_copy_has_everything_in_one_page() {
    let pool = pool(PoolParams { headroom: 512, max_len: 1500, colour: false, ..Default::default() });
    let mut packet = XdpBuff::received(pool.alloc_page().unwrap(), 1500).unwrap();
    packet.data_mut().fill(1);
    packet.adjust_meta(-8).unwrap();
    packet.meta_mut().fill(2);
    let mut more = pool.alloc_page().unwrap();
    more.bytes_mut().unwrap()[..2500].fill(3);
    packet.add_frag(more, 0, 2500).unwrap();
    let frame = XdpFrame::from(packet);
    let copy = frame.copy_to_page().unwrap();
    assert_eq!((copy.len(), copy.headroom(), copy.tailroom()), (4000, 4096 - 4008, 0), "as much as there is");
    assert_eq!((copy.meta(), copy.mem_type(), copy.mem_id()), (&[2; 8][..], MemType::Page, None));
    assert_eq!(copy.data(), [vec![1; 1500], vec![3; 2500]].concat());
    let mut packet = frame.into_buff().unwrap();
    packet.adjust_tail(89).unwrap();
    let frame = XdpFrame::from(packet);
    assert!(frame.copy_to_page().is_none(), "4089 bytes and 8 of metadata");
    drop(frame);
    let small =
        XdpFrame::from(XdpBuff::received(pool.alloc_page().unwrap(), 60).unwrap()).copy_to_page().unwrap();
    assert_eq!((small.headroom(), small.tailroom()), (512, 4096 - 572));
}

#[test]
fn memory_that_the_cpu_cannot_read_has_length_and_no_bytes() {
    let memory = DeviceMemory::new("gpu0", 16 << 12, NodeId(0)).unwrap();
    let domains: Vec<Arc<dyn pagepool::DmaDomain>> = vec![Arc::new(pagepool::OffsetDomain::new("nic0"))];
    let pool = Pool::new(PoolParams { domains, ..Default::default() }, memory).unwrap().bind();
    let mut packet = XdpBuff::received(pool.alloc_page().unwrap(), 1000).unwrap();
    packet.add_frag(pool.alloc_page().unwrap(), 100, 1000).unwrap();
    assert!(packet.data().is_empty() && packet.data_mut().is_empty() && packet.meta_mut().is_empty());
    assert!(packet.frags()[0].data().is_empty() && packet.frags_mut()[0].data_mut().is_empty());
    packet.adjust_tail(500).unwrap();
    packet.adjust_head(100).unwrap();
    packet.adjust_meta(-8).unwrap();
    packet.adjust_head(-50).unwrap();
    assert_eq!((packet.len(), packet.is_empty()), (2450, false));
    let frame = XdpFrame::from(packet);
    assert_eq!((frame.len(), frame.data().len(), frame.meta().len()), (2450, 0, 0));
    assert!(frame.domain().is_some() && frame.segments().all(|s| s.data().is_empty() && s.len() > 0));
    let domain = frame.domain().unwrap();
    assert!(frame.segments().all(|segment| segment.dma_addr_in(domain).is_some()));
    assert!(frame.copy_to_page().is_none());
    drop(frame);
    assert_eq!(pool.inflight().out, 0);
}
