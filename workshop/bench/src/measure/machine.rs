//! The machine that a bench ran on: without it figures cannot be compared.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

use super::{clock, perf};
use crate::sys;

#[derive(Debug, Serialize)]
pub struct Machine {
    pub cpu: String,
    /// CPUs that this process may run on.
    pub cores: usize,
    /// The owner's CPU, then that of the returning thread.
    pub pinned_to: Vec<usize>,
    pub kernel: String,
    /// The processor's vulnerabilities, with the kernel's mitigations.
    pub mitigations: BTreeMap<String, String>,
    /// Of CPU 0.
    pub governor: Option<String>,
    pub virtual_machine: bool,
    pub transparent_hugepages: Option<String>,
    pub rustc: &'static str,
    pub profile: &'static str,
    /// The frequency of the time-stamp counter.
    pub tsc_ghz: f64,
    /// Whether core cycles and instructions can be counted.
    pub hardware_counters: bool,
    /// Why not.
    pub hardware_counters_missing: Option<String>,
    /// In UTC.
    pub date: String,
}

impl Machine {
    /// Takes 50 ms, to measure the time-stamp counter.
    pub fn ask() -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let cpus = sys::allowed_cpus();
        let missing = perf::Counters::open().missing;
        Self {
            cpu: cpu_model(&cpuinfo),
            cores: cpus.len(),
            pinned_to: cpus.into_iter().take(2).collect(),
            kernel: ["ostype", "osrelease", "version"]
                .map(|f| line(&format!("/proc/sys/kernel/{f}")))
                .join(" "),
            mitigations: mitigations(),
            governor: maybe_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            virtual_machine: cpuinfo.lines().any(|l| l.starts_with("flags") && l.contains(" hypervisor")),
            transparent_hugepages: maybe_line("/sys/kernel/mm/transparent_hugepage/enabled"),
            rustc: env!("PAGEPOOL_RUSTC"),
            profile: env!("PAGEPOOL_PROFILE"),
            tsc_ghz: (clock::ticks_per_ns() * 1e4).round() / 1e4,
            hardware_counters: missing.is_none(),
            hardware_counters_missing: missing,
            date: utc(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())),
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.virtual_machine { "virtual machine" } else { "bare metal" };
        let or_none = |text: &Option<String>| text.clone().unwrap_or_else(|| "none".into());
        writeln!(f, "cpu          {}, {} cores, {kind}, TSC {} GHz", self.cpu, self.cores, self.tsc_ghz)?;
        writeln!(f, "kernel       {}", self.kernel)?;
        let governor = or_none(&self.governor);
        writeln!(
            f,
            "governor     {governor}; transparent hugepages: {}",
            or_none(&self.transparent_hugepages)
        )?;
        match &self.hardware_counters_missing {
            None => writeln!(f, "counters     core cycles and instructions, user mode")?,
            Some(why) => writeln!(f, "counters     none ({why}): core and instr print as \"-\"")?,
        }
        writeln!(f, "rustc        {}, {}", self.rustc, self.profile)?;
        writeln!(f, "date         {}; pinned to CPUs {:?}", self.date, self.pinned_to)?;
        if self.mitigations.is_empty() {
            return writeln!(f, "mitigations  none needed");
        }
        for (at, (name, what)) in self.mitigations.iter().enumerate() {
            let head = if at == 0 { "mitigations" } else { "" };
            writeln!(f, "{}", shortened(format!("{head:<11}  {name}: {what}")))?;
        }
        Ok(())
    }
}

/// Cuts a line to 110 columns; the JSON has all of it.
fn shortened(line: String) -> String {
    if line.chars().count() <= 110 { line } else { line.chars().take(107).chain("...".chars()).collect() }
}

fn line(path: &str) -> String {
    maybe_line(path).unwrap_or_else(|| "?".into())
}

fn maybe_line(path: &str) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

/// "model name" on x86; "CPU part" on arm64, where models have no name.
fn cpu_model(cpuinfo: &str) -> String {
    let field = |name: &str| {
        let line = cpuinfo.lines().find(|line| line.starts_with(name))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    field("model name").or_else(|| field("CPU part")).unwrap_or_else(|| std::env::consts::ARCH.into())
}

/// Without "Not affected".
fn mitigations() -> BTreeMap<String, String> {
    let Ok(files) = fs::read_dir("/sys/devices/system/cpu/vulnerabilities") else { return BTreeMap::new() };
    let read = |file: fs::DirEntry| {
        let what = maybe_line(file.path().to_str()?)?;
        let affected = what != "Not affected";
        affected.then(|| (file.file_name().to_string_lossy().into_owned(), what))
    };
    files.flatten().filter_map(read).collect()
}

fn utc(seconds: u64) -> String {
    let (mut days, day_seconds) = (seconds / 86_400, seconds % 86_400);
    let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let mut year = 1970;
    while days >= 365 + u64::from(leap(year)) {
        days -= 365 + u64::from(leap(year));
        year += 1;
    }
    let february = 28 + u64::from(leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    let (hour, minute, second) = (day_seconds / 3600, day_seconds / 60 % 60, day_seconds % 60);
    format!("{year:04}-{month:02}-{:02}T{hour:02}:{minute:02}:{second:02}Z", days + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(utc(0), "1970-01-01T00:00:00Z");
        assert_eq!(utc(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(utc(1_735_689_599), "2024-12-31T23:59:59Z");
        assert_eq!(utc(1_735_689_600), "2025-01-01T00:00:00Z");
    }

    #[test]
    fn names_the_processor() {
        assert_eq!(cpu_model("processor : 0\nmodel name\t: A CPU @ 2 GHz\n"), "A CPU @ 2 GHz");
        assert_eq!(cpu_model("CPU part\t: 0xd0c\n"), "0xd0c");
        assert_eq!(cpu_model(""), std::env::consts::ARCH);
    }

    #[test]
    fn every_line_of_the_header_has_a_label_of_the_same_width() {
        let text = Machine::ask().to_string();
        assert!(text.starts_with("cpu          "));
        assert!(text.lines().all(|line| line.get(11..13) == Some("  ")), "{text}");
    }

    #[test]
    fn long_lines_are_cut_and_say_so() {
        assert_eq!(shortened("short".into()), "short");
        let cut = shortened("x".repeat(200));
        assert_eq!(cut.len(), 110);
        assert!(cut.ends_with("x..."));
    }
}
