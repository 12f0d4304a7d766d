//! How long a link gathers packets before its stack sees them.
//!
//! A NIC does not interrupt for each packet, and what it gathered is put together (GRO) before TCP sees it. A
//! veth hands each one on at once, unless it is told to wait a little.

use std::fs;
use std::io;
use std::time::Duration;

use crate::sys::sysfs::{self, setting};

/// Polls that find nothing before a link hands on each packet at once again.
const EMPTY_POLLS: u32 = 2;

/// Has a link of this thread's namespace that puts packets together gather them for so long. Lasts as long as
/// the link.
pub(crate) fn gather(link: &str, time: Duration) -> io::Result<()> {
    let files = sysfs::of_this_namespace()?;
    fs::write(setting(&files, link, "gro_flush_timeout"), time.as_nanos().to_string())?;
    fs::write(setting(&files, link, "napi_defer_hard_irqs"), EMPTY_POLLS.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{TwoHosts, TwoHostsParams, or_skip};

    #[test]
    fn hosts_gather_as_long_as_they_are_told() {
        for microseconds in [0, 20, 35] {
            let gather = Duration::from_micros(microseconds);
            let params = TwoHostsParams { gather, ..Default::default() };
            let Some(hosts) = or_skip("hosts_gather_as_long_as_they_are_told", TwoHosts::new(&params)) else {
                return;
            };
            let said = hosts.b.namespace.run(|| {
                let files = sysfs::of_this_namespace()?;
                fs::read_to_string(setting(&files, "far1", "gro_flush_timeout"))
            });
            match said {
                Ok(said) => assert_eq!(said.trim(), (microseconds * 1000).to_string()),
                Err(error) => {
                    return println!("SKIP hosts_gather_as_long_as_they_are_told: no sysfs: {error}");
                }
            }
        }
    }
}
