//! Where the buffers of all ports are that are not in their pools.

use serde::Serialize;

use crate::engine::port_sample::PortSample;
use crate::report::number::grouped;

/// Buffers that are not in their pools, by where they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Places {
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
    /// With us: those that wait for a transmit ring.
    pub held: u64,
}

impl Places {
    /// Where they are.
    pub fn of(ports: &[PortSample]) -> Self {
        let mut all = Self { held: ports.iter().map(|at| at.waiting).sum(), ..Self::default() };
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
        self.fill + self.receive + self.transmit + self.completion + self.kernel + self.rejected + self.held
    }

    /// In words, with the places where any are: so a line fits a terminal of 80 columns.
    pub fn said(&self) -> String {
        let places = [
            ("fill", self.fill),
            ("receive", self.receive),
            ("transmit", self.transmit),
            ("completion", self.completion),
            ("kernel", self.kernel),
            ("rejected", self.rejected),
            ("held", self.held),
        ];
        let said = places.iter().filter(|(_, count)| *count > 0);
        let said: Vec<_> = said.map(|(place, count)| format!("{place} {}", grouped(*count))).collect();
        format!("out {}: {}", grouped(self.total()), said.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagepool_net::KernelStats;

    #[test]
    fn places_add_up() {
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
        let places = Places::of(&[port, PortSample::default()]);
        assert_eq!((places.total(), places.kernel, places.held), (36, 9, 8));
        let some = Places { fill: 1024, held: 3, ..Places::default() };
        assert_eq!(some.said(), "out 1,027: fill 1,024, held 3");
    }
}
