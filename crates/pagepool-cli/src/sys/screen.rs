//! The system calls of `top`: waiting for keys and for the terminal, and stopping as Ctrl-Z does.

// UNSAFETY: system calls; each wrapper says what makes its call sound.
#![expect(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::io::{self, stdout};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Signal, kill_current_process_group};
use rustix::termios::tcgetsid;

/// Whether a file has input.
#[derive(Clone, Copy, Debug)]
pub struct InputReady {
    pub readable: bool,
    /// Nothing more will come.
    pub closed: bool,
}

/// Waits at most this long until one of these files has input, or for a signal.
pub fn wait_for_input(files: [BorrowedFd<'_>; 2], time: Duration) -> io::Result<[InputReady; 2]> {
    let mut fds = files.map(|file| PollFd::from_borrowed_fd(file, PollFlags::IN));
    let time = Timespec::try_from(time).map_err(|_| io::ErrorKind::InvalidInput)?;
    match poll(&mut fds, Some(&time)) {
        Err(Errno::INTR) => Ok([InputReady { readable: false, closed: false }; 2]),
        Err(error) => Err(error.into()),
        Ok(_) => Ok(fds.map(|fd| InputReady {
            readable: fd.revents().contains(PollFlags::IN),
            closed: fd.revents().intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL),
        })),
    }
}

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

/// Waits at most this long until a file takes more, or for a signal.
pub fn wait_for_output(file: impl AsFd, time: Duration) -> io::Result<()> {
    let time = Timespec::try_from(time).map_err(|_| io::ErrorKind::InvalidInput)?;
    match poll(&mut [PollFd::new(&file, PollFlags::OUT)], Some(&time)) {
        Err(Errno::INTR) | Ok(_) => Ok(()),
        Err(error) => Err(error.into()),
    }
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
