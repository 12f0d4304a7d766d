//! Real threads, for as long as one likes: owners that allocate, move their pools and destroy them under
//! load, and returners that idle, end and are followed by others.
//!
//! `PAGEPOOL_STRESS_SECONDS` (5) says how long, `PAGEPOOL_STRESS_SEED` (1) which choices the threads make;
//! `PAGEPOOL_RANDOM_SEEDS=1` asks for new ones. Free memory is all zeroes: an allocator finds 0 in the first
//! word of a buffer and writes a number of its own there, and the returner finds that number and writes 0. So
//! a page with two owners shows at once. At the end every pool is freed, and the provider has all pages back.
//!
//! In the second half the process publishes, and a thread forks children, which end at once: each fork copies
//! what the other threads write.
//!
//! Only atomics, `Arc`, `spawn` and `join` tie the threads together, which the thread sanitizer understands.

// UNSAFETY: parcels go from thread to thread as pointers in atomics; fork is a function of the C library.
#![expect(unsafe_code)]

use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use pagepool::{
    Batch, Bound, IdentityDomain, NoDirectRecycle, PageBuf, PageRef, Pool, PoolParams, PoolRef, RawBuf,
    SharedBuf, Shutdown, ShutdownReport, XdpBuff, XdpFrame, XdpFrameBulk, publish,
};
use pagepool_testing::{PlainMemory, seed};

const PAGES: usize = 384;
const OWNERS: usize = 2;
const RETURNERS: usize = 4;

fn main() {
    let seconds = from_env("PAGEPOOL_STRESS_SECONDS", 5);
    println!("stress: {seconds} s");
    let seed = seed("PAGEPOOL_STRESS_SEED");
    let half = Duration::from_secs(seconds) / 2;
    work(World::new(seed), half, None);
    match publish("stress") {
        Ok(_publication) => work(World::new(seed.wrapping_add(1)), half, Some(forking)),
        Err(error) => println!("SKIP forks of a process that publishes: {error}"),
    }
}

/// Has owners and returners work for so long, and one thread more, if any.
fn work(world: World, time: Duration, more: Option<fn(&World) -> u64>) {
    let (clock, world) = (Instant::now(), Arc::new(world));
    let owners: Vec<_> = (0..OWNERS).map(|_| start(&world, own)).collect();
    let mut returners: Vec<_> = (0..RETURNERS).map(|_| start(&world, returning)).collect();
    let more = more.map(|more| start(&world, more));
    while clock.elapsed() < time {
        thread::sleep(Duration::from_millis(1));
        for returner in returners.iter_mut().filter(|thread| thread.is_finished()) {
            std::mem::replace(returner, start(&world, returning)).join().expect("a returner saw no fault");
        }
    }
    world.stop.store(true, Ordering::Release);
    if let Some(forking) = more {
        let forks = forking.join().expect("the children ended well");
        println!("stress: {forks} children of fork");
        assert!(forks > 0);
    }
    let ends: Vec<StoppedPool> =
        owners.into_iter().flat_map(|owner| owner.join().expect("an owner saw no fault")).collect();
    returners.into_iter().for_each(|returner| returner.join().expect("a returner saw no fault"));
    let left = world.clear();
    check_the_end(&world, left.into_iter().chain(ends).collect(), clock.elapsed());
}

fn from_env(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

fn start<R: Send + 'static>(world: &Arc<World>, job: fn(&World) -> R) -> JoinHandle<R> {
    let world = world.clone();
    thread::spawn(move || job(&world))
}

/// Forks one child after another; says how many.
fn forking(world: &World) -> u64 {
    let mut forks = 0;
    while !world.stop.load(Ordering::Acquire) {
        // SAFETY: the child ends at once, by a system call alone.
        let child = match unsafe { libc::fork() } {
            // SAFETY: as above.
            0 => unsafe { libc::_exit(0) },
            child => child,
        };
        let mut status = 0;
        // SAFETY: the kernel writes one integer.
        assert_eq!((unsafe { libc::waitpid(child, &raw mut status, 0) }, status), (child, 0));
        forks += 1;
        thread::sleep(Duration::from_millis(1));
    }
    forks
}

/// Why a pool did not end although all threads have, and all mail was opened. The report says that buffers
/// are held, but there is nobody who could hold them.
fn lost(report: &ShutdownReport) -> String {
    let pages = report.pages.len();
    format!(
        "the buffers of {pages} pages are lost: nobody holds them any more, so their messages were \
         overwritten on the way back, or never sent. The pool, which cannot know that, says: {report}"
    )
}

