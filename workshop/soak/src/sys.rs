//! The system calls of a soak: files in memory, and processes that end with their parent.

use std::ffi::CStr;
use std::fs::File;
use std::io;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Signal, set_parent_process_death_signal};

/// A file in memory, in no directory. `/proc` shows the name.
pub fn memory_file(name: &CStr) -> io::Result<File> {
    Ok(memfd_create(name, MemfdFlags::CLOEXEC)?.into())
}

/// Makes the kernel kill this process when its parent ends: more precisely, when the thread ends that started
/// it. False if the parent has ended already.
pub fn die_with(parent: u32) -> io::Result<bool> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    Ok(std::os::unix::process::parent_id() == parent)
}
