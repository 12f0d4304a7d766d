//! Calls of `/dev/vhost-net`: linux/vhost.h, linux/vhost_types.h.

// UNSAFETY: system calls; the wrapper says what makes its call sound.
#![expect(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;

use pagepool_link::sys::socket::done;

pub(in crate::vhost) const PATH: &str = "/dev/vhost-net";

/// The letter of these calls.
const VHOST: u32 = 0xaf;

/// A call: its name, its number, and the words of 64 bits that it reads or writes.
#[derive(Clone, Copy, Debug)]
pub(in crate::vhost) struct Call {
    pub(in crate::vhost) name: &'static str,
    number: libc::Ioctl,
    words: usize,
}

/// A call whose argument is some words. All arguments of these calls are whole words.
const fn call<T>(name: &'static str, number: libc::Ioctl) -> Call {
    Call { name, number, words: size_of::<T>() / size_of::<u64>() }
}

/// `struct vhost_vring_state`, `struct vhost_vring_file`; `struct vhost_memory` without its regions.
type Pair = [u32; 2];
/// `struct vhost_vring_addr`.
type Addresses = [u64; 5];

pub(in crate::vhost) const GET_FEATURES: Call =
    call::<u64>("ioctl(VHOST_GET_FEATURES)", libc::_IOR::<u64>(VHOST, 0x00));
pub(in crate::vhost) const SET_FEATURES: Call =
    call::<u64>("ioctl(VHOST_SET_FEATURES)", libc::_IOW::<u64>(VHOST, 0x00));
pub(in crate::vhost) const SET_OWNER: Call = call::<()>("ioctl(VHOST_SET_OWNER)", libc::_IO(VHOST, 0x01));
pub(in crate::vhost) const SET_MEM_TABLE: Call =
    call::<Pair>("ioctl(VHOST_SET_MEM_TABLE)", libc::_IOW::<Pair>(VHOST, 0x03));
pub(in crate::vhost) const SET_VRING_NUM: Call =
    call::<Pair>("ioctl(VHOST_SET_VRING_NUM)", libc::_IOW::<Pair>(VHOST, 0x10));
pub(in crate::vhost) const SET_VRING_ADDR: Call =
    call::<Addresses>("ioctl(VHOST_SET_VRING_ADDR)", libc::_IOW::<Addresses>(VHOST, 0x11));
pub(in crate::vhost) const SET_VRING_BASE: Call =
    call::<Pair>("ioctl(VHOST_SET_VRING_BASE)", libc::_IOW::<Pair>(VHOST, 0x12));
pub(in crate::vhost) const SET_VRING_KICK: Call =
    call::<Pair>("ioctl(VHOST_SET_VRING_KICK)", libc::_IOW::<Pair>(VHOST, 0x20));
pub(in crate::vhost) const SET_VRING_CALL: Call =
    call::<Pair>("ioctl(VHOST_SET_VRING_CALL)", libc::_IOW::<Pair>(VHOST, 0x21));
pub(in crate::vhost) const SET_BACKEND: Call =
    call::<Pair>("ioctl(VHOST_NET_SET_BACKEND)", libc::_IOW::<Pair>(VHOST, 0x30));

/// Words of a region in the table of `SET_MEM_TABLE`: `struct vhost_memory_region`.
const REGION: usize = 4;

/// Opens a device: a pair of queues.
pub(in crate::vhost) fn open() -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(PATH)
}

/// Makes a call with this argument. The regions of a memory table must be memory that is only accessed by
/// atomics, or in buffers that the device has (I4).
pub(in crate::vhost) fn make(device: &File, call: Call, words: &mut [u64]) -> io::Result<()> {
    let regions = if call.number == SET_MEM_TABLE.number { words[0] as u32 as usize } else { 0 };
    assert!(words.len() == call.words + REGION * regions, "{} with {} words", call.name, words.len());
    // SAFETY: the kernel reads or writes that many words, which live as long as the call. Later it accesses
    // only the regions: rings by atomics, and buffers that are in the rings, to which there is no reference.
    done(unsafe { libc::ioctl(device.as_raw_fd(), call.number, words.as_mut_ptr()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a C compiler computes them from the kernel's headers.
    #[test]
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    fn calls_have_the_numbers_of_the_kernels_headers() {
        let calls = [
            (GET_FEATURES, 0x8008_af00, 1),
            (SET_FEATURES, 0x4008_af00, 1),
            (SET_OWNER, 0x0000_af01, 0),
            (SET_MEM_TABLE, 0x4008_af03, 1),
            (SET_VRING_NUM, 0x4008_af10, 1),
            (SET_VRING_ADDR, 0x4028_af11, 5),
            (SET_VRING_BASE, 0x4008_af12, 1),
            (SET_VRING_KICK, 0x4008_af20, 1),
            (SET_VRING_CALL, 0x4008_af21, 1),
            (SET_BACKEND, 0x4008_af30, 1),
        ];
        for (call, number, words) in calls {
            // C libraries differ in the type.
            assert_eq!((call.number as u32, call.words), (number, words), "{}", call.name);
        }
    }
}
