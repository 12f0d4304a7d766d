//! How a forwarder calls its stack.

use std::time::{Duration, Instant};

use super::Forwarder;
use super::handler::PacketHandler;
use super::outlets::Outlets;
use super::stack::Stack;
use crate::device::Wake;

impl<P: PacketHandler, S: Stack> Forwarder<P, S> {
    /// The stack that gets passed packets.
    pub fn stack_mut(&mut self) -> &mut S {
        &mut self.stack
    }

    /// The ports, as the stack gets them.
    pub(super) fn outlets(&mut self) -> Outlets<'_> {
        Outlets { ports: &mut self.ports, poll_list: &mut self.poll_list, routes: &self.routes }
    }

    /// Calls a stack whose time has come. Returns how many frames it sent.
    #[inline]
    pub(super) fn flush_due_stack(&mut self) -> usize {
        if self.stack.due().is_none_or(|due| due > Instant::now()) {
            return 0;
        }
        self.flush_stack();
        self.transmit()
    }

    #[inline]
    pub(super) fn flush_stack(&mut self) {
        let Self { stack, ports, poll_list, routes, .. } = self;
        stack.flush(&mut Outlets { ports, poll_list, routes });
    }

    /// Sleeps no longer than the stack allows.
    pub(super) fn sleep_until_due(
        &mut self,
        timeout: Duration,
        sleep: impl FnOnce(&mut Self, Duration) -> Wake,
    ) -> Wake {
        let Some(due) = self.stack.due() else { return sleep(self, timeout) };
        match sleep(self, timeout.min(due.saturating_duration_since(Instant::now()))) {
            Wake::Timeout if due <= Instant::now() => Wake::Ready,
            wake => wake,
        }
    }
}
