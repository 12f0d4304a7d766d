//! Figures computed from what pools, NICs and ports have counted.

mod json_lines;
pub mod losses;
mod queue_figures;
mod queue_name;
pub(crate) mod queue_table;

pub use json_lines::{ExtraCounts, JsonLines, RunMoment};
pub use queue_name::QueueName;

use pagepool::{PoolRef, Stats};
use pagepool_net::{DeviceStats, KernelStats};
use pagepool_watch::commands::recycled_of;

use crate::report::{Verdict, grouped, object, without_zeros};
use crate::traffic::{PortSample, sum};

pub const PROOF: &str = "every buffer was returned, and no page was taken from the arena after warm-up";

/// Pages in use by the process: in bursts, queues, and other threads; not those that the NICs have.
pub fn in_use(ports: &[PortSample]) -> u64 {
    sum(ports, |at| at.pool.1.out).saturating_sub(sum(ports, |at| at.nic.in_rx + at.nic.in_tx))
}

/// What all pools have counted since the warm-up.
fn since(warm: &[PortSample], now: &[PortSample]) -> impl Iterator<Item = Stats> {
    now.iter().zip(warm).map(|(now, warm)| now.pool.0.since(&warm.pool.0))
}

/// Allocations since the warm-up that called the arena.
pub fn slow(warm: &[PortSample], now: &[PortSample]) -> u64 {
    since(warm, now).map(|moved| moved.alloc_slow + moved.alloc_slow_high_order).sum()
}

/// Which percentage of the allocated pages had been used before, since the warm-up: all except those that
/// were new to the pool. `None` before the first allocation.
pub fn recycled_percent(warm: &[PortSample], now: &[PortSample]) -> Option<f64> {
    recycled_of(&since(warm, now).collect::<Vec<_>>())
}

/// Judges the pools: after the warm-up no allocation calls the arena, and every buffer is returned. If some
/// are missing, says who holds them, in pools that record holders.
pub fn judge_pools(verdict: &mut Verdict, warm: &[PortSample], end: &[PortSample], pools: &[PoolRef]) {
    let slow = slow(warm, end);
    let kept = sum(end, |at| at.nic.kept);
    let missing: u64 = pools.iter().map(|pool| pool.inflight().total.unsigned_abs()).sum();
    let missing = missing.saturating_sub(kept);
    let what = "slow allocations after warm-up";
    verdict.count("slow_after_warmup", slow, what, "must be 0: calls to the arena");
    verdict.count("missing", missing, "buffers missing at the end", "must be 0");
    verdict.kept = kept;
    if kept > 0 {
        let why = "the back end did not answer, and may still access them; see its log";
        verdict.count("kept", kept, "buffers kept by a back end", why);
    }
    verdict.field("recycled_percent", recycled_percent(warm, end));
    let fields = |pool: &PoolRef| {
        let mut fields = object(pool.stats().fields());
        fields.insert("name".into(), pool.name().into());
        fields
    };
    verdict.field("pools", pools.iter().map(fields).collect::<Vec<_>>());
    verdict.fail_count(slow, "calls to the arena after the warm-up");
    verdict.fail_count(missing, "buffers were not returned");
    match missing {
        0 => verdict.returned = true,
        _ => crate::report::holders::add_to_verdict(verdict, pools),
    }
}

/// Descriptors and lengths that the NICs refused, and their faults.
pub fn nic_errors(ports: &[PortSample]) -> u64 {
    let of = |nic: &DeviceStats| {
        let lengths = nic.rx_bad_length + nic.rx_too_long + nic.rx_too_many_buffers + nic.tx_too_long;
        let buffers = nic.rx_bad_descriptor + nic.tx_bad_descriptor + nic.rx_unmapped + nic.tx_unmapped;
        nic.faults + lengths + buffers
    };
    sum(ports, |at| of(&at.nic))
}

/// The kernel's counts for the sockets of all ports together.
pub fn kernel(ports: &[PortSample]) -> KernelStats {
    let mut all = KernelStats::default();
    ports.iter().filter_map(|at| at.nic.kernel).for_each(|kernel| all += kernel);
    all
}

/// The buffers of all ports that are not in their pools, by where they are. Of a device without rings of the
/// kernel, those for packets count as `fill`, and those that it was given to send as `completion`.
pub fn buffer_locations(ports: &[PortSample]) -> [(&'static str, u64); 7] {
    let kernel = kernel(ports);
    let without_rings = |at: &PortSample, held: u64| if at.nic.kernel.is_none() { held } else { 0 };
    [
        ("fill", kernel.fill + sum(ports, |at| without_rings(at, at.nic.in_rx))),
        ("receive", kernel.received),
        ("transmit", kernel.transmit),
        ("completion", kernel.completed + sum(ports, |at| without_rings(at, at.nic.in_tx))),
        ("kernel", kernel.rx_in_kernel + kernel.tx_in_kernel), // taken from a ring, and on none
        ("rejected", kernel.rejected),
        ("tx_queue", sum(ports, |at| at.waiting)), // waiting here for a transmit ring
    ]
}

/// Buffer locations in words; those without buffers are left out, to fit a terminal of 80 columns.
pub fn buffers_out(ports: &[PortSample]) -> String {
    let locations = buffer_locations(ports);
    let all = locations.iter().map(|(_, count)| count).sum();
    format!("out {}: {}", grouped(all), without_zeros(&locations))
}

/// Problems that the kernel has counted so far, in words.
pub fn kernel_problems(ports: &[PortSample]) -> Option<String> {
    let kernel = kernel(ports);
    let problems = without_zeros(&[
        ("dropped", kernel.rx_dropped),
        ("receive ring full", kernel.rx_ring_full),
        ("fill ring empty", kernel.rx_fill_ring_empty),
        ("invalid", kernel.rx_invalid_descs + kernel.tx_invalid_descs),
    ]);
    (!problems.is_empty()).then(|| format!("kernel counts: {problems}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_nics_are_not_in_use() {
        let mut sample = [PortSample::default(); 2];
        (sample[0].nic.in_rx, sample[1].nic.in_tx) = (5, 7);
        sample[0].pool.1.out = 14;
        assert_eq!(in_use(&sample), 2);
    }

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
        let shown = "out 36: fill 1, receive 2, transmit 4, completion 5, kernel 9, rejected 7, tx_queue 8";
        assert_eq!(buffers_out(&[port, PortSample::default()]), shown);
        port.nic.kernel = Some(KernelStats { fill: 1024, ..KernelStats::default() });
        port.waiting = 3;
        assert_eq!(buffers_out(&[port]), "out 1,027: fill 1,024, tx_queue 3");
    }

    #[test]
    fn recycled_pages_exclude_new_ones() {
        let (warm, mut now) = ([PortSample::default(); 2], [PortSample::default(); 2]);
        assert_eq!(recycled_percent(&warm, &now), None);
        (now[0].pool.0.alloc_fast, now[1].pool.0.alloc_slow, now[1].pool.0.hold) = (96, 4, 4);
        assert_eq!((recycled_percent(&warm, &now), slow(&warm, &now)), (Some(96.0), 4));
    }
}
