//! A back end in the kernel: vhost-net, with a TAP behind it.
//!
//! What   for each pair a descriptor of `/dev/vhost-net` and a queue of the TAP. A thread of the kernel copies
//!        packets between that queue and the buffers in the rings.
//! Memory the kernel finds buffers by their addresses in this process: an arena of any kind serves.
//! End    detaching the TAP waits for the kernel's thread; after that, the rings are not accessed. The kernel
//!        does that itself when the process exits.
//! Loss   the interface was deleted. A deleted interface is not recreated, only reopened if someone else
//!        creates it.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

use pagepool::Error;
use pagepool_link::sys::poll::look;
use pagepool_link::{LinkInfo, Tap};

use super::message::{memory_table, pair};
use super::sys::vhost_device::{self as device, Call};
use crate::interface::drops::Drops;
use crate::interface::lookup;
use crate::sys::errno;
use crate::sys::remedy::failed_unless;
use crate::virtio::back_end::{BackEnd, QueueSetup, SharedRegion, Wanted, feature};

/// The descriptor that takes the TAP away from a ring: -1.
const NO_TAP: u32 = u32::MAX;

/// The kernel's side of a TAP's queues.
#[derive(Debug)]
pub(crate) struct VhostNet {
    name: String,
    link: LinkInfo,
    /// Of the interface, counted for this pair.
    drops: Drops,
    counting: u32,
    /// Those that are not closed.
    pairs: Vec<Pair>,
}

#[derive(Debug)]
struct Pair {
    number: u32,
    tap: Arc<Tap>,
    /// `None` without a connection.
    device: Option<File>,
}

impl VhostNet {
    /// The back end of these pairs, over a queue each of a TAP of this thread's network namespace.
    pub(crate) fn new(name: &str, numbers: &[u32], taps: Vec<Arc<Tap>>) -> Result<Self, Error> {
        let mut netlink = lookup::netlink()?;
        let interface = taps.first().map_or("", |tap| tap.name());
        let link = netlink.link(interface).map_err(lookup::system)?;
        let pair = |(&number, tap)| Pair { number, tap, device: None };
        let pairs = numbers.iter().zip(taps).map(pair).collect();
        let (drops, counting) = (Drops::since_now(netlink, link.index), numbers.first().map_or(0, |&of| of));
        Ok(Self { name: name.into(), link, drops, counting, pairs })
    }

    /// The interface as it was at first.
    pub(crate) fn link(&self) -> &LinkInfo {
        &self.link
    }

    /// Attaches the queues to another TAP of the name, if the interface was deleted and there is one.
    fn attach(&mut self) -> Result<(), Error> {
        let gone: Vec<_> = self.pairs.iter().filter(|pair| pair.is_gone()).collect();
        if gone.is_empty() {
            return Ok(());
        }
        let found = self.drops.netlink.get_mut().link(gone[0].tap.name()).map_err(lookup::system)?;
        gone.iter().try_for_each(|pair| pair.tap.attach_again()).map_err(lookup::system)?;
        self.drops.follow(found.index);
        Ok(())
    }

    fn open_all(&mut self, wanted: Wanted, memory: &[SharedRegion<'_>]) -> Result<u64, Error> {
        self.attach()?;
        let mut features = wanted.required | wanted.optional;
        for pair in &mut self.pairs {
            let device = device::open().map_err(not_opened)?;
            features = negotiate(&self.name, &device, wanted)?;
            // Attaching took them away.
            if wanted.required & feature::OFFLOADS != 0 {
                pair.tap.leave_offloads().map_err(lookup::system)?;
            }
            make(&self.name, &device, device::SET_MEM_TABLE, &mut memory_table(memory))?;
            pair.device = Some(device);
        }
        Ok(features)
    }
}

/// Becomes the owner of a device; returns the features that it and the driver have.
fn negotiate(name: &str, device: &File, wanted: Wanted) -> Result<u64, Error> {
    let mut offered = [0];
    make(name, device, device::SET_OWNER, &mut [])?;
    make(name, device, device::GET_FEATURES, &mut offered)?;
    // Checksums and segments are the TAP's: vhost-net passes the headers on.
    let of_tap = wanted.required & feature::OFFLOADS;
    let missing = wanted.required & !offered[0] & !of_tap;
    if missing != 0 {
        return Err(feature::lacking(name, missing));
    }
    let features = offered[0] & (wanted.required | wanted.optional) & !of_tap;
    make(name, device, device::SET_FEATURES, &mut [features])?;
    Ok(features | of_tap)
}

impl Pair {
    /// Whether the interface was deleted.
    fn is_gone(&self) -> bool {
        look(self.tap.file().as_fd()).1
    }

