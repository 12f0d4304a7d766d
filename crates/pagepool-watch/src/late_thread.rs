//! What helps a thread that serves its device too slowly, on its interface.

use pagepool_link::shell_word;

/// Above this share of its time, a thread is mostly in system calls.
const MOSTLY: f64 = 0.8;
/// A driver that sets the numbers of receive and transmit queues separately.
const APART: &str = "veth";

/// What the advice depends on.
#[derive(Clone, Copy, Debug)]
pub struct LateThread<'a> {
    /// The share of its time that it spends in system calls.
    pub in_kernel: f64,
    /// The driver of its interface, if known.
    pub driver: Option<&'a str>,
    /// Whether it could share the work.
    pub queues: MoreQueues<'a>,
}

/// Whether more threads could have a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoreQueues<'a> {
    /// The interface is not known.
    Unknown,
    /// All that it can have are in use.
    No,
    /// It has this many queues, some of them unused.
    Unused(u32),
    /// Its driver uses `now` queues, and could use `most`.
    Addable {
        /// Its name.
        interface: &'a str,
        /// Queues in use.
        now: u32,
        /// The most that its driver can use.
        most: u32,
    },
}

impl<'a> MoreQueues<'a> {
    /// For an interface whose driver uses `now` queues of `most`, of which `used` have a socket.
    pub fn of(interface: &'a str, used: usize, (now, most): (u32, u32)) -> Self {
        match () {
            () if used < now as usize => Self::Unused(now),
            () if now < most => Self::Addable { interface, now, most },
            () => Self::No,
        }
    }

    /// For two interfaces whose queues are used in pairs: both must have more.
    pub fn and(self, other: Self) -> Self {
        let rank = |of: &Self| match of {
            Self::No => 0,
            Self::Addable { .. } => 1,
            Self::Unused(_) => 2,
            Self::Unknown => 3,
        };
        if rank(&other) < rank(&self) { other } else { self }
    }
}

impl LateThread<'_> {
    /// The advice, in sentences.
    pub fn remedy(&self) -> String {
        let driver = self.driver.unwrap_or("this one");
        if self.in_kernel >= MOSTLY {
            return format!(
                "The thread is in system calls for {:.0} % of its time, so more slots help only against \
                 bursts. Use a separate CPU (`--cpus`), an interface whose driver has zero copy ({driver} \
                 copies here), or fewer packets.",
                100.0 * self.in_kernel
            );
        }
        let queues = match self.queues {
            MoreQueues::Unknown => ", or more queues (`--queues`), if the interface has them".into(),
            MoreQueues::No => String::new(),
            MoreQueues::Unused(now) => format!(", or all of its {now} queues (`--queues`)"),
            MoreQueues::Addable { interface, now, most } => {
                let numbers = if driver == APART { "rx N tx N" } else { "combined N" };
                let set = format!("ethtool -L {} {numbers}", shell_word(interface));
                format!(", or more queues (it uses {now} of {most}: `{set}`)")
            }
        };
        format!(
            "For bursts, double `--ring`; for lasting load, use a separate CPU for the thread \
             (`--cpus`){queues}."
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_remedy_is_named_that_the_interface_does_not_have() {
        let remedy = |queues| LateThread { in_kernel: 0.79, driver: Some("ice"), queues }.remedy();
        let ring = "For bursts, double `--ring`; for lasting load, use a separate CPU for the thread \
                    (`--cpus`)";
        assert_eq!(remedy(MoreQueues::of("x", 1, (1, 1))), format!("{ring}."));
        let all = format!("{ring}, or all of its 2 queues (`--queues`).");
        assert_eq!(remedy(MoreQueues::of("x", 1, (2, 8))), all);
        let more = remedy(MoreQueues::of("a b", 2, (2, 8)));
        assert_eq!(more, format!("{ring}, or more queues (it uses 2 of 8: `ethtool -L 'a b' combined N`)."));
        let queues = MoreQueues::of("x", 1, (1, 2));
        let veth = LateThread { in_kernel: 0.0, driver: Some("veth"), queues };
        assert!(veth.remedy().ends_with("`ethtool -L x rx N tx N`)."), "{}", veth.remedy());
        let said = LateThread { in_kernel: 0.98, ..veth }.remedy();
        assert!(said.starts_with("The thread is in system calls for 98 % of its time"), "{said}");
        assert!(said.contains("(veth copies here)") && !said.contains("queues"), "{said}");
    }

    #[test]
    fn a_pair_of_interfaces_has_more_queues_if_both_have() {
        let more_queues = |used, both| MoreQueues::of("x", used, both);
        let (no, unused, addable) = (more_queues(1, (1, 1)), more_queues(1, (2, 2)), more_queues(1, (1, 2)));
        assert_eq!([unused.and(no), no.and(addable), unused.and(unused)], [no, no, unused]);
        assert_eq!([unused.and(addable), addable.and(unused)], [addable, addable]);
    }
}
