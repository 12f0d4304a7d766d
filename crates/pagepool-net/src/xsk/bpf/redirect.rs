//! The XDP program that redirects an interface's packets to sockets, and its map of sockets.
//!
//! What   one per interface, shared by the devices of its queues. Our XDP program is attached by a link: the
//!        kernel detaches it when the last device is dropped, or when the process ends in any way. Or the map
//!        of another XDP program, of which this sets and clears entries only.
//! Who    any thread, in the interface's network namespace where it attaches.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use pagepool::Error;

use super::program;
use crate::error::parameter;
use crate::link::lookup;
use crate::sys::bpf as sys;
use crate::sys::{capability, errno};

/// Fewest entries of a map.
const QUEUES: u32 = 64;

/// Where an XDP program runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Attach {
    /// In the driver if it can, else before the stack; [`Redirect::mode`] returns the choice.
    #[default]
    Auto,
    /// In the driver, before the kernel makes an `sk_buff` of the packet.
    Native,
    /// Before the stack: any driver, slower.
    Generic,
}

/// An XDP program, or the XSKMAP of one, that redirects packets to AF_XDP sockets.
///
/// For an XDP program of your own, which calls `bpf_redirect_map` on a map, use [`over_map`](Self::over_map).
#[derive(Debug)]
pub struct Redirect {
    map: OwnedFd,
    ours: Option<Ours>,
}

/// The XDP program that was attached here.
#[derive(Debug)]
struct Ours {
    link: OwnedFd,
    mode: Attach,
    why: Option<String>,
    id: u32,
}

impl Redirect {
    /// Attaches an XDP program to an interface. It redirects the packets of each queue to the queue's socket,
    /// and passes those of queues without a socket to the stack. With `frags` it takes packets of several
    /// buffers (Linux 5.18), without which drivers refuse it where packets may be longer than a page holds.
    ///
    /// Requires `CAP_BPF` and `CAP_NET_ADMIN`. If an XDP program is attached already, the error names it.
    pub fn attach(interface: &str, how: Attach, frags: bool) -> Result<Arc<Self>, Error> {
        let index = lookup::look_up(interface)?.index;
        // More entries than queues do no harm, and `ethtool -L` may add queues later.
        let queues = lookup::channels(interface).map_or(0, |channels| channels.rx).max(QUEUES);
        let map = sys::create_socket_map(queues).map_err(|e| refused("bpf(BPF_MAP_CREATE)", e, frags))?;
        let code = program::redirect(map.as_raw_fd());
        let program = sys::load(&code, sys::Kind::Xdp { frags })
            .map_err(|e| refused("bpf(BPF_PROG_LOAD)", e, frags))?;
        let (link, mode, why) = attach_as(program.as_fd(), interface, index, how)?;
        let id = sys::program_id(program.as_fd()).unwrap_or(0);
        Ok(Arc::new(Self { map, ours: Some(Ours { link, mode, why, id }) }))
    }

    /// Uses the map of an XDP program that was attached elsewhere: a `BPF_MAP_TYPE_XSKMAP` with room for the
    /// queues. A map may serve several interfaces, where the program looks for each at keys of its own: see
    /// [`XskParams::map_key`](crate::XskParams::map_key).
    pub fn over_map(map: OwnedFd) -> Arc<Self> {
        Arc::new(Self { map, ours: None })
    }

    /// The XSKMAP. Its keys are queue numbers if the program was attached here.
    pub fn map(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }

    /// Where the attached program runs, and with [`Attach::Auto`] why it does not run in the driver.
    pub fn mode(&self) -> Option<(Attach, Option<&str>)> {
        self.ours.as_ref().map(|ours| (ours.mode, ours.why.as_deref()))
    }

    /// The id of the XDP program that was attached here, as `bpftool prog` and `ip link` show it.
    pub fn program_id(&self) -> Option<u32> {
        self.ours.as_ref().map(|ours| ours.id)
    }

    /// The key for a socket: the queue's number, unless another XDP program uses other keys.
    pub(in crate::xsk) fn key(&self, queue: u32, asked: Option<u32>) -> Result<u32, Error> {
        let key = asked.unwrap_or(queue);
        if self.ours.is_some() && key != queue {
            let must_be =
                format!("left out, or {queue}: this Redirect's program uses the queue number as key");
            return Err(parameter("map_key", key, must_be));
        }
        Ok(key)
    }

    /// Inserts a socket into the map at this key, which is the queue's number for a program attached here. A
    /// socket that is there already is not replaced. An [`XskDevice`](crate::XskDevice) does so by itself.
    /// This is for AF_XDP sockets of other crates and libraries, which must be bound to the queue; the kernel
    /// takes one out when it is closed.
    pub fn insert(&self, key: u32, socket: BorrowedFd<'_>) -> Result<(), Error> {
        sys::set_socket(self.map(), key, socket).map_err(|source| {
            if source.raw_os_error() == Some(errno::EEXIST) {
                let what = format!(
                    "key {key} of the map has a socket already: close that socket, or give each device its \
                     own map_key, which the program must use"
                );
                return Error::Busy { what };
            }
            let remedy = match source.raw_os_error() {
                Some(errno::EPERM) => capability::remedy(capability::PROGRAM),
                _ => format!(
                    "the map must be an XSKMAP with room for key {key}, and the socket an AF_XDP socket \
                     with a receive ring"
                ),
            };
            Error::System { call: "bpf(BPF_MAP_UPDATE_ELEM)", remedy, source }
        })
    }

