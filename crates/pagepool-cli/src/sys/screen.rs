//! The system calls of `top`: opening the terminal, and stopping as Ctrl-Z does.

// UNSAFETY: system calls; each wrapper says what makes its call sound.
#![expect(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::io::{self, stdout};
use std::mem::MaybeUninit;
use std::os::unix::fs::OpenOptionsExt;

use rustix::process::{Signal, kill_current_process_group};
use rustix::termios::tcgetsid;

/// Opens the terminal of standard output again: writes to this file do not wait; those of others still do. An
/// error if it belongs to another user and is not this process's controlling terminal.
pub fn terminal_without_waits() -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
    options.open("/proc/self/fd/1").or_else(|error| match tcgetsid(stdout()) {
        Ok(_) => options.open("/dev/tty"), // only a controlling terminal says its session
        Err(_) => Err(error),
    })
}

/// Stops this process and the rest of its group, as Ctrl-Z does, until they are continued. If no process
/// could continue them, the kernel does not stop them.
pub fn stop_group() {
    let mut before = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: zeroes are a sigaction: one with the default action, an empty mask and no flags.
    let default = unsafe { MaybeUninit::<libc::sigaction>::zeroed().assume_init() };
    // SAFETY: the kernel reads one sigaction, writes the current one to `before`, and both outlive the call.
    if unsafe { libc::sigaction(libc::SIGTSTP, &default, before.as_mut_ptr()) } != 0 {
        return; // no kernel refuses it
    }
    let _ = kill_current_process_group(Signal::TSTP); // here it stops, before the call returns
    // SAFETY: the kernel wrote it above; the handler that it names still exists.
    unsafe { libc::sigaction(libc::SIGTSTP, before.as_ptr(), std::ptr::null_mut()) };
}
