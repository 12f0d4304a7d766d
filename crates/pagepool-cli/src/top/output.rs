//! Where the screen is written to: a terminal that takes nothing delays no signal that ends the program.
//!
//! Why    A terminal may stop taking what is written: a connection that hangs, an emulator that was stopped.
//!        A write to it sleeps until it goes on, and goes on sleeping after a signal. So the terminal is
//!        opened once more, with O_NONBLOCK (the shell shares the flags of standard output), and a write that
//!        must wait looks for the end meanwhile.

use std::fs::File;
use std::io::{self, Stdout, Write, stdout};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::sys::screen as screen_calls;

/// How long it waits for the terminal before it looks whether the end was asked for.
const LOOK: Duration = Duration::from_millis(100);
/// How long it waits after that, in all flushes of an output together. The screen is drawn by one, and put
/// back by another.
const LAST: Duration = Duration::from_millis(300);

/// A terminal, and what was not written to it yet.
pub struct ScreenOutput {
    file: ScreenFile,
    buffer: Vec<u8>,
    /// Whether the end was asked for.
    end: Arc<AtomicBool>,
    /// Until when a flush may wait, once one saw that.
    last: Option<Instant>,
}

/// How it is written to.
enum ScreenFile {
    /// A write does not wait.
    Own(File),
    /// A write may: the terminal cannot be opened again. It belongs to another user, and is not the one that
    /// controls this process.
    Shared(Stdout),
}

impl ScreenOutput {
    /// The terminal that standard output is. From when on `end` is set, what it does not take is dropped.
    pub fn open(end: Arc<AtomicBool>) -> Self {
        let file = screen_calls::terminal_without_waits()
            .map_or_else(|_| ScreenFile::Shared(stdout()), ScreenFile::Own);
        Self { file, buffer: Vec::with_capacity(1 << 16), end, last: None }
    }
}

/// Nothing reaches the terminal before a flush. What a flush did not write is dropped, which is no error once
/// the end was asked for: ratatui would print it, to the same terminal.
impl Write for ScreenOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.buffer.extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let Self { file, buffer, end, last } = self;
        let written = match file {
            ScreenFile::Own(file) => write_until(file, buffer, || is_over(end, last)),
            ScreenFile::Shared(shared) => shared.write_all(buffer).and_then(|()| shared.flush()),
        };
        buffer.clear();
        written
    }
}

/// Whether a flush waits no longer: `last` is over, which is set when the end is first seen.
fn is_over(end: &AtomicBool, last: &mut Option<Instant>) -> bool {
    end.load(Ordering::Relaxed) && *last.get_or_insert_with(|| Instant::now() + LAST) < Instant::now()
}

/// Writes all, or as much as the terminal takes before waiting is over.
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
                screen_calls::wait_for_output(&*file, LOOK)?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
