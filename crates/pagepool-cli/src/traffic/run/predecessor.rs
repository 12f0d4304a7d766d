//! The run that another one takes over from.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::report::output;
use crate::sys::OtherProcess;

/// How long it may take to close its sockets and to put back what it changed.
const PATIENCE: Duration = Duration::from_secs(10);
/// The time between two looks whether the user wants an end.
const LOOK: Duration = Duration::from_millis(20);

/// A run of another process.
#[derive(Debug)]
pub struct Predecessor {
    number: u32,
    process: OtherProcess,
    /// It had its time, and it was warned of.
    is_late: Cell<bool>,
}

impl Predecessor {
    /// An error if the process runs no command of ours.
    pub fn find(number: u32) -> Result<Self, String> {
        let process = OtherProcess::open(number);
        // Read after that: a process that got the number later is not the one which is told.
        let name = std::fs::read_to_string(format!("/proc/{number}/comm")).unwrap_or_default();
        match process {
            Ok(process) if name.trim_end() == env!("CARGO_BIN_NAME") => {
                Ok(Self { number, process, is_late: Cell::new(false) })
            }
            Err(error) if !name.is_empty() => {
                Err(format!("--take-over is {number}, which cannot be told to end: {error}"))
            }
            _ => {
                let found = if name.is_empty() { "there is none" } else { name.trim_end() };
                Err(format!(
                    "--take-over is {number}, but must be the process of a pagepool command: {found}"
                ))
            }
        }
    }

    /// Its process.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Has it end in order, while this run goes on opening what it needs. It may have ended by itself.
    pub fn end(&self) -> Result<(), String> {
        match self.process.terminate() {
            Err(error) if !self.has_ended() => {
                Err(format!("--take-over: process {} cannot be told to end: {error}", self.number))
            }
            _ => Ok(()),
        }
    }

    /// Waits for its end: until then it may change the interfaces, for it puts back what it had changed. Not
    /// for ever, not against the user, and not again if that was in vain.
    pub fn wait(&self, interrupted: &AtomicBool) {
        let start = Instant::now();
        while !interrupted.load(Ordering::Relaxed) && !self.is_over(start.elapsed()) {
            let _ = self.process.has_ended(LOOK); // a signal of ours ends a look, too
        }
    }

    /// Whether it has ended, or has had its time to, which is warned of. `at`: the time since it should.
    pub fn is_over(&self, at: Duration) -> bool {
        if at > PATIENCE && !self.is_late.replace(true) {
            self.warn_if_there(at);
        }
        self.is_late.get() || self.has_ended()
    }

    /// Warns if it has not ended. `at`: the time since it should.
    pub fn warn_if_there(&self, at: Duration) {
        if !self.has_ended() {
            output::warn(self.not_ended(at));
        }
    }

    fn not_ended(&self, at: Duration) -> String {
        let until_now = match at.as_secs() {
            0 => "yet".to_owned(),
            seconds => format!("in {seconds} s"),
        };
        format!("process {} has not ended {until_now}, and may change the interfaces still", self.number)
    }

    fn has_ended(&self) -> bool {
        self.process.has_ended(Duration::ZERO).unwrap_or(false)
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_process_is_told_and_waited_for() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let refused = Predecessor::find(child.id()).unwrap_err();
        assert!(refused.contains("must be the process of a pagepool command: "), "{refused}");
        let process = OtherProcess::open(child.id()).unwrap();
        let there = Predecessor { number: child.id(), process, is_late: Cell::new(false) };
        assert!(!there.process.has_ended(LOOK).unwrap());
        let start = Instant::now();
        there.wait(&AtomicBool::new(true));
        assert!(start.elapsed() < PATIENCE, "not against the user");
        assert!(!there.is_over(PATIENCE) && there.is_over(2 * PATIENCE), "not for ever");
        assert!(there.is_over(Duration::ZERO), "nor again");
        there.is_late.set(false);
        let said = [900, 1900].map(|ms| there.not_ended(Duration::from_millis(ms)));
        assert!(said[0].contains(" has not ended yet, and may"), "{said:?}");
        assert!(said[1].contains(" has not ended in 1 s, and may"), "{said:?}");
        there.end().unwrap();
        there.wait(&AtomicBool::new(false));
        assert!(there.is_over(Duration::ZERO));
        assert!(there.process.has_ended(Duration::ZERO).unwrap());
        assert!(!child.wait().unwrap().success());
        there.end().expect("it has ended, and nobody else is told who gets its number");
    }
}
