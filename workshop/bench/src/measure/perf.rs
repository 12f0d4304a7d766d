//! Counts core cycles and instructions of the calling thread in user mode, if the machine can.

use std::fs::File;
use std::io::Read;

use crate::sys::{Hardware, open_hardware_counter};

/// A virtual machine often has no hardware counters.
#[derive(Debug)]
pub struct Counters {
    files: Option<(File, File)>,
    pub missing: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reading {
    pub core_cycles: u64,
    pub instructions: u64,
}

impl Counters {
    /// Of the calling thread.
    pub fn open() -> Self {
        let cycles = open_hardware_counter(Hardware::CoreCycles);
        let both = cycles.and_then(|c| Ok((c, open_hardware_counter(Hardware::Instructions)?)));
        match both {
            Ok(files) => Self { files: Some(files), missing: None },
            Err(error) => Self { files: None, missing: Some(format!("perf_event_open: {error}")) },
        }
    }

    /// `None` without counters.
    pub fn read(&mut self) -> Option<Reading> {
        let (cycles, instructions) = self.files.as_mut()?;
        Some(Reading { core_cycles: count(cycles)?, instructions: count(instructions)? })
    }
}

fn count(file: &mut File) -> Option<u64> {
    let mut bytes = [0; 8];
    file.read_exact(&mut bytes).ok()?;
    Some(u64::from_ne_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_or_says_why_not() {
        let mut counters = Counters::open();
        match counters.read() {
            Some(reading) => assert!(reading.instructions > 0),
            None => assert!(counters.missing.is_some_and(|why| why.contains("perf_event_open"))),
        }
    }
}
