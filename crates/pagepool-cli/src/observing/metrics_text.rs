//! What is observed, as metrics, with the meanings of all counters that this version knows.

use pagepool_net::{DeviceStats, ForwardStats, KernelStackStats, KernelStats, PathStats};
use pagepool_watch::{MetricsFormat, Observation, RunFolder, write_metrics};

use crate::report::output;

/// The metrics of all processes now. Warns on standard error of files that cannot be read.
pub fn metrics(folder: &RunFolder, format: MetricsFormat) -> String {
    let observation = Observation::at(folder);
    observation.errors.iter().for_each(output::warn);
    let mut text = unreadable_files(observation.errors.len());
    write_metrics(&mut text, &observation.processes, format, &meaning);
    text
}

/// The metric that counts unreadable files, in text valid in both formats. An unreadable folder counts as
/// one.
fn unreadable_files(count: usize) -> String {
    let name = "pagepool_unreadable_files";
    let help = "Files in the folder of processes that publish, or the folder itself, that cannot be read.";
    format!("# HELP {name} {help}\n# TYPE {name} gauge\n{name} {count}\n")
}

/// The meaning of a counter of a socket, a port or a stack.
fn meaning(kind: &str, counter: &str) -> Option<&'static str> {
    let tables = match kind {
        "socket" | "nic" => {
            &[(DeviceStats::NAMES, DeviceStats::DOCS), (KernelStats::NAMES, KernelStats::DOCS)]
        }
        "port" if counter == "waiting" => {
            return Some("Now: buffers of frames that wait for the transmit ring.");
        }
        "port" => &[(ForwardStats::NAMES, ForwardStats::DOCS), (PathStats::NAMES, PathStats::DOCS)],
        "stack" => &[(KernelStackStats::NAMES, KernelStackStats::DOCS)][..],
        _ => return None,
    };
    let at = |names: &[&str]| names.iter().position(|name| *name == counter);
    tables.iter().find_map(|(names, docs)| docs.get(at(names)?).copied())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_counter_that_commands_publish_has_one_meaning() {
        for (kind, lists) in [
            ("socket", [DeviceStats::NAMES, KernelStats::NAMES].concat()),
            ("port", [ForwardStats::NAMES, PathStats::NAMES, &["waiting"]].concat()),
            ("stack", KernelStackStats::NAMES.to_vec()),
        ] {
            for name in &lists {
                assert!(meaning(kind, name).is_some(), "{kind} {name}");
                assert_eq!(lists.iter().filter(|other| *other == name).count(), 1, "{kind} {name}");
            }
        }
        assert!(meaning("socket", "in_rx").is_some_and(|text| text.trim_start().starts_with("Now:")));
    }
}
