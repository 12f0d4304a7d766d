//! The output to the terminal. A terminal that accepts no output does not delay a signal that ends the
//! program.
//!
//! Why    A terminal may stop accepting output: a connection hangs, or an emulator is stopped. A blocking
//!        write then sleeps, even after a signal. Therefore the terminal is opened once more, with O_NONBLOCK
//!        (the flags of standard output are shared with the shell), and a write that must wait checks for the
//!        end.

use std::fs::File;
use std::io::{self, Write, stdout};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::sys::{self, PollFd, PollFlags, screen as screen_calls};

/// How often a waiting write checks for the end.
const LOOK: Duration = Duration::from_millis(100);
/// How long all flushes of an output together wait after that. One output draws the screen, another restores
/// the terminal.
const LAST: Duration = Duration::from_millis(300);

pub struct ScreenOutput {
    /// The terminal, opened without blocking. `None`: standard output, whose writes may block, if the terminal
    /// cannot be opened again: it belongs to another user, and does not control this process.
    file: Option<File>,
    buffer: Vec<u8>,
    /// Set when the program should end.
    end: Arc<AtomicBool>,
    /// Until when flushes wait; set by the first flush that sees `end`.
    last: Option<Instant>,
}

impl ScreenOutput {
    /// Opens the terminal of standard output. After `end`, output that it does not take is dropped.
    pub fn open(end: Arc<AtomicBool>) -> Self {
        let file = screen_calls::terminal_without_waits().ok();
        Self { file, buffer: Vec::with_capacity(1 << 16), end, last: None }
    }
}

/// Writes reach the terminal at a flush, which drops what it could not write. After `end` that is no error:
/// ratatui would print it to this very terminal.
impl Write for ScreenOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.buffer.extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let Self { file, buffer, end, last } = self;
        let written = match file {
            Some(file) => write_until(file, buffer, || is_over(end, last)),
            None => stdout().write_all(buffer).and_then(|()| stdout().flush()),
        };
        buffer.clear();
        written
    }
}

/// Whether flushes stop waiting: [`LAST`] has passed since `end` was first seen.
fn is_over(end: &AtomicBool, last: &mut Option<Instant>) -> bool {
    end.load(Ordering::Relaxed) && *last.get_or_insert_with(|| Instant::now() + LAST) < Instant::now()
}

/// Writes as much as the terminal takes before `is_over`.
fn write_until(file: &mut File, mut bytes: &[u8], mut is_over: impl FnMut() -> bool) -> io::Result<()> {
    while !bytes.is_empty() {
        match file.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(length) => bytes = &bytes[length..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if is_over() {
                    return Ok(());
                }
                sys::wait_for_any(&mut [PollFd::new(&*file, PollFlags::OUT)], LOOK)?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