fn check_the_end(world: &World, ends: Vec<StoppedPool>, took: Duration) {
    for (handle, shutdown) in &ends {
        assert!(shutdown.is_complete(), "{}", lost(&shutdown.report()));
        assert_eq!(handle.inflight().total, 0, "{:?}", handle.stats());
    }
    let buffers = world.stamps.load(Ordering::Relaxed);
    let threads = world.threads.load(Ordering::Relaxed);
    assert_eq!(world.memory.free(), PAGES, "every page is back");
    println!(
        "stress: {buffers} buffers, {} pools, {threads} returners in {took:.1?}: all have returned",
        ends.len()
    );
    assert!(buffers > 0 && !ends.is_empty());
}

/// What is left of a pool that was destroyed.
type StoppedPool = (PoolRef, Shutdown);

/// What goes from thread to thread.
enum Parcel {
    Buffers(Vec<PageBuf>),
    Batch(Box<Batch>),
    Shared(SharedBuf),
    Raw(PoolRef, RawBuf),
    Held(PageBuf, PageRef),
    Hold(PageRef),
    Frames(Vec<XdpFrame>),
}

/// Slots that any thread may fill or empty.
struct Mail<T>([AtomicPtr<T>; 16]);

impl<T> Mail<T> {
    fn new() -> Self {
        Self([const { AtomicPtr::new(null_mut()) }; 16])
    }

    /// Puts a parcel into a free slot, or gives it back.
    fn post(&self, parcel: T) -> Result<(), T> {
        let parcel = Box::into_raw(Box::new(parcel));
        let put = |slot: &AtomicPtr<T>| {
            slot.compare_exchange(null_mut(), parcel, Ordering::Release, Ordering::Relaxed).is_ok()
        };
        if self.0.iter().any(put) {
            return Ok(());
        }
        // SAFETY: made above from a box, and in no slot.
        Err(*unsafe { Box::from_raw(parcel) })
    }

    fn take(&self) -> Option<T> {
        let taken =
            self.0.iter().map(|slot| slot.swap(null_mut(), Ordering::Acquire)).find(|at| !at.is_null())?;
        // SAFETY: made from a box by `post`, and taken out of its slot once, here.
        Some(*unsafe { Box::from_raw(taken) })
    }
}

/// What all threads share.
struct World {
    memory: Arc<PlainMemory>,
    mail: Mail<Parcel>,
    pools: Mail<Pool>,
    stop: AtomicBool,
    stamps: AtomicU64,
    threads: AtomicUsize,
    seed: AtomicU64,
}

impl World {
    fn new(seed: u64) -> Self {
        Self {
            memory: PlainMemory::new(PAGES, 0).expect("small"),
            mail: Mail::new(),
            pools: Mail::new(),
            stop: AtomicBool::new(false),
            stamps: AtomicU64::new(0),
            threads: AtomicUsize::new(0),
            seed: AtomicU64::new(seed | 1),
        }
    }

    fn dice(&self) -> XorShift {
        XorShift(self.seed.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed) | 1)
    }

    /// The first word of a buffer goes from 0 to a number of its own.
    fn stamp(&self, word: &mut [u8]) {
        let word: &mut [u8; 8] = word.first_chunk_mut().expect("at least 8 bytes");
        assert_eq!(u64::from_le_bytes(*word), 0, "a buffer was handed out while somebody had it");
        *word = (self.stamps.fetch_add(1, Ordering::Relaxed) + 1).to_le_bytes();
    }

    /// What nobody took before the end.
    fn clear(&self) -> Vec<StoppedPool> {
        let mut dice = self.dice();
        std::iter::from_fn(|| self.mail.take()).for_each(|parcel| open(parcel, &mut dice));
        let pools = std::iter::from_fn(|| self.pools.take());
        pools.map(|pool| (pool.handle(), pool.destroy())).collect()
    }
}

/// Before a buffer returns its first word goes back to 0.
fn unstamp(word: &mut [u8]) {
    let word: &mut [u8; 8] = word.first_chunk_mut().expect("at least 8 bytes");
    assert_ne!(u64::from_le_bytes(*word), 0, "somebody else returned this buffer");
    *word = [0; 8];
}

/// A small generator of choices.
struct XorShift(u64);

