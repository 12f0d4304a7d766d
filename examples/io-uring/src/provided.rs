//! The ring of provided buffers, which the kernel takes from.

// UNSAFETY: memory that the kernel reads.

use std::cell::UnsafeCell;
use std::io;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::IoUring;
use io_uring::types::BufRingEntry;

/// The group of buffers that receives name.
pub const GROUP: u16 = 0;
/// Slots: a power of two.
pub const SLOTS: u16 = 32;

/// Slots, and in the first of them the tail. Page-aligned, as the kernel wants it.
#[repr(C, align(4096))]
struct BufferSlots([UnsafeCell<BufRingEntry>; SLOTS as usize]);

/// Buffers that the kernel may take, in this order.
pub struct Provided {
    slots: Box<BufferSlots>,
    tail: u16,
    /// Buffers that it has not taken.
    count: u16,
}

impl Provided {
    pub fn register(ring: &IoUring) -> io::Result<Self> {
        // SAFETY: slots are numbers, and any are valid.
        let slots: Box<BufferSlots> = unsafe { Box::new_zeroed().assume_init() };
        let at = (&raw const *slots) as u64;
        // SAFETY: it stays at this address until the ring is dropped, which is before this is.
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

    /// Adds a buffer, which the kernel sees when it is published.
    pub fn push(&mut self, at: u64, len: u32, number: u16) {
        let slot = self.slots.0[usize::from(self.tail % SLOTS)].get();
        // SAFETY: there is room, so the kernel does not look at this slot.
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
        // SAFETY: it is aligned, lives as long as the slots, and is written here alone.
        let tail = unsafe { AtomicU16::from_ptr(tail.cast_mut()) };
        tail.store(self.tail, Ordering::Release); // the kernel reads the slots after it
    }

    /// The kernel took one.
    pub fn took(&mut self) {
        self.count -= 1;
    }
}
