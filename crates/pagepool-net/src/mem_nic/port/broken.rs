//! For tests: hardware that completes late, in another order, or falsely.

use super::{BufferId, NicPort, Received, Wire};

impl NicPort {
    /// Makes the device send packets without completing them.
    pub fn hold_completions(&mut self, on: bool) {
        self.wire.holding = on;
    }

    /// Completes the held packets, in the order that `arrange` gives them. Returns whether the device still
    /// exists.
    pub fn release_completions(&mut self, arrange: impl FnOnce(&mut [u32])) -> bool {
        let released = self.step(|wire| {
            let Wire { held, produced, rings, .. } = &mut *wire.0;
            let mut ids: Vec<u32> = held.drain(..).map(|id| id.0).collect();
            arrange(&mut ids);
            *produced |= !ids.is_empty();
            for id in ids {
                let _ = rings.sent.push(BufferId(id)); // it has a place for every buffer that is being sent
            }
        });
        released.is_some()
    }

    /// The id of the buffer that the next packet goes into, for a false completion.
    pub fn next_posted(&mut self) -> Option<u32> {
        self.step(|wire| {
            wire.0.skip_falsified();
            wire.0.rings.fill.peek().ok().map(|posted| posted.id.0)
        })?
    }

    /// The id of the first buffer of the packet that is sent next.
    pub fn next_to_send(&mut self) -> Option<u32> {
        self.step(|wire| wire.0.rings.send.peek().ok().map(|posted| posted.id.0))?
    }

    /// Reports falsely, as a broken device, that a buffer was filled, with any id, length and end mark. The
    /// port never again touches a buffer with this id. False if the completion ring is full.
    pub fn inject_received(&mut self, id: u32, len: u32, last: bool) -> bool {
        let report = Received { id: BufferId(id), len, last };
        let reported = self.step(|wire| {
            wire.0.false_received.push(report.id); // before the driver can act on it
            wire.0.produced = true;
            wire.0.rings.received.push(report).is_ok()
        });
        reported.unwrap_or(false)
    }

    /// Reports falsely, as a broken device, that a buffer was sent, with any id. See
    /// [`inject_received`](Self::inject_received).
    pub fn inject_sent(&mut self, id: u32) -> bool {
        let reported = self.step(|wire| {
            wire.0.false_sent.push(BufferId(id));
            wire.0.produced = true;
            wire.0.rings.sent.push(BufferId(id)).is_ok()
        });
        reported.unwrap_or(false)
    }
}