    /// Removes a socket from the map, if it is still at this key. The kernel does so too when the socket's
    /// last descriptor is closed, which is later if a child between `fork` and `exec` has one.
    pub(in crate::xsk) fn remove(&self, key: u32, socket: BorrowedFd<'_>) {
        // A map does not tell which socket it has; but setting the same one again succeeds, and another
        // fails.
        if sys::set_socket(self.map(), key, socket).is_ok() {
            // it was there just now, so an error means that it is gone
            let _ = sys::clear_socket(self.map(), key);
        }
    }
}

impl Drop for Ours {
    /// A child between `fork` and `exec` has the link too, which would keep the XDP program attached for a
    /// moment.
    fn drop(&mut self) {
        let _ = sys::detach(self.link.as_fd()); // before Linux 5.11 closing the last descriptor detaches it
    }
}

/// The link, where the XDP program runs, and why not in the driver if that was tried.
fn attach_as(
    program: BorrowedFd<'_>,
    interface: &str,
    index: u32,
    how: Attach,
) -> Result<(OwnedFd, Attach, Option<String>), Error> {
    let native = match how {
        Attach::Generic => None,
        Attach::Native | Attach::Auto => match sys::attach(program, index, true) {
            Ok(link) => return Ok((link, Attach::Native, None)),
            // No second attempt where it would replace the reason by a less useful one.
            Err(error) if how == Attach::Native || is_final(&error) => {
                return Err(not_attached(interface, error, true));
            }
            Err(error) => Some(format!("the driver of {interface} refused it: {error}")),
        },
    };
    match sys::attach(program, index, false) {
        Ok(link) => Ok((link, Attach::Generic, native)),
        Err(error) => Err(not_attached(interface, error, false)),
    }
}

/// Whether another way to attach would be refused for the same reason.
fn is_final(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(errno::EBUSY | errno::EEXIST | errno::EPERM))
}

fn not_attached(interface: &str, source: io::Error, native: bool) -> Error {
    let call = "bpf(BPF_LINK_CREATE)";
    let remedy = match source.raw_os_error() {
        Some(errno::EBUSY | errno::EEXIST) => {
            let id = lookup::xdp_program_on(interface);
            let which = id.map_or("an XDP program".into(), |id| format!("the XDP program with id {id}"));
            let what = format!(
                "{which} is attached to {interface} (see `ip link show {interface}`, `bpftool prog`): \
                 detach it, or pass the XSKMAP that it redirects to"
            );
            return Error::Busy { what };
        }
        Some(errno::EPERM) => capability::remedy(capability::PROGRAM),
        Some(errno::EOPNOTSUPP) if native => {
            format!("the driver of {interface} does not support XDP: attach in generic mode")
        }
        Some(errno::ERANGE | errno::EINVAL) if native => format!(
            "the driver of {interface} refuses the program: the MTU, or that of a veth's other end, may be \
             too long for a program without frags, or the kernel is older than 5.9; lower the MTU, or \
             attach in generic mode"
        ),
        Some(errno::EINVAL) => "attaching a program by a BPF link requires Linux 5.9".into(),
        _ => format!("the program could not be attached to {interface}"),
    };
    Error::System { call, remedy, source }
}

fn refused(call: &'static str, source: io::Error, frags: bool) -> Error {
    let remedy = match source.raw_os_error() {
        // Before Linux 5.11 also where too little memory may be locked.
        Some(errno::EPERM) => capability::remedy(capability::PROGRAM),
        Some(errno::EINVAL) if frags => {
            "a program for packets of several buffers requires Linux 5.18 and CONFIG_XDP_SOCKETS; without \
             frags Linux 5.9 is enough"
                .into()
        }
        Some(errno::EINVAL) => "it requires Linux 5.9, with CONFIG_XDP_SOCKETS and CONFIG_BPF_SYSCALL".into(),
        Some(errno::ENOSYS) => "the kernel is built without CONFIG_BPF_SYSCALL".into(),
        _ => "the kernel refused the XDP program".into(),
    };
    Error::System { call, remedy, source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::veth;

    #[test]
    fn a_program_whose_link_a_child_has_still_is_detached() {
        if let Some(why) = veth::missing() {
            return println!("SKIP links of children: {why}");
        }
        let _veth = veth::Veth::new(1, 1500);
        let redirect = Redirect::attach("near0", Attach::Native, false).unwrap();
        let in_child = redirect.ours.as_ref().unwrap().link.try_clone().unwrap();
        drop(redirect);
        Redirect::attach("near0", Attach::Native, false).map(drop).expect("nothing is attached");
        drop(in_child);
    }
}
