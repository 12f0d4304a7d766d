//! TAPs: linux/Documentation/networking/tuntap.rst.

// UNSAFETY: system calls; each wrapper says what makes its call sound.
#![expect(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

pub(crate) const DEVICE: &str = "/dev/net/tun";

/// Opens the device, without blocking.
pub(crate) fn device() -> io::Result<File> {
    OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC).open(DEVICE)
}

/// Creates a TAP in the network namespace of the calling thread. It ends with the file.
pub(crate) fn make(device: &File, name: &str) -> io::Result<()> {
    let mut link: [libc::c_char; libc::IFNAMSIZ] = [0; libc::IFNAMSIZ];
    if name.len() >= link.len() {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    for (to, from) in link.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    let flags = (libc::IFF_TAP | libc::IFF_NO_PI) as libc::c_short;
    let mut request =
        libc::ifreq { ifr_name: link, ifr_ifru: libc::__c_anonymous_ifr_ifru { ifru_flags: flags } };
    // SAFETY: the kernel reads and writes the request, which lives as long as the call.
    let done = unsafe { libc::ioctl(device.as_raw_fd(), libc::TUNSETIFF as _, &raw mut request) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