impl XorShift {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

// ---- Returners ----------------------------------------------------------------------------------

/// Opens parcels for a while, with pauses, and ends; another thread follows.
fn returning(world: &World) {
    world.threads.fetch_add(1, Ordering::Relaxed);
    let mut dice = world.dice();
    let life = 1 + dice.below(2000);
    for _ in 0..life {
        match world.mail.take() {
            Some(parcel) if dice.below(8) == 0 => {
                world.mail.post(parcel).unwrap_or_else(|parcel| open(parcel, &mut dice));
            }
            Some(parcel) => open(parcel, &mut dice),
            None if world.stop.load(Ordering::Acquire) => return,
            None => idle(&mut dice),
        }
    }
}

fn idle(dice: &mut XorShift) {
    match dice.below(16) {
        0 => thread::sleep(Duration::from_micros(dice.below(300))),
        1..8 => thread::yield_now(),
        _ => (0..dice.below(100)).for_each(|_| std::hint::spin_loop()),
    }
}

/// Everything in a parcel returns from this thread, in one of the ways that there are.
fn open(parcel: Parcel, dice: &mut XorShift) {
    match parcel {
        Parcel::Buffers(buffers) => return_buffers(buffers, dice),
        Parcel::Batch(mut batch) => {
            (0..batch.len()).for_each(|at| unstamp(batch.bytes_mut(at).expect("plain memory")));
            drop(batch);
        }
        Parcel::Shared(shared) => {
            let word = shared.bytes().and_then(|bytes| bytes.first_chunk()).copied();
            assert_eq!(word, Some([0; 8]), "a page was used again while it was read");
        }
        Parcel::Raw(pool, raw) => {
            let mut buffer = pool.from_raw(raw.addr).expect("it is out");
            assert!(pool.from_raw(raw.addr).is_err(), "an address was taken twice");
            unstamp(buffer.bytes_mut().expect("plain memory"));
        }
        Parcel::Held(mut buffer, hold) => {
            unstamp(buffer.bytes_mut().expect("plain memory"));
            if dice.below(2) == 0 { drop((buffer, hold)) } else { drop((hold, buffer)) }
        }
        Parcel::Hold(hold) => drop(hold),
        Parcel::Frames(frames) => return_frames(frames, dice),
    }
}

fn return_frames(frames: Vec<XdpFrame>, dice: &mut XorShift) {
    let unstamped = |frame: XdpFrame| {
        let mut packet = frame.into_buff();
        unstamp(packet.data_mut());
        packet.frags_mut().iter_mut().for_each(|frag| unstamp(frag.data_mut()));
        XdpFrame::from(packet)
    };
    let frames: Vec<XdpFrame> = frames.into_iter().map(unstamped).collect();
    let _scope = (dice.below(4) == 0).then(NoDirectRecycle::enter);
    match dice.below(3) {
        1 => frames.into_iter().for_each(XdpFrame::put_ring),
        2 => {
            let mut bulk = XdpFrameBulk::new();
            frames.into_iter().rev().for_each(|frame| bulk.push(frame));
        }
        _ => drop(frames),
    }
}

fn return_buffers(mut buffers: Vec<PageBuf>, dice: &mut XorShift) {
    buffers.iter_mut().for_each(|buffer| unstamp(buffer.bytes_mut().expect("plain memory")));
    match dice.below(4) {
        0 => pagepool::put_bulk(&mut buffers),
        1 => pagepool::put_ring_bulk(&mut buffers),
        2 => buffers.into_iter().rev().for_each(PageBuf::put_ring),
        _ => {
            while !buffers.is_empty() {
                let at = dice.below(buffers.len() as u64) as usize;
                drop(buffers.swap_remove(at));
            }
        }
    }
}

// ---- Owners -------------------------------------------------------------------------------------

/// Polls one pool after another; leaves each for another owner, or destroys it.
fn own(world: &World) -> Vec<StoppedPool> {
    let (mut dice, mut ends) = (world.dice(), Vec::new());
    let mut kept = Vec::new();
    while !world.stop.load(Ordering::Acquire) {
        let pool = world.pools.take().unwrap_or_else(|| make(world, &mut dice)).bind();
        for _ in 0..dice.below(400) {
            poll(world, &pool, &mut dice, &mut kept);
        }
        let pool = pool.unbind();
        let end = dice.below(3) == 0;
        match if end { Err(pool) } else { world.pools.post(pool) } {
            Ok(()) => {}
            Err(pool) => ends.push((pool.handle(), pool.destroy())),
        }
        ends = forget_returned(ends);
    }
    return_buffers(kept, &mut dice);
    ends
}

/// Keeps what has not returned yet, and some of the rest for the check at the end.
fn forget_returned(mut ends: Vec<StoppedPool>) -> Vec<StoppedPool> {
    if ends.len() > 256 {
        ends.retain(|(handle, shutdown)| {
            assert!(!shutdown.is_complete() || handle.inflight().total == 0);
            !shutdown.is_complete()
        });
        assert!(ends.len() < 200, "pools pile up: {}", ends[0].1.report());
    }
    ends
}

fn make(world: &World, dice: &mut XorShift) -> Pool {
    let params = PoolParams {
        cache_size: 1 + dice.below(32) as usize,
        refill: 1,
        ring_size: 1 + dice.below(32) as usize,
        max_lanes: dice.below(4) as usize,
        chains: dice.below(4) as usize,
        lane_size: 2 << dice.below(8),
        domains: vec![Arc::new(IdentityDomain::new("stress"))],
        ..Default::default()
    };
    Pool::new(params, world.memory.clone()).expect("checked sizes")
}

/// One round of an owner: takes something, keeps it or sends it away.
fn poll(world: &World, pool: &Bound, dice: &mut XorShift, kept: &mut Vec<PageBuf>) {
    if dice.below(4) == 0 {
        let n = dice.below(kept.len() as u64 + 1) as usize;
        return_buffers(kept.split_off(kept.len() - n), dice);
    }
    match take(world, pool, dice) {
        Some(Parcel::Buffers(buffers)) if dice.below(3) == 0 && kept.len() < 64 => kept.extend(buffers),
        Some(parcel) => world.mail.post(parcel).unwrap_or_else(|parcel| open(parcel, dice)),
        None => idle(dice),
    }
}

fn take(world: &World, pool: &Bound, dice: &mut XorShift) -> Option<Parcel> {
    let stamped = |mut buffer: PageBuf| {
        world.stamp(buffer.bytes_mut().expect("plain memory"));
        buffer
    };
    match dice.below(11) {
        0..3 => {
            let n = dice.below(32) as usize;
            let pages = std::iter::from_fn(|| pool.alloc_page()).take(n).map(stamped);
            Some(Parcel::Buffers(pages.collect()))
        }
        3 | 4 => {
            let sizes = (0..dice.below(16)).map(|_| 64 + dice.below(2000) as usize).collect::<Vec<_>>();
            let frags = sizes.into_iter().filter_map(|size| pool.alloc_frag(size)).map(stamped);
            Some(Parcel::Buffers(frags.collect()))
        }
        5 => {
            let mut batch = pool.alloc_batch(dice.below(64) as usize);
            (0..batch.len()).for_each(|at| world.stamp(batch.bytes_mut(at).expect("plain memory")));
            Some(Parcel::Batch(Box::new(batch)))
        }
        6 => share(world, pool, dice),
        8 => {
            let packet = |first: PageBuf| {
                let mut packet = XdpBuff::new(first, 0, 64).expect("it has as many");
                for buffer in
                    std::iter::from_fn(|| pool.alloc_page()).take(dice.below(5) as usize).map(stamped)
                {
                    if let Err(mut none_left) = packet.add_frag(buffer, 0, 64) {
                        unstamp(none_left.bytes_mut().expect("plain memory"));
                    }
                }
                XdpFrame::from(packet)
            };
            let first = std::iter::from_fn(|| pool.alloc_page()).take(4).map(stamped);
            Some(Parcel::Frames(first.map(packet).collect()))
        }
        7 => Some(Parcel::Raw(pool.handle(), stamped(pool.alloc_page()?).into_raw().expect("mapped"))),
        _ => {
            let mut buffer = stamped(pool.alloc_page()?);
            let hold = buffer.page_ref();
            let _ = world.mail.post(Parcel::Hold(buffer.page_ref()));
            Some(Parcel::Held(buffer, hold))
        }
    }
}

/// A buffer that several threads read: nobody writes it, so its first word stays 0.
fn share(world: &World, pool: &Bound, dice: &mut XorShift) -> Option<Parcel> {
    let buffer = if dice.below(2) == 0 { pool.alloc_page()? } else { pool.alloc_frag(512)? };
    world.stamps.fetch_add(1, Ordering::Relaxed);
    let shared = buffer.into_shared();
    for _ in 0..dice.below(3) {
        let _ = world.mail.post(Parcel::Shared(shared.clone()));
    }
    Some(Parcel::Shared(shared))
}
