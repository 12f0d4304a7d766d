//! Questions to drivers: include/uapi/linux/ethtool.h, v7.3, of which `libc` has nothing.

// UNSAFETY: system calls are foreign functions; each wrapper says what makes its call sound.
#![expect(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// What a driver is asked (G) or told (S). Linux: `ETHTOOL_GDRVINFO` and so on.
pub(crate) mod command {
    pub(crate) const GDRVINFO: u32 = 0x03;
    pub(crate) const GRINGPARAM: u32 = 0x10;
    pub(crate) const GRXCSUM: u32 = 0x14;
    pub(crate) const SRXCSUM: u32 = 0x15;
    pub(crate) const GTXCSUM: u32 = 0x16;
    pub(crate) const STXCSUM: u32 = 0x17;
    pub(crate) const GSG: u32 = 0x18;
    pub(crate) const SSG: u32 = 0x19;
    pub(crate) const GTSO: u32 = 0x1e;
    pub(crate) const STSO: u32 = 0x1f;
    pub(crate) const GGSO: u32 = 0x23;
    pub(crate) const SGSO: u32 = 0x24;
    pub(crate) const GFLAGS: u32 = 0x25;
    pub(crate) const SFLAGS: u32 = 0x26;
    pub(crate) const GGRO: u32 = 0x2b;
    pub(crate) const SGRO: u32 = 0x2c;
    pub(crate) const GCHANNELS: u32 = 0x3c;
}

/// Large receive offload, among the flags of `GFLAGS`.
pub(crate) const ETH_FLAG_LRO: u32 = 1 << 15;

/// `struct ethtool_value`.
#[repr(C)]
struct ValueRequest {
    command: u32,
    value: u32,
}

/// `struct ethtool_channels`, but for the command in front.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct RawChannels {
    pub(crate) max_rx: u32,
    pub(crate) max_tx: u32,
    pub(crate) max_other: u32,
    pub(crate) max_combined: u32,
    pub(crate) rx: u32,
    pub(crate) tx: u32,
    pub(crate) other: u32,
    pub(crate) combined: u32,
}

#[repr(C)]
struct ChannelsRequest {
    command: u32,
    channels: RawChannels,
}

/// `struct ethtool_ringparam`, but for the command in front.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct RawRings {
    max: [u32; 4],
    pub(crate) rx: u32,
    other: [u32; 3],
}

#[repr(C)]
struct RingsRequest {
    command: u32,
    rings: RawRings,
}

/// `struct ethtool_drvinfo`.
#[repr(C)]
struct DriverRequest {
    command: u32,
    driver: [u8; 32],
    other: [u8; 160],
}

const _: () = assert!(
    size_of::<ChannelsRequest>() == 36
        && size_of::<RingsRequest>() == 36
        && size_of::<DriverRequest>() == 196
);

/// What `SIOCETHTOOL` understands: plain integers behind a command, which says how long they are.
///
/// # Safety
/// * The kernel writes no more than `size_of::<Self>()` bytes for every command that a value is made with.
/// * Every bit pattern is a value.
unsafe trait EthtoolRequest {}
// SAFETY: the commands that read and set one value are defined over this struct.
unsafe impl EthtoolRequest for ValueRequest {}
// SAFETY: GCHANNELS, its only command, is defined over it; the size is asserted above.
unsafe impl EthtoolRequest for ChannelsRequest {}
// SAFETY: GRINGPARAM, its only command, is defined over it; the size is asserted above.
unsafe impl EthtoolRequest for RingsRequest {}
// SAFETY: GDRVINFO, its only command, is defined over it; the size is asserted above.
unsafe impl EthtoolRequest for DriverRequest {}

/// A socket that questions can be asked through, in the network namespace of the calling thread.
pub(crate) fn open() -> io::Result<OwnedFd> {
    // SAFETY: the call takes three integers.
    let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call just made this descriptor, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sends a command with one value, and gives what stands there afterwards.
pub(crate) fn value(fd: BorrowedFd<'_>, link: &str, command: u32, value: u32) -> io::Result<u32> {
    let mut request = ValueRequest { command, value };
    call(fd, link, &mut request)?;
    Ok(request.value)
}

/// How many queues there are and may be.
pub(crate) fn channels(fd: BorrowedFd<'_>, link: &str) -> io::Result<RawChannels> {
    let mut request = ChannelsRequest { command: command::GCHANNELS, channels: RawChannels::default() };
    call(fd, link, &mut request)?;
    Ok(request.channels)
}

/// How many slots the rings of its hardware have.
pub(crate) fn rings(fd: BorrowedFd<'_>, link: &str) -> io::Result<RawRings> {
    let mut request = RingsRequest { command: command::GRINGPARAM, rings: RawRings::default() };
    call(fd, link, &mut request)?;
    Ok(request.rings)
}

/// The name of the driver, with zeroes behind it.
pub(crate) fn driver(fd: BorrowedFd<'_>, link: &str) -> io::Result<[u8; 32]> {
    let mut request = DriverRequest { command: command::GDRVINFO, driver: [0; 32], other: [0; 160] };
    call(fd, link, &mut request)?;
    Ok(request.driver)
}

fn call<C: EthtoolRequest>(fd: BorrowedFd<'_>, link: &str, command: &mut C) -> io::Result<()> {
    let mut name: [libc::c_char; libc::IFNAMSIZ] = [0; libc::IFNAMSIZ];
    if link.len() >= name.len() {
        return Err(io::Error::from_raw_os_error(libc::ENODEV)); // no link has so long a name
    }
    for (to, from) in name.iter_mut().zip(link.bytes()) {
        *to = from as libc::c_char;
    }
    let data = libc::__c_anonymous_ifr_ifru { ifru_data: std::ptr::from_mut(command).cast() };
    let mut request = libc::ifreq { ifr_name: name, ifr_ifru: data };
    // SAFETY: the request lives as long as the call, and the kernel writes to what it points to as
    // `EthtoolRequest` says.
    let done = unsafe { libc::ioctl(fd.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