    fn start(&self, name: &str, queues: &[QueueSetup<'_>; 2]) -> Result<(), Error> {
        let Some(device) = &self.device else {
            return Err(Error::Busy { what: format!("{name} is not connected") });
        };
        for (index, queue) in (0..).zip(queues) {
            let set = |call, value| make(name, device, call, &mut [pair(index, value)]);
            let descriptor = |fd: &dyn AsRawFd| fd.as_raw_fd().cast_unsigned();
            set(device::SET_VRING_NUM, queue.size.into())?;
            set(device::SET_VRING_BASE, 0)?;
            set(device::SET_VRING_CALL, descriptor(&queue.call))?;
            set(device::SET_VRING_KICK, descriptor(&queue.kick))?;
            let mut at = [pair(index, 0), queue.descriptors, queue.used, queue.available, 0];
            make(name, device, device::SET_VRING_ADDR, &mut at)?;
            make(name, device, device::SET_BACKEND, &mut [pair(index, descriptor(self.tap.file()))])?;
        }
        Ok(())
    }

    /// Takes the TAP away from both rings. False if the kernel refused, because the process forked.
    fn stop(&self) -> bool {
        let stop = |device, index| device::make(device, device::SET_BACKEND, &mut [pair(index, NO_TAP)]);
        self.device.as_ref().is_none_or(|device| [0, 1].into_iter().all(|index| stop(device, index).is_ok()))
    }
}

impl BackEnd for VhostNet {
    fn name(&self) -> &str {
        &self.name
    }

    fn connect(&mut self, wanted: Wanted, memory: &[SharedRegion<'_>]) -> Result<u64, Error> {
        let done = self.open_all(wanted, memory);
        if done.is_err() {
            self.disconnect();
        }
        done
    }

    fn start(&mut self, number: u16, queues: [QueueSetup<'_>; 2]) -> Result<(), Error> {
        match self.pairs.iter().find(|pair| pair.number == number.into()) {
            Some(pair) => pair.start(&self.name, &queues),
            None => Err(Error::Busy { what: format!("queue {number} of {} is closed", self.name) }),
        }
    }

    fn stop(&mut self, number: u16) -> bool {
        self.pairs.iter().find(|pair| pair.number == number.into()).is_none_or(Pair::stop)
    }

    /// The queue of the TAP ends with the pair: packets of its flows go to the others.
    fn closed(&mut self, number: u16) {
        self.drops.look(); // the last one may end the interface
        self.pairs.retain(|pair| pair.number != number.into());
    }

    /// All queues end with their interface. The kernel may still be copying a packet: it is stopped first.
    fn is_gone(&mut self) -> bool {
        let gone = self.pairs.first().is_none_or(|pair| pair.device.is_none() || pair.is_gone());
        if gone {
            self.disconnect();
        }
        gone
    }

    fn disconnect(&mut self) {
        for pair in &mut self.pairs {
            pair.stop(); // a process that forked may have the descriptor, too
            pair.device = None;
        }
    }

    /// The interface counts for all of its queues: so does the first pair.
    fn dropped(&mut self, number: u16) -> u64 {
        if self.counting == number.into() { self.drops.count() } else { 0 }
    }
}

/// Makes a call; its error says what helps.
fn make(name: &str, device: &File, call: Call, words: &mut [u64]) -> Result<(), Error> {
    device::make(device, call, words).map_err(|source| failed(name, call, source))
}

fn failed(name: &str, call: Call, source: io::Error) -> Error {
    let own = match (call.name, source.raw_os_error().unwrap_or(0)) {
        ("ioctl(VHOST_SET_OWNER)", errno::ENOMEM | errno::EAGAIN) => Some(format!(
            "the kernel cannot start a thread for {name}: raise RLIMIT_NPROC or the cgroup's pids.max, \
             or use fewer queues"
        )),
        ("ioctl(VHOST_SET_MEM_TABLE)", errno::E2BIG) => Some(format!(
            "the kernel takes fewer regions of memory than {name} has: set max_mem_regions of the module \
             vhost to 2 or more"
        )),
        ("ioctl(VHOST_NET_SET_BACKEND)", errno::EINVAL | errno::EBADFD) => {
            Some(format!("the interface of {name} was deleted: create it again"))
        }
        (_, errno::EPERM) => Some(format!(
            "another process opened {name} and then forked: open it in the process that uses it. Or a \
             seccomp filter denies the call: allow it"
        )),
        (_, errno::EBUSY) => Some(format!("a queue of {name} is opened twice: give each number once")),
        _ => None,
    };
    failed_unless(own, call.name, source, format!("the kernel refused it for {name}; please report it"))
}

fn not_opened(source: io::Error) -> Error {
    let path = device::PATH;
    let own = match source.raw_os_error().unwrap_or(0) {
        errno::ENOENT | errno::ENODEV | errno::ENXIO => Some(format!(
            "this kernel has no vhost-net: load the module (modprobe vhost_net); for a container, also pass \
             the device {path}"
        )),
        errno::EACCES => Some(format!(
            "this user may not open {path}: run as root, or let a group of the user open it (chgrp kvm \
             {path} && chmod 660 {path})"
        )),
        errno::EPERM => Some(format!("the container may not use {path}: pass it as a device")),
        _ => None,
    };
    failed_unless(own, "open(/dev/vhost-net)", source, format!("{path} cannot be opened"))
}
