//! The other half of the made-up card, in this process: the hardware.

// UNSAFETY: copies bytes to and from buffers on the card's rings.
#![expect(unsafe_code)]

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, PoisonError};

use pagepool::{Arena, Provider};
use pagepool_testing::FarEnd;

use super::{ARENA_AT, Descriptor, OF_CARD, SLOTS, Shared};

#[derive(Debug)]
pub(super) struct Card {
    shared: Arc<Shared>,
    line: UnixStream,
    arena: Arc<Arena>,
    /// Descriptors ever completed.
    received: usize,
    lost: u64,
    sent: usize,
    stalled: bool,
}

impl Card {
    pub(super) fn new(shared: Arc<Shared>, line: UnixStream, arena: Arc<Arena>) -> Self {
        Self { shared, line, arena, received: 0, sent: 0, lost: 0, stalled: false }
    }

    /// Completes a descriptor, if the card has it: `access` gets the buffer, and its length, and returns the
    /// length of the packet; `None` leaves the descriptor.
    fn complete(
        &self,
        descriptor: &Descriptor,
        access: impl FnOnce(*mut u8, usize) -> Option<usize>,
    ) -> Option<()> {
        let runs = self.shared.runs.lock().unwrap_or_else(PoisonError::into_inner);
        let word = descriptor.word.load(Ordering::Acquire); // pairs with the driver's store
        let len = word as u32 as usize;
        let area = self.arena.area();
        let offset = descriptor.at.load(Ordering::Relaxed).checked_sub(ARENA_AT)?;
        if !*runs || word & OF_CARD == 0 || offset + len as u64 > area.len_bytes() {
            return None;
        }
        let at = std::ptr::with_exposed_provenance_mut(area.base()? + offset as usize);
        let len = access(at, len)?;
        descriptor.word.store(len as u64, Ordering::Release);
        fence(Ordering::SeqCst); // pairs with the driver's, when it goes to sleep
        if self.shared.interrupts.swap(false, Ordering::Relaxed) {
            (&self.line).write_all(&[1]).ok()?;
        }
        Some(())
    }

    /// Writes nonsense into some words. Touches no buffer.
    pub(super) fn lie(&mut self, round: u64) {
        for (number, descriptor) in (0..).zip(self.shared.rx.iter().chain(&self.shared.tx)) {
            let lie = (round << 8 | number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            if lie >> 62 == 0 {
                let len = [0, 60, 1518, 4033, 0xffff_ffff][(lie >> 40) as usize % 5];
                descriptor.word.store(len | lie & OF_CARD, Ordering::Relaxed);
                descriptor.at.store(lie, Ordering::Relaxed);
            }
        }
    }
}

impl FarEnd for Card {
    fn send(&mut self, packet: &[u8]) -> bool {
        let write = |at: *mut u8, room: usize| {
            let len = Some(packet.len()).filter(|&len| len <= room)?;
            // SAFETY: I3, I4. The buffer is on a ring: it stays, and there is no reference to its bytes.
            unsafe { std::ptr::copy_nonoverlapping(packet.as_ptr(), at, len) };
            Some(len)
        };
        let done = self.complete(&self.shared.rx[self.received % SLOTS], write).is_some();
        self.received += usize::from(done);
        self.lost += u64::from(!done);
        done
    }

    fn receive(&mut self, packet: &mut Vec<u8>) -> bool {
        packet.clear();
        let read = |at: *mut u8, len: usize| {
            // SAFETY: I3, I4. The buffer is on a ring: it stays, and nothing writes its bytes.
            packet.extend_from_slice(unsafe { std::slice::from_raw_parts(at, len) });
            Some(len)
        };
        let done = !self.stalled && self.complete(&self.shared.tx[self.sent % SLOTS], read).is_some();
        self.sent += usize::from(done);
        done
    }

    fn lost(&self) -> Option<u64> {
        Some(self.lost)
    }

    fn stall(&mut self, on: bool) -> bool {
        self.stalled = on;
        true
    }
}
