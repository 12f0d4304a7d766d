//! Where the buffers of all ports are that are not in their pools.

use std::fmt;

use crate::report::{grouped, without_zeros};
use crate::traffic::{PortSample, figures};

/// Buffers that are not in their pools, by where they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferLocations(pub [(&'static str, u64); 7]);

impl BufferLocations {
    pub fn of_ports(ports: &[PortSample]) -> Self {
        let kernel = figures::kernel(ports);
        Self([
            ("fill", kernel.fill),
            ("receive", kernel.received),
            ("transmit", kernel.transmit),
            ("completion", kernel.completed),
            ("kernel", kernel.rx_in_kernel + kernel.tx_in_kernel), // taken from a ring, and on none
            ("rejected", kernel.rejected),
            ("tx_queue", ports.iter().map(|at| at.waiting).sum()), // waiting here for a transmit ring
        ])
    }
}

/// In words; locations without buffers are left out, to fit a terminal of 80 columns.
impl fmt::Display for BufferLocations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = self.0.iter().map(|(_, count)| count).sum();
        write!(f, "out {}: {}", grouped(all), without_zeros(&self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagepool_net::KernelStats;

    #[test]
    fn locations_add_up() {
        let kernel = KernelStats {
            fill: 1,
            received: 2,
            rx_in_kernel: 3,
            transmit: 4,
            completed: 5,
            tx_in_kernel: 6,
            rejected: 7,
            ..KernelStats::default()
        };
        let mut port = PortSample { waiting: 8, ..PortSample::default() };
        port.nic.kernel = Some(kernel);
        let locations = BufferLocations::of_ports(&[port, PortSample::default()]);
        let shown = "out 36: fill 1, receive 2, transmit 4, completion 5, kernel 9, rejected 7, tx_queue 8";
        assert_eq!(locations.to_string(), shown);
        port.nic.kernel = Some(KernelStats { fill: 1024, ..KernelStats::default() });
        port.waiting = 3;
        assert_eq!(BufferLocations::of_ports(&[port]).to_string(), "out 1,027: fill 1,024, tx_queue 3");
    }
}
