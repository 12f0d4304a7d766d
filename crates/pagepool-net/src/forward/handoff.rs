//! Hands frames to another thread: one that polls a port, or a worker.
//!
//! What   a bounded ring with one producer and one consumer. Only the frame moves; its buffers stay in place,
//!        and return on the thread that drops it.
//! Batch  the sender keeps up to 31 frames, and puts them into the ring together: then neither thread reads
//!        the other's index for each frame.
//! Wake   the sender rings a [doorbell](Doorbell) once for all frames of a round, because the receiver may
//!        sleep. It rings a last time when it is dropped, after its end of the ring.
//! Cost   a slot of 32 bytes, a release store for 32 frames (fewer if the ring is nearly full), no lock; a
//!        fence for each round. A full ring returns the frame.
//! Copies a frame is built by stores of 4 and 8 bytes. A load of 16 bytes that soon follows must wait until
//!        they reach the cache. Stores reach it in order, so they wait behind stores to the packet, whose
//!        lines the other CPU holds. So a frame moves in registers or in small words. The path into `kept`
//!        has no call that may panic, because its cleanup would require the frame in memory.

// UNSAFETY: frames are written behind a vector's end, without a call that may panic, and moved in words.
#![expect(unsafe_code)]

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use pagepool::{Error, XdpFrame};
use rtrb::{Consumer, Producer, RingBuffer};

use crate::device::doorbell::Doorbell;
use crate::device::{Armed, Wake};
use crate::error::within;
use crate::sys::event::wait_readable;

/// The most frames of a handoff.
const MOST: usize = 1 << 16;
/// The sender puts so many frames into the ring together.
const BATCH: usize = 32;

/// Makes a ring for at most `frames` frames to another thread. Give either end to a [`Forwarder`]
/// ([`add_remote`], [`add_handoff`]) or to your own thread:
///
/// ```
/// use pagepool_net::{Wake, handoff};
/// # use pagepool::{Arena, ArenaParams, Pool, PoolParams, XdpBuff, XdpFrame};
/// # let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() })?;
/// # let pool = Pool::new(PoolParams::default(), arena)?.bind();
/// # let frame = XdpFrame::from(XdpBuff::received(pool.alloc_page().unwrap(), 60).unwrap());
/// let (mut to_worker, mut work) = handoff(512)?;
/// let worker = std::thread::spawn(move || {
///     let mut frames = 0;
///     while work.wait(std::time::Duration::MAX) != Wake::Gone {
///         while let Some(frame) = work.recv() {
///             frames += 1;
///             drop(frame); // its buffers return from here
///         }
///     }
///     frames
/// });
/// to_worker.send(frame).expect("the ring has room");
/// to_worker.flush(); // wakes the worker, once for all frames
/// drop(to_worker); // ends it
/// assert_eq!(worker.join().unwrap(), 1);
///
/// let refused = handoff(0).unwrap_err();
/// assert_eq!(refused.to_string(), "frames is 0, but must be 1 to 65536");
/// # Ok::<(), pagepool::Error>(())
/// ```
///
/// [`Forwarder`]: crate::Forwarder
/// [`add_remote`]: crate::Forwarder::add_remote
/// [`add_handoff`]: crate::Forwarder::add_handoff
pub fn handoff(frames: usize) -> Result<(HandoffTx, HandoffRx), Error> {
    within("frames", frames, 1..=MOST)?;
    let (frames, into) = RingBuffer::new(frames);
    let bell = Arc::new(Doorbell::new()?);
    Ok((
        HandoffTx {
            kept: Vec::with_capacity(BATCH),
            room: 0,
            frames,
            bell: LastRing(bell.clone()),
            owes: false,
        },
        HandoffRx { frames: into, fetched: 0, bell, armed: false },
    ))
}

/// The sending end of a [`handoff`]: a remote port of a forwarder, or owned by your thread.
#[derive(Debug)]
pub struct HandoffTx {
    /// Frames that are not in the ring yet. It has room for them.
    kept: Vec<XdpFrame>,
    /// How many more frames fit for certain; there may be room for more.
    room: usize,
    frames: Producer<XdpFrame>,
    /// After the ring's end: fields are dropped in this order.
    bell: LastRing,
    /// Whether a frame was put in since the last ring.
    owes: bool,
}

/// Rings when it is dropped: for frames that were not flushed, and to signal that no more come.
#[derive(Debug)]
struct LastRing(Arc<Doorbell>);

impl Drop for LastRing {
    fn drop(&mut self) {
        self.0.ring();
    }
}

