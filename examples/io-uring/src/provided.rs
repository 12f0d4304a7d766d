//! The ring of provided buffers, from which the kernel takes.

// UNSAFETY: memory that the kernel reads.

use std::cell::UnsafeCell;
use std::io;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::IoUring;
use io_uring::types::BufRingEntry;

/// The buffer group of the receives.
pub const GROUP: u16 = 0;
/// Slots: a power of two.
pub const SLOTS: u16 = 32;

/// Slots; the first also contains the tail. Page-aligned, as the kernel requires.
#[repr(C, align(4096))]
struct BufferSlots([UnsafeCell<BufRingEntry>; SLOTS as usize]);

/// Buffers that the kernel may take, in order.
pub struct Provided {
    slots: Box<BufferSlots>,
    tail: u16,
    /// Buffers that the kernel has not taken.
    count: u16,
}

impl Provided {
    pub fn register(ring: &IoUring) -> io::Result<Self> {
        // SAFETY: slots consist of integers, for which zero is valid.
        let slots: Box<BufferSlots> = unsafe { Box::new_zeroed().assume_init() };
        let at = (&raw const *slots) as u64;
        // SAFETY: the slots stay at this address until they are dropped, after the ring.
        unsafe { ring.submitter().register_buf_ring_with_flags(at, SLOTS, GROUP, 0) }?;
        Ok(Self { slots, tail: 0, count: 0 })
    }

    /// Buffers that are provided.
    pub fn count(&self) -> usize {
        self.count.into()
    }

    pub fn has_room(&self) -> bool {
        self.count < SLOTS
    }

    /// Adds a buffer. The kernel sees it after [`publish`](Self::publish).
    pub fn push(&mut self, at: u64, len: u32, number: u16) {
        let slot = self.slots.0[usize::from(self.tail % SLOTS)].get();
        // SAFETY: there is room, so the kernel does not read this slot.
        let slot = unsafe { &mut *slot };
        slot.set_addr(at);
        slot.set_len(len);
        slot.set_bid(number);
        self.tail = self.tail.wrapping_add(1);
        self.count += 1;
    }

    pub fn publish(&self) {
        // SAFETY: this is the first slot, which was initialised.
        let tail = unsafe { BufRingEntry::tail(self.slots.0[0].get()) };
        // SAFETY: the tail is aligned and lives as long as the slots; only this function writes it.
        let tail = unsafe { AtomicU16::from_ptr(tail.cast_mut()) };
        tail.store(self.tail, Ordering::Release); // the kernel reads the tail before the slots
    }

    /// Counts a buffer that the kernel took.
    pub fn took(&mut self) {
        self.count -= 1;
    }
}
