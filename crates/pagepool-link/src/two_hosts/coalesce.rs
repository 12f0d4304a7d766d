//! How long a link gathers packets before its stack receives them.
//!
//! A NIC does not interrupt for each packet, and gathered packets are merged (GRO) before TCP sees them. A
//! veth delivers each packet at once, unless it is set to wait.

use std::fs;
use std::io;
use std::time::Duration;

use crate::sys::sysfs::{self, setting};

/// Empty polls that end the waiting.
const EMPTY_POLLS: u32 = 2;

/// Makes a link of this thread's namespace, with GRO on, gather packets for `time`; zero: not at all. Lasts
/// as long as the link.
pub(super) fn gather(link: &str, time: Duration) -> io::Result<()> {
    if time.is_zero() {
        return Ok(());
    }
    let files = sysfs::of_this_namespace()?;
    fs::write(setting(&files, link, "gro_flush_timeout"), time.as_nanos().to_string())?;
    fs::write(setting(&files, link, "napi_defer_hard_irqs"), EMPTY_POLLS.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{TwoHosts, TwoHostsParams};

    #[test]
    fn hosts_gather_packets_for_a_given_time() {
        for microseconds in [0, 20, 35] {
            let gather = Duration::from_micros(microseconds);
            let params = TwoHostsParams { gather, ..Default::default() };
            let hosts = match TwoHosts::new(&params) {
                Err(error) if error.is_permission() => {
                    return println!("SKIP hosts_gather_packets_for_a_given_time: {error}");
                }
                hosts => hosts.expect("two hosts"),
            };
            let said = hosts.b.namespace.run(|| {
                let files = sysfs::of_this_namespace()?;
                fs::read_to_string(setting(&files, "far1", "gro_flush_timeout"))
            });
            match said {
                Ok(said) => assert_eq!(said.trim(), (microseconds * 1000).to_string()),
                Err(error) => {
                    return println!("SKIP hosts_gather_packets_for_a_given_time: no sysfs: {error}");
                }
            }
        }
    }
}
