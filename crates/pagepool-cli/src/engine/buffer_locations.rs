//! Where the buffers of all ports are that are not in their pools.

use std::fmt;

use serde::Serialize;

use super::port_sample::PortSample;
use crate::report::number::grouped;

/// Buffers that are not in their pools, by where they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BufferLocations {
    /// On fill rings.
    pub fill: u64,
    /// On receive rings.
    pub receive: u64,
    /// On transmit rings.
    pub transmit: u64,
    /// On completion rings.
    pub completion: u64,
    /// In the kernel: taken off a ring, and on none.
    pub kernel: u64,
    /// Refused by the kernel, and kept by it until the end.
    pub rejected: u64,
    /// In this process: those that wait for a transmit ring.
    pub tx_queue: u64,
}

impl BufferLocations {
    /// Where they are.
    pub fn of(ports: &[PortSample]) -> Self {
        let mut all = Self { tx_queue: ports.iter().map(|at| at.waiting).sum(), ..Self::default() };
        for xsk in ports.iter().filter_map(|at| at.xsk) {
            all.fill += xsk.fill;
            all.receive += xsk.received;
            all.transmit += xsk.transmit;
            all.completion += xsk.completed;
            all.kernel += xsk.rx_in_kernel + xsk.tx_in_kernel;
            all.rejected += xsk.rejected;
        }
        all
    }

    /// All of them.
    pub fn total(&self) -> u64 {
        self.fill
            + self.receive
            + self.transmit
            + self.completion
            + self.kernel
            + self.rejected
            + self.tx_queue
    }
}

/// In words, without the locations where no buffer is: so a line fits a terminal of 80 columns.
impl fmt::Display for BufferLocations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let locations = [
            ("fill", self.fill),
            ("receive", self.receive),
            ("transmit", self.transmit),
            ("completion", self.completion),
            ("kernel", self.kernel),
            ("rejected", self.rejected),
            ("TX queue", self.tx_queue),
        ];
        let some = locations.iter().filter(|(_, count)| *count > 0);
        let some: Vec<_> = some.map(|(location, count)| format!("{location} {}", grouped(*count))).collect();
        write!(f, "out {}: {}", grouped(self.total()), some.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagepool_net::KernelStats;

    #[test]
    fn locations_add_up() {
        let xsk = KernelStats {
            fill: 1,
            received: 2,
            rx_in_kernel: 3,
            transmit: 4,
            completed: 5,
            tx_in_kernel: 6,
            rejected: 7,
            ..KernelStats::default()
        };
        let port = PortSample { xsk: Some(xsk), waiting: 8, ..PortSample::default() };
        let locations = BufferLocations::of(&[port, PortSample::default()]);
        assert_eq!((locations.total(), locations.kernel, locations.tx_queue), (36, 9, 8));
        let some = BufferLocations { fill: 1024, tx_queue: 3, ..BufferLocations::default() };
        assert_eq!(some.to_string(), "out 1,027: fill 1,024, TX queue 3");
    }
}