impl HandoffTx {
    /// Hands a frame over. Returns it if there is no room, or if the other end was dropped. The other end
    /// gets it with the next [`flush`](Self::flush), with 31 more frames, or when the ring is full, but is
    /// woken only by a flush. See [`handoff`] for an example.
    #[inline]
    pub fn send(&mut self, frame: XdpFrame) -> Result<(), XdpFrame> {
        if self.room == 0 {
            self.room = self.frames.slots(); // `kept` is empty: see below
        }
        if self.room == 0 || self.frames.is_abandoned() {
            return Err(frame);
        }
        let Some(place) = self.kept.spare_capacity_mut().first_mut() else { return Err(frame) };
        place.write(frame);
        let kept = self.kept.len() + 1;
        // SAFETY: the entry behind the last was written just now, within the capacity.
        unsafe { self.kept.set_len(kept) };
        (self.room, self.owes) = (self.room - 1, true);
        // Publish when the room is used up, too: a caller that is refused may retry without a flush.
        if kept == BATCH || self.room == 0 {
            self.publish();
        }
        Ok(())
    }

    /// Moves the kept frames into the ring; drops them if the other end was dropped.
    fn publish(&mut self) {
        if self.frames.is_abandoned() {
            return self.kept.clear();
        }
        let kept = self.kept.len();
        let Ok(mut slots) = self.frames.write_chunk_uninit(kept) else { return };
        // SAFETY: the frames stay initialised behind the length, and the vector drops them no more.
        unsafe { self.kept.set_len(0) };
        let (first, wrapped) = slots.as_mut_slices();
        for (frame, slot) in self.kept.spare_capacity_mut().iter().zip(first.iter_mut().chain(wrapped)) {
            move_in_words(frame, slot);
        }
        // SAFETY: as many slots as frames, and each was written just now.
        unsafe { slots.commit_all() };
    }

    /// Gives all frames to the other end, and wakes it if anything was sent since the last flush: call it
    /// once for all frames of a round. Costs a fence, and a system call if the other end sleeps. A drop
    /// flushes, too.
    #[inline]
    pub fn flush(&mut self) {
        if std::mem::take(&mut self.owes) {
            self.publish();
            self.bell.0.ring();
        }
    }
}

impl Drop for HandoffTx {
    fn drop(&mut self) {
        self.publish();
    }
}

/// Moves a frame in words of 8 bytes: see "Copies" above. Words of 4 are no faster.
#[inline(always)]
fn move_in_words(frame: &MaybeUninit<XdpFrame>, slot: &mut MaybeUninit<XdpFrame>) {
    // SAFETY: a frame is so many aligned words (asserted below), which may be uninitialised.
    let from = unsafe { &*frame.as_ptr().cast::<Words>() };
    // SAFETY: the slot has the same layout, and is borrowed exclusively.
    let to = unsafe { &mut *slot.as_mut_ptr().cast::<Words>() };
    for (from, to) in from.iter().zip(to) {
        // SAFETY: it is a borrow. Volatile, because the compiler would merge plain reads into wider ones.
        *to = unsafe { std::ptr::read_volatile(from) };
    }
}

type Words = [MaybeUninit<u64>; size_of::<XdpFrame>() / 8];

const _: () = assert!(size_of::<XdpFrame>().is_multiple_of(8) && align_of::<XdpFrame>() == 8, "whole words");

/// The receiving end of a [`handoff`]: at a port of a forwarder, or owned by your thread.
#[derive(Debug)]
pub struct HandoffRx {
    frames: Consumer<XdpFrame>,
    /// Frames at the front whose packets were prefetched.
    fetched: usize,
    bell: Arc<Doorbell>,
    /// Whether [`arm`](Self::arm) returned `Idle`, and was not called since.
    armed: bool,
}

impl HandoffRx {
    /// The oldest frame; `None` if there is none now. See [`handoff`] for an example.
    #[inline]
    pub fn recv(&mut self) -> Option<XdpFrame> {
        if self.fetched == 0 {
            self.fetched = self.fetch();
        }
        self.fetched = self.fetched.checked_sub(1)?;
        self.take()
    }

