//! What a forwarder sleeps on: its devices, their pools, its handoffs, and its waker.
//!
//! Here   a thread without other work sleeps on all of them in one system call.
//! Else   an event loop, such as tokio's, sleeps on one descriptor: an epoll set of all of them. Each `look`
//!        adds them again, to be reported once. A descriptor that is no longer needed (a closed port's) ends
//!        at most one sleep too early.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use pagepool::Error;

use super::port::Port;
use crate::device::waker::Wakened;
use crate::device::{Armed, Wake};
use crate::sys::event::{Sleep, SleepSet};
use crate::sys::remedy::failed;

#[derive(Debug, Default)]
pub(super) struct PortSleep {
    sleep: Sleep,
    /// The epoll set, once it is needed.
    set: Option<SleepSet>,
    pub(super) wakened: Wakened,
}

impl PortSleep {
    /// Sleeps until there is something to poll for, or for `timeout`.
    pub(super) fn until_ready(&mut self, ports: &mut [Port], timeout: Duration) -> Wake {
        let alone = ports.len() == 1 && ports[0].inlets.is_empty() && !self.wakened.has_waker();
        if alone {
            return ports[0].wait(timeout);
        }
        let start = Instant::now();
        loop {
            let (found, at_most) = self.look(ports);
            let left = timeout.saturating_sub(start.elapsed());
            let sleep = left.min(at_most);
            let by_signal = found == Wake::Timeout && !self.sleep.sleep(sleep);
            let woken = self.sleep.is_any_readable();
            ports.iter_mut().for_each(Port::disarm);
            match found {
                Wake::Timeout if woken => return Wake::Ready,
                Wake::Timeout if left <= sleep || by_signal => return Wake::Timeout,
                Wake::Timeout => {}
                wake => return wake,
            }
        }
    }

    /// Returns whether to sleep on [`descriptor`](Self::descriptor), for at most `longest`.
    pub(super) fn arm(&mut self, ports: &mut [Port], longest: Duration) -> Result<Armed<'_>, Error> {
        ports.iter_mut().for_each(Port::disarm); // ends what the last look began
        let (found, at_most) = self.look(ports);
        if found != Wake::Timeout {
            ports.iter_mut().for_each(Port::disarm);
            return Ok(if found == Wake::Gone { Armed::Gone } else { Armed::Ready });
        }
        let set = made(&mut self.set)?;
        let watches = "raise fs.epoll.max_user_watches: each socket, pool and handoff needs one";
        set.watch(&self.sleep).map_err(|source| failed("epoll_ctl", source, watches))?;
        Ok(Armed::Idle { fd: Some(set.fd()), waker_fd: None, at_most: at_most.min(longest) })
    }

    pub(super) fn descriptor(&mut self) -> Result<BorrowedFd<'_>, Error> {
        made(&mut self.set).map(SleepSet::fd)
    }

    /// Checks for something to do, without sleeping; returns how long to sleep if there is nothing. It polls
    /// every device, because a busy one must not hide that another is gone. A gone device is closed; its
    /// buffers may be those that a device polled earlier needs.
    fn look(&mut self, ports: &mut [Port]) -> (Wake, Duration) {
        self.sleep.clear();
        let (mut found, mut at_most, mut closed) = (Wake::Gone, Duration::MAX, false);
        for port in ports {
            let was_gone = port.gone;
            let (wake, longest) = port.arm(&mut self.sleep);
            closed |= port.gone && !was_gone;
            at_most = at_most.min(longest);
            found = match (wake, found) {
                (Wake::Ready, _) | (_, Wake::Ready) => Wake::Ready,
                (Wake::Gone, found) => found,
                (Wake::Timeout, _) => Wake::Timeout,
            };
        }
        let is_woken = self.wakened.take() || (found == Wake::Timeout && !self.wakened.sleep());
        self.sleep.add(self.wakened.event());
        let found = if found == Wake::Timeout && (closed || is_woken) { Wake::Ready } else { found };
        (found, at_most)
    }
}

/// The set; the first call makes it.
fn made(set: &mut Option<SleepSet>) -> Result<&SleepSet, Error> {
    let made = match set.take() {
        Some(made) => made,
        None => SleepSet::new().map_err(|source| {
            failed("epoll_create1", source, "a forwarder in an event loop needs one more descriptor")
        })?,
    };
    Ok(set.insert(made))
}
