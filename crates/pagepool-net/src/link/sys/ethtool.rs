//! Questions to drivers: include/uapi/linux/ethtool.h, v7.3, of which `libc` has nothing.

// UNSAFETY: system calls are foreign functions; each wrapper says what makes its call sound.
#![expect(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use crate::sys::socket;

/// What a driver is asked (G) or told (S), with the words of the structure that the kernel defines it over,
/// the command among them. Linux: `ETHTOOL_GDRVINFO` and so on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Command<const WORDS: usize>(u32);

/// `struct ethtool_drvinfo`: 8 words of name behind the command.
pub(crate) const GDRVINFO: Command<49> = Command(0x03);
/// `struct ethtool_ringparam`.
pub(crate) const GRINGPARAM: Command<9> = Command(0x10);
/// `struct ethtool_channels`.
pub(crate) const GCHANNELS: Command<9> = Command(0x3c);
/// `struct ethtool_value`: one word behind the command.
pub(crate) const GRXCSUM: Command<2> = Command(0x14);
pub(crate) const SRXCSUM: Command<2> = Command(0x15);
pub(crate) const GTXCSUM: Command<2> = Command(0x16);
pub(crate) const STXCSUM: Command<2> = Command(0x17);
pub(crate) const GSG: Command<2> = Command(0x18);
pub(crate) const SSG: Command<2> = Command(0x19);
pub(crate) const GTSO: Command<2> = Command(0x1e);
pub(crate) const STSO: Command<2> = Command(0x1f);
pub(crate) const GGSO: Command<2> = Command(0x23);
pub(crate) const SGSO: Command<2> = Command(0x24);
pub(crate) const GFLAGS: Command<2> = Command(0x25);
pub(crate) const SFLAGS: Command<2> = Command(0x26);
pub(crate) const GGRO: Command<2> = Command(0x2b);
pub(crate) const SGRO: Command<2> = Command(0x2c);

/// Large receive offload, among the flags of `GFLAGS`.
pub(crate) const ETH_FLAG_LRO: u32 = 1 << 15;

/// A socket that questions can be asked through, in the network namespace of the calling thread.
pub(crate) fn open() -> io::Result<OwnedFd> {
    socket::open(libc::AF_INET, libc::SOCK_DGRAM, 0)
}

/// Sends a command with a word behind it, and gives the structure as it stands afterwards.
pub(crate) fn ask<const WORDS: usize>(
    fd: BorrowedFd<'_>,
    link: &str,
    command: Command<WORDS>,
    value: u32,
) -> io::Result<[u32; WORDS]> {
    let mut name: [libc::c_char; libc::IFNAMSIZ] = [0; libc::IFNAMSIZ];
    if link.len() >= name.len() {
        return Err(io::Error::from_raw_os_error(libc::ENODEV)); // no link has so long a name
    }
    for (to, from) in name.iter_mut().zip(link.bytes()) {
        *to = from as libc::c_char;
    }
    let mut words = [0; WORDS];
    words[..2].copy_from_slice(&[command.0, value]);
    let data = libc::__c_anonymous_ifr_ifru { ifru_data: (&raw mut words).cast() };
    let mut request = libc::ifreq { ifr_name: name, ifr_ifru: data };
    // SAFETY: both places live as long as the call. The command tells the kernel which structure it is, and a
    // `Command` is made above alone, with as many words as that has; any bytes are words.
    socket::done(unsafe { libc::ioctl(fd.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) })?;
    Ok(words)
}
