//! Questions to drivers: include/uapi/linux/ethtool.h, v7.3.

// UNSAFETY: system calls are foreign functions; each wrapper says what makes its call sound.
#![expect(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

const GDRVINFO: u32 = 0x03;
const GRINGPARAM: u32 = 0x10;
const GCHANNELS: u32 = 0x3c;

/// `struct ethtool_value`.
#[repr(C)]
struct Value {
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
struct DriverInfo {
    command: u32,
    driver: [u8; 32],
    other: [u8; 160],
}

const _: () = assert!(
    size_of::<ChannelsRequest>() == 36 && size_of::<RingsRequest>() == 36 && size_of::<DriverInfo>() == 196
);

/// What `SIOCETHTOOL` understands: plain integers behind a command, which says how long they are.
///
/// # Safety
/// * The kernel writes no more than `size_of::<Self>()` bytes for every command that a value is made with.
/// * Every bit pattern is a value.
unsafe trait Command {}
// SAFETY: the commands that read and set one value are defined over this struct.
unsafe impl Command for Value {}
// SAFETY: GCHANNELS, its only command, is defined over it; the size is asserted above.
unsafe impl Command for ChannelsRequest {}
// SAFETY: GRINGPARAM, its only command, is defined over it; the size is asserted above.
unsafe impl Command for RingsRequest {}
// SAFETY: GDRVINFO, its only command, is defined over it; the size is asserted above.
unsafe impl Command for DriverInfo {}

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
    let mut request = Value { command, value };
    call(fd, link, &mut request)?;
    Ok(request.value)
}

/// How many queues there are and may be.
pub(crate) fn channels(fd: BorrowedFd<'_>, link: &str) -> io::Result<RawChannels> {
    let mut request = ChannelsRequest { command: GCHANNELS, channels: RawChannels::default() };
    call(fd, link, &mut request)?;
    Ok(request.channels)
}

/// How many slots the rings of its hardware have.
pub(crate) fn rings(fd: BorrowedFd<'_>, link: &str) -> io::Result<RawRings> {
    let mut request = RingsRequest { command: GRINGPARAM, rings: RawRings::default() };
    call(fd, link, &mut request)?;
    Ok(request.rings)
}

/// The name of the driver, with zeroes behind it.
pub(crate) fn driver(fd: BorrowedFd<'_>, link: &str) -> io::Result<[u8; 32]> {
    let mut request = DriverInfo { command: GDRVINFO, driver: [0; 32], other: [0; 160] };
    call(fd, link, &mut request)?;
    Ok(request.driver)
}

fn call<C: Command>(fd: BorrowedFd<'_>, link: &str, command: &mut C) -> io::Result<()> {
    let mut name: [libc::c_char; libc::IFNAMSIZ] = [0; libc::IFNAMSIZ];
    if link.len() >= name.len() {
        return Err(io::Error::from_raw_os_error(libc::ENODEV)); // no link has so long a name
    }
    for (to, from) in name.iter_mut().zip(link.bytes()) {
        *to = from as libc::c_char;
    }
    let data = libc::__c_anonymous_ifr_ifru { ifru_data: std::ptr::from_mut(command).cast() };
    let mut request = libc::ifreq { ifr_name: name, ifr_ifru: data };
    // SAFETY: the request lives as long as the call, and the kernel writes to what it points to as `Command` says.
    let done = unsafe { libc::ioctl(fd.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
