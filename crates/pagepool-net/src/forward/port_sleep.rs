//! What a forwarder sleeps on: its devices, their pools, what other threads hand over, and its waker.
//!
//! Here   a thread that has nothing else to do sleeps in one system call on all of them.
//! Else   an event loop, as tokio's, sleeps on one descriptor: an epoll set of all of them. Each look puts
//!        them in anew, to be reported once. So one that is no longer slept on, as that of a closed port,
//!        ends one sleep for nothing at most.

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
    /// The descriptors.
    sleep: Sleep,
    /// The set of them, once somebody asked for it.
    set: Option<SleepSet>,
    pub(super) wakened: Wakened,
}

impl PortSleep {
    /// Sleeps until there is something to poll for, or for `timeout`.
    pub(super) fn until_ready(&mut self, ports: &mut [Port], timeout: Duration) -> Wake {
        let alone = ports.len() == 1 && !ports[0].has_inlets() && !self.wakened.has_waker();
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

    /// Says whether to sleep on [`descriptor`](Self::descriptor), at most for `longest`.
    pub(super) fn arm(&mut self, ports: &mut [Port], longest: Duration) -> Result<Armed<'_>, Error> {
        ports.iter_mut().for_each(Port::disarm); // what the last look began
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

    /// The descriptor of the set.
    pub(super) fn descriptor(&mut self) -> Result<BorrowedFd<'_>, Error> {
        made(&mut self.set).map(SleepSet::fd)
    }

    /// What there is to do now, without sleeping, and how long one may sleep if there is nothing. All devices
    /// are asked, for one that is always busy must not hide that another one is gone; such a one is closed,
    /// and what it had may be the buffers that a device wants which was asked before.
    fn look(&mut self, ports: &mut [Port]) -> (Wake, Duration) {
        self.sleep.clear();
        let (mut found, mut at_most, mut closed) = (Wake::Gone, Duration::MAX, false);
        for port in ports {
            let was_gone = port.is_gone();
            let (wake, longest) = port.arm(&mut self.sleep);
            closed |= port.is_gone() && !was_gone;
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

/// The set, which the first call makes.
fn made(set: &mut Option<SleepSet>) -> Result<&SleepSet, Error> {
    let made = match set.take() {
        Some(made) => made,
        None => SleepSet::new().map_err(|source| {
            failed("epoll_create1", source, "a forwarder in an event loop needs one more descriptor")
        })?,
    };
    Ok(set.insert(made))
}
