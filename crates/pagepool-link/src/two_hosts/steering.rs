//! The CPU on which the stack of a link receives packets.
//!
//! A veth passes a packet to the other end's stack on the sender's CPU: a thread that forwards to a host
//! would also do that host's work, including the sending that an acknowledgement allows. Receive packet
//! steering moves this to another CPU.

use std::fs;
use std::io;

use crate::sys::sysfs::{self, setting};

/// Makes the first `queues` queues of a link of this thread's namespace pass packets to one CPU.
pub(super) fn steer(link: &str, queues: u32, cpu: u32) -> io::Result<()> {
    let files = sysfs::of_this_namespace()?;
    (0..queues).try_for_each(|queue| {
        fs::write(setting(&files, link, &format!("queues/rx-{queue}/rps_cpus")), mask_of(cpu))
    })
}

/// As the kernel writes masks: hexadecimal, in groups of 32 bits, the highest first.
fn mask_of(cpu: u32) -> String {
    format!("{:x}{}", 1u32 << (cpu % 32), ",00000000".repeat(cpu as usize / 32))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{TwoHosts, TwoHostsParams};

    #[test]
    fn masks_are_groups_of_32() {
        let masks = [0, 1, 31, 32, 65].map(mask_of);
        assert_eq!(masks, ["1", "2", "80000000", "1,00000000", "2,00000000,00000000"]);
    }

    #[test]
    fn a_host_is_steered_if_it_is_to_be() {
        let params = TwoHostsParams { queues: 2, stacks: [Some(0), None], ..Default::default() };
        let hosts = match TwoHosts::new(&params) {
            Err(error) if error.is_permission() => {
                return println!("SKIP a_host_is_steered_if_it_is_to_be: {error}");
            }
            hosts => hosts.expect("two hosts"),
        };
        if hosts.a.stack.is_none() {
            return println!("SKIP a_host_is_steered_if_it_is_to_be: the kernel steers nothing to CPU 0");
        }
        assert_eq!((hosts.a.stack, hosts.b.stack), (Some(0), None));
        for (host, link, bit) in [(&hosts.a, "far0", 1), (&hosts.b, "far1", 0)] {
            for queue in 0..2 {
                let said = host.namespace.run(move || {
                    let files = sysfs::of_this_namespace()?;
                    fs::read_to_string(setting(&files, link, &format!("queues/rx-{queue}/rps_cpus")))
                });
                let said = said.expect("it could be written").trim().replace(',', "");
                assert_eq!(u128::from_str_radix(&said, 16).ok(), Some(bit), "{link}, queue {queue}");
            }
        }
    }
}
