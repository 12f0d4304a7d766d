//! TAPs: linux/Documentation/networking/tuntap.rst.

// UNSAFETY: system calls; each wrapper says what makes its call sound.
#![expect(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

use super::socket::done;

const DEVICE: &str = "/dev/net/tun";

/// Opens the device, without blocking.
pub(crate) fn device() -> io::Result<File> {
    OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC).open(DEVICE)
}

/// How a file is attached to a TAP.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    /// Whether each frame has a header of [`HEADER`] bytes before it.
    pub(crate) has_header: bool,
    /// Whether other files may be attached to the TAP as well.
    pub(crate) is_shared: bool,
}

/// Bytes of `struct virtio_net_hdr_v1`.
const HEADER: libc::c_int = 12;

/// Makes the file one end of the TAP with this name, in the network namespace in which it was opened. The
/// kernel makes the TAP if there is none.
pub(crate) fn attach(device: &File, name: &str, kind: Kind) -> io::Result<()> {
    let header = if kind.has_header { libc::IFF_VNET_HDR } else { 0 };
    let shared = if kind.is_shared { libc::IFF_MULTI_QUEUE } else { 0 };
    let mut request = request((libc::IFF_TAP | libc::IFF_NO_PI | header | shared) as libc::c_short);
    // The last byte stays 0: the kernel cuts a longer name.
    let (_, room) = request.ifr_name.split_last_mut().expect("a name has 16 bytes");
    for (to, from) in room.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    // SAFETY: the kernel reads and writes the request, which lives as long as the call.
    done(unsafe { libc::ioctl(device.as_raw_fd(), libc::TUNSETIFF as _, &raw mut request) })?;
    // An earlier program may have left some to the TAP, and it keeps them.
    let no_offloads: libc::c_ulong = 0;
    // SAFETY: the call takes integers.
    done(unsafe { libc::ioctl(device.as_raw_fd(), libc::TUNSETOFFLOAD as _, no_offloads) })?;
    if kind.has_header { set_header(device) } else { Ok(()) }
}

/// Turns on checksum offload and TCP segmentation offload (TSO): the file's reader does this work.
pub(crate) fn leave_offloads(device: &File) -> io::Result<()> {
    let offloads = libc::c_ulong::from(libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6);
    // SAFETY: the call takes integers.
    done(unsafe { libc::ioctl(device.as_raw_fd(), libc::TUNSETOFFLOAD as _, offloads) })
}

/// The length of the header, and that it is little-endian on every machine.
fn set_header(device: &File) -> io::Result<()> {
    let (length, yes) = (HEADER, 1 as libc::c_int);
    // SAFETY: the kernel reads an integer, which lives as long as the call.
    done(unsafe { libc::ioctl(device.as_raw_fd(), libc::TUNSETVNETHDRSZ as _, &raw const length) })?;
    // SAFETY: as above.
    done(unsafe { libc::ioctl(device.as_raw_fd(), libc::TUNSETVNETLE as _, &raw const yes) })
}

/// Whether the TAP stays when its file is closed: `ip tuntap add` made it.
pub(crate) fn is_persistent(device: &File) -> io::Result<bool> {
    let mut request = request(0);
    // SAFETY: the kernel writes the request, which lives as long as the call.
    done(unsafe { libc::ioctl(device.as_raw_fd(), libc::TUNGETIFF as _, &raw mut request) })?;
    // SAFETY: the kernel wrote the flags; all bytes of the union were initialised before.
    let flags = unsafe { request.ifr_ifru.ifru_flags };
    Ok(libc::c_int::from(flags) & libc::IFF_PERSIST != 0)
}

fn request(flags: libc::c_short) -> libc::ifreq {
    libc::ifreq {
        ifr_name: [0; libc::IFNAMSIZ],
        ifr_ifru: libc::__c_anonymous_ifr_ifru { ifru_flags: flags },
    }
}
