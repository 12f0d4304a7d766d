//! What interfaces count as sent. In copy mode the kernel completes a packet when the driver has taken it,
//! also where that drops it: into an interface without a way out, for one.

use std::fs;
use std::time::{Duration, Instant};

/// How late a driver may count what it sent, and the time between two looks.
const LATE: Duration = Duration::from_secs(2);
const NAP: Duration = Duration::from_millis(50);
/// Where the kernel lists interfaces of this thread's namespace, and the column of packets sent there.
const TABLE: &str = "/proc/thread-self/net/dev";
const SENT: usize = 9;

/// What interfaces had counted before a run.
#[derive(Debug, Default)]
pub struct SentByLinks(Vec<(String, u64)>);

impl SentByLinks {
    /// Looks before the first packet is sent.
    pub fn look<'a>(names: impl Iterator<Item = &'a str>) -> Self {
        let table = fs::read_to_string(TABLE).unwrap_or_default(); // nothing is judged then
        Self(names.filter_map(|name| Some((name.to_owned(), sent(&table, name)?))).collect())
    }

    /// Of so many packets that an interface took since then, those that it does not count as sent. It counts
    /// those of others, too, so there may be more. 0 of an interface that is gone, or counts anew.
    pub fn uncounted(&self, name: &str, taken: u64) -> u64 {
        let start = Instant::now();
        loop {
            let missing = self.missing(name, taken).unwrap_or(0);
            if missing == 0 || start.elapsed() >= LATE {
                return missing;
            }
            std::thread::sleep(NAP);
        }
    }

    fn missing(&self, name: &str, taken: u64) -> Option<u64> {
        let (_, before) = self.0.iter().find(|(of, _)| of == name)?;
        let counted = sent(&fs::read_to_string(TABLE).ok()?, name)?.checked_sub(*before)?;
        Some(taken.saturating_sub(counted))
    }
}

/// Packets that an interface has sent, of the kernel's table.
fn sent(table: &str, name: &str) -> Option<u64> {
    let row = table.lines().find_map(|line| line.trim_start().strip_prefix(name)?.strip_prefix(':'))?;
    row.split_whitespace().nth(SENT)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_has_a_column_of_packets_sent() {
        let rows = ["  lo:  1 2 3 4 5 6 7 8 9 10 11", "veth1:21 22 23 24 25 26 27 28 29 30 31"];
        let table =
            &format!("Inter-| Receive\n face |bytes\n{}\n eth1:0 0 0 0 0 0 0 0 0 77\n", rows.join("\n"));
        assert_eq!(
            (sent(table, "lo"), sent(table, "veth1"), sent(table, "eth1")),
            (Some(10), Some(30), Some(77))
        );
        assert_eq!((sent(table, "veth"), sent(table, "th1"), sent("", "lo")), (None, None, None));
    }

    #[test]
    fn what_an_interface_does_not_count_is_missing() {
        let lo = SentByLinks::look(["lo"].into_iter());
        let all = fs::read_to_string(TABLE).expect("every Linux has it");
        assert_eq!(lo.uncounted("lo", 0), 0);
        assert!(lo.missing("lo", 1 << 60).is_some_and(|missing| missing > 0), "{all}");
        assert_eq!(lo.uncounted("nope0", 5), 0);
        assert_eq!(SentByLinks(vec![("lo".into(), u64::MAX)]).uncounted("lo", 5), 0, "it counts anew");
    }
}