    /// [`recv`](Self::recv) for a frame that is only sent on: its packet is not prefetched.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<XdpFrame> {
        self.frames.pop().ok()
    }

    /// Prefetches the first lines of the next packets; returns how many there are, up to 32. They are in the
    /// sender's cache, and so their transfers overlap.
    fn fetch(&mut self) -> usize {
        let there = self.there().min(BATCH);
        let Ok(next) = self.frames.read_chunk(there) else { return 0 };
        let (first, wrapped) = next.as_slices();
        first.iter().chain(wrapped).for_each(|frame| frame.prefetch());
        next.len()
    }

    /// Frames in the ring, as far as it is known. Reads the sender's index only if none is known.
    #[inline]
    fn there(&self) -> usize {
        match self.frames.cached_slots() {
            0 => self.frames.slots(),
            there => there,
        }
    }

    /// Appends the oldest frames to `frames`, as many as fit its capacity: it never allocates. Returns how
    /// many. Prefetches the first lines of up to 32 packets. Costs less than [`recv`](Self::recv) for each.
    ///
    /// ```
    /// # use pagepool::{XdpFrame, XdpFrameBulk};
    /// fn work(packets: &mut pagepool_net::HandoffRx, burst: &mut Vec<XdpFrame>, done: &mut XdpFrameBulk) {
    ///     while packets.recv_burst(burst) > 0 {
    ///         for frame in burst.drain(..) {
    ///             println!("{} bytes", frame.len());
    ///             done.push(frame);
    ///         }
    ///         done.flush(); // their buffers return together
    ///     }
    /// }
    /// ```
    #[inline]
    pub fn recv_burst(&mut self, frames: &mut Vec<XdpFrame>) -> usize {
        let room = frames.capacity() - frames.len();
        let Ok(taken) = self.frames.read_chunk(self.there().min(room)) else { return 0 };
        let mut n = 0;
        for (place, frame) in frames.spare_capacity_mut().iter_mut().zip(taken) {
            let frame = place.write(frame);
            if n < BATCH {
                frame.prefetch();
            }
            n += 1;
        }
        // SAFETY: as many entries behind the last were written just now, within the capacity.
        unsafe { frames.set_len(frames.len() + n) };
        self.fetched = 0;
        n
    }

    /// Sleeps until there is a frame, or for `timeout`. `Gone` once the sending end was dropped and all its
    /// frames were taken. Makes no system call if there is a frame. A signal may end it early, as a
    /// `Timeout`.
    pub fn wait(&mut self, timeout: Duration) -> Wake {
        if !self.frames.is_empty() {
            return Wake::Ready;
        }
        let slept_out = match self.sleep() {
            None => false,
            Some(_) if self.frames.is_abandoned() => false,
            Some(event) => wait_readable([Some(event)], timeout) != Some([true]),
        };
        self.awake();
        // In this order: frames sent before the end are seen after it.
        let is_abandoned = self.frames.is_abandoned();
        match self.frames.is_empty() {
            false => Wake::Ready,
            true if is_abandoned => Wake::Gone,
            true if slept_out => Wake::Timeout,
            true => Wake::Ready, // a late signal: look again
        }
    }

    /// Prepares a sleep in your own event loop, in place of [`wait`](Self::wait). Call it when
    /// [`recv`](Self::recv) returns `None`. On `Idle`, sleep until this is readable ([`AsFd`]), for any time,
    /// then receive. `Gone` once the sending end was dropped and all its frames were taken. Makes a few
    /// system calls if there is no frame, none if there is one. The sender makes one system call for each
    /// `Idle`, in its next [`flush`](HandoffTx::flush).
    ///
    /// ```
    /// use std::os::fd::{AsFd, BorrowedFd};
    ///
    /// use pagepool_net::{Armed, HandoffRx};
    ///
    /// fn work(mut packets: HandoffRx, sleep_until_readable: impl Fn(BorrowedFd)) {
    ///     loop {
    ///         while let Some(frame) = packets.recv() {
    ///             println!("{} bytes", frame.len());
    ///         }
    ///         match packets.arm() {
    ///             Armed::Ready => {}
    ///             Armed::Idle { .. } => sleep_until_readable(packets.as_fd()), // by epoll, by tokio
    ///             Armed::Gone => break,
    ///         }
    ///     }
    /// }
    /// ```
    pub fn arm(&mut self) -> Armed<'_> {
        if std::mem::take(&mut self.armed) {
            self.bell.awake();
        }
        if !self.frames.is_empty() {
            return Armed::Ready;
        }
        self.bell.sleep();
        // In this order: frames sent before the end are seen after it.
        let is_abandoned = self.frames.is_abandoned();
        let is_empty = self.frames.is_empty();
        self.armed = is_empty && !is_abandoned;
        if self.armed {
            return Armed::Idle { fd: Some(self.bell.event()), waker_fd: None, at_most: Duration::MAX };
        }
        self.bell.awake();
        if is_empty { Armed::Gone } else { Armed::Ready }
    }

    /// Returns the descriptor to sleep on, if there is no frame now. [`awake`](Self::awake) must follow.
    pub(crate) fn sleep(&self) -> Option<BorrowedFd<'_>> {
        self.bell.sleep();
        self.frames.is_empty().then(|| self.bell.event())
    }

    pub(crate) fn awake(&self) {
        self.bell.awake();
    }
}

/// Readable once there is a frame, or the sending end was dropped, since [`arm`](HandoffRx::arm) returned
/// `Idle`. Nothing else reads or writes it.
impl AsFd for HandoffRx {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.event()
    }
}

/// For reactors that need it, such as tokio's `AsyncFd`.
impl AsRawFd for HandoffRx {
    fn as_raw_fd(&self) -> RawFd {
        self.bell.event().as_raw_fd()
    }
}

impl Drop for HandoffRx {
    /// Returns its frames now. A frame that is sent during this returns to its pool when the `HandoffTx` is
    /// dropped.
    fn drop(&mut self) {
        // No more than one ring: an equally fast sender would keep this thread here.
        for _ in 0..self.frames.buffer().capacity() {
            if self.take().is_none() {
                break;
            }
        }
    }
}
