//! Lost packets: without a buffer, at a full ring, refused, dropped by the card, or not sent.

use crate::doctor::evidence::{EntryEvidence, Evidence, LinkEvidence, PoolEvidence, ProcessEvidence};
#[cfg(test)]
use crate::doctor::rule::RuleCase;
use crate::doctor::rule::{Cost, DoctorRule, Finding};
use crate::late_thread::{LateThread, MoreQueues};
use crate::words::grouped;

/// Entries that receive: a socket, or an in-memory NIC.
const DEVICES: [&str; 2] = ["socket", "nic"];
/// Reported from one loss in this many packets: TCP itself loses some when it probes the rate of a path.
const ONE_IN: u64 = 1000;
/// A thread that uses this share of a CPU works on the packets.
const BUSY: f64 = 0.1;

pub const STARVED: DoctorRule = DoctorRule {
    name: "starved",
    cost: Cost::PacketsLost,
    when: "`alloc_failed` of a pool rose, or a device had no buffer for at least 0.1 % of its packets: \
           `rx_no_buffer` of an in-memory NIC, or `rx_dropped` minus `rx_too_long` of a socket in copy mode \
           (with zero copy the kernel counts a driver's attempts, not packets)",
    why: "A packet for which the device has no buffer is lost.",
    fix: "If `alloc_failed` rose, the pool is empty: return buffers earlier, or raise the arena's \
          `max_bytes`. Otherwise the thread refills the ring too late: see `rx_ring_full`.",
    verify: "`pagepool show {of} --watch`: alloc_failed, rx_no_buffer and rx_dropped stand still.",
    find: starved,
    #[cfg(test)]
    case: RuleCase {
        // A socket in copy mode: 12,345 packets without a buffer, 100 too long.
        ill: |of| {
            of.socket().set("zero_copy", "false");
            of.socket().count("rx_fill_ring_empty", 12_345);
            of.socket().count("rx_dropped", 12_445);
            of.socket().count("rx_too_long", 100);
        },
        says: "12,345 packets found no buffer (2,469 a second)",
        // A zero-copy socket: packets too long, while the driver requests buffers.
        well: |of| {
            of.socket().count("rx_fill_ring_empty", 50_000);
            of.socket().count("rx_dropped", 4000);
            of.socket().count("rx_too_long", 4000);
        },
    },
};

fn starved(evidence: &Evidence) -> Vec<Finding> {
    let of = |(process, pool): (&ProcessEvidence, &PoolEvidence)| {
        let devices = process.entries.iter().filter(|entry| DEVICES.contains(&&*entry.kind));
        let below = devices.filter(|entry| entry.pool == Some(pool.id));
        let late = below.clone().find(|entry| without_buffer(entry) > 0);
        let lost = below.clone().map(without_buffer).fold(0, u64::saturating_add);
        let came = below.map(|entry| entry.moved("rx_packets")).fold(lost, u64::saturating_add);
        let failed = pool.moved.alloc_failed;
        let is_much = lost > 0 && lost.saturating_mul(ONE_IN) >= came;
        let mut seen = Vec::new();
        seen.extend((failed > 0).then(|| rose(evidence, "alloc_failed", failed)));
        let rate = grouped(evidence.per_second(lost).round() as u64);
        seen.extend(
            (lost > 0).then(|| format!("{} packets found no buffer ({rate} a second)", grouped(lost))),
        );
        let place = format!("{}, pool {}", process.title(), pool.name);
        let rate = evidence.per_second(lost.max(failed));
        let finding = Finding::new(place, &*pool.name, seen.join("; ") + ".", rate);
        let finding = match late {
            _ if failed > 0 => finding.fixed_by(no_pages(process, pool)),
            Some(device) => finding.fixed_by(too_late(evidence, process, device)),
            None => finding,
        };
        (failed > 0 || is_much).then_some(finding)
    };
    evidence.pools().filter_map(of).collect()
}

/// Packets for which a device had no buffer, as far as its counters show. A socket's `rx_no_buffer` also
/// counts those that found the receive ring full, which have their own rule.
fn without_buffer(device: &EntryEvidence) -> u64 {
    match &*device.kind {
        "nic" => device.moved("rx_no_buffer"),
        _ if device.param("zero_copy") == Some("true") => 0,
        _ => device.moved("rx_dropped").saturating_sub(device.moved("rx_too_long")),
    }
}

/// The fix for a pool that gets no page.
fn no_pages(process: &ProcessEvidence, pool: &PoolEvidence) -> String {
    let most = process.arena(pool).and_then(|arena| arena.number::<u64>("max_bytes"));
    let most = most.map_or(String::new(), |most| format!(", which is {} MiB", most >> 20));
    format!(
        "Return buffers earlier (pages out: {}; `pagepool show {{of}}` says where), or raise the arena's \
         max_bytes{most}.",
        grouped(pool.pages.out)
    )
}

pub const RX_RING_FULL: DoctorRule = DoctorRule {
    name: "rx_ring_full",
    cost: Cost::PacketsLost,
    when: "`rx_ring_full` of a socket is at least 0.1 % of its packets",
    why: "The kernel drops a packet if the receive ring is full: the thread receives too slowly.",
    fix: "For bursts, double `--ring`. For lasting load, use a separate CPU (`--cpus`), and more queues if \
          the interface has them. If the thread spends 80 % of its time in system calls, use an interface \
          whose driver has zero copy, or send fewer packets.",
    verify: "`pagepool show {of} --watch`: rx_ring_full stands still.",
    find: rx_ring_full,
    #[cfg(test)]
    case: RuleCase {
        ill: |of| of.socket().count("rx_ring_full", 2500),
        says: "rx_ring_full rose by 2,500 (500 a second)",
        well: |of| of.socket().count("rx_ring_full", 999),
    },
};

fn rx_ring_full(evidence: &Evidence) -> Vec<Finding> {
    let full = |(process, socket): (&ProcessEvidence, &EntryEvidence)| {
        let count = socket.moved("rx_ring_full");
        let finding = || of_entry(evidence, process, socket, ("rx_ring_full", count));
        is_much(socket, count).then(|| finding().fixed_by(too_late(evidence, process, socket)))
    };
    evidence.entries(&DEVICES).filter_map(full).collect()
}

/// The fix for a thread that polls too late, within what the interface offers.
fn too_late(evidence: &Evidence, process: &ProcessEvidence, device: &EntryEvidence) -> String {
    let link = evidence.link_of(process, device);
    let thread = process.thread_of(device).filter(|thread| thread.busy >= BUSY);
    let queues = match link.and_then(|link| Some((link, link.queues?))) {
        Some((link, both)) => MoreQueues::of(&link.name, sockets_on(evidence, link), both),
        None => MoreQueues::Unknown,
    };
    let in_kernel = thread.map_or(0.0, |thread| thread.in_kernel / thread.busy);
    let driver = link.and_then(|link| link.driver.as_deref());
    LateThread { in_kernel, driver, queues }.remedy()
}

fn sockets_on(evidence: &Evidence, link: &LinkEvidence) -> usize {
    evidence.receivers().filter(|(.., of)| of.index == link.index).count()
}

/// Counters of refused packets, with their fixes.
const REFUSED: [(&str, &str); 6] = [
    (
        "rx_too_long",
        "The packets are longer than a chunk: lower the MTU of the sender, or use `--chunk-size 4096` or \
         `multi_buffer` (Linux 6.6).",
    ),
    ("rx_too_many_buffers", "Raise `chains` of the pool, or use larger buffers."),
    (
        "rx_bad_length",
        "Use a `tailroom` that fits the device (`XskDevice::check_pool`); if it does, please report it.",
    ),
    ("rx_bad_descriptor", "A faulty device or driver: please report it, with `pagepool show --json`."),
    ("rx_invalid_descs", "A bug of pagepool: please report it, with `pagepool show --json`."),
    ("rx_unmapped", "Name the device's domain in `PoolParams::domains`."),
];

pub const RX_REFUSED: DoctorRule = DoctorRule {
    name: "rx_refused",
    cost: Cost::PacketsLost,
    when: "`rx_too_long`, `rx_too_many_buffers`, `rx_bad_length`, `rx_bad_descriptor`, `rx_invalid_descs` or \
           `rx_unmapped` is at least 0.1 % of the packets",
    why: "The packet arrived, but the device or the socket refused it.",
    fix: "See the counter in [operations.md](operations.md#counters-of-a-device).",
    verify: "`pagepool show {of} --watch`: the counter stands still.",
    find: |evidence| of_sockets(evidence, &REFUSED),
    #[cfg(test)]
    case: RuleCase {
        ill: |of| of.socket().count("rx_too_long", 4000),
        says: "rx_too_long rose by 4,000 (800 a second)",
        well: |of| of.socket().count("rx_too_long", 40),
    },
};

pub const CARD_DROPPED: DoctorRule = DoctorRule {
    name: "card_dropped",
    cost: Cost::PacketsLost,
    when: "the packets that a card had no room for (`rx_missed_errors`, `rx_fifo_errors` and \
           `rx_over_errors` of the interface) are at least 0.1 % of those that its sockets received; only \
           cards that report the length of their ring (`ethtool -g`)",
    why: "The hardware's ring was full, or the driver had no memory: these packets never reached XDP.",
    fix: "Use more queues (`ethtool -L {of} combined N`), with a separate CPU for the interrupts of each \
          queue.",
    verify: "`ip -s -s link show {of}`: missed, fifo and overrun stand still.",
    find: card_dropped,
    #[cfg(test)]
    case: RuleCase {
        ill: |of| of.links[0].dropped = 80_000,
        says: "80,000 packets (16,000 a second), with a ring of 1,024 slots of 4,096",
        well: |of| of.links[0].dropped = 999,
    },
};

fn card_dropped(evidence: &Evidence) -> Vec<Finding> {
    let of = |link: &LinkEvidence| {
        let sockets = evidence.receivers().filter(|(.., of)| of.index == link.index);
        let came = sockets.map(|(_, of, _)| of.moved("rx_packets")).fold(0, u64::saturating_add);
        let is_much = link.dropped > 0 && link.dropped.saturating_mul(ONE_IN) >= came;
        let (slots, most) = link.rx_ring.filter(|_| is_much)?;
        let name = &link.name;
        let rate = evidence.per_second(link.dropped);
        let seen = format!(
            "The card dropped {} packets ({} a second), with a ring of {} slots of {}.",
            grouped(link.dropped),
            grouped(rate as u64),
            grouped(slots.into()),
            grouped(most.into())
        );
        let finding = Finding::new(format!("interface {name}"), name, seen, rate);
        let longer = format!("`ethtool -G {{of}} rx {most}` lengthens the ring of the hardware.");
        Some(match link.queues {
            _ if slots < most => finding.fixed_by(longer),
            Some((now, most)) if now >= most => finding.fixed_by(
                "Its ring and its queues are at their maximum: use a separate CPU for the interrupts of each \
                 queue, or send fewer packets.",
            ),
            _ => finding,
        })
    };
    evidence.links.iter().filter_map(of).collect()
}

/// Counters of packets not sent, with their fixes.
const UNSENT: [(&str, &str); 12] = [
    (
        "tx_dropped",
        "Set the other end up if it is down; else use a faster receiver or a larger queue: `tc -s qdisc \
         show`, `ip -s link` at both ends.",
    ),
    ("tx_overflow", "None, unless the interface is down (`ip link`): it is the bottleneck."),
    ("tx_gone", "The interface was removed: restart the program."),
    ("tx_too_long", "Set the same MTU at both interfaces."),
    ("tx_unmapped", "Send through an `Egress`, which maps or copies."),
    ("tx_bad_metadata", "Check `XskDevice::tx_features`; call `TxMetadata::write` last; use `headroom` 256."),
    ("tx_invalid_descs", "A bug of pagepool: please report it, with `pagepool show --json`."),
    ("tx_bad_descriptor", "A faulty device or driver: please report it, with `pagepool show --json`."),
    ("handoff_full", "Use a longer `handoff`, or more CPUs: the receiving thread is too slow."),
    ("redirect_nowhere", "Correct the `PortId` in the handler."),
    ("copy_failed", "The pool of copies had no page: raise `max_bytes`, or attach the memory to the device."),
    ("pass_refused", "The stack is too slow, or there is none."),
];

pub const TX_LOST: DoctorRule = DoctorRule {
    name: "tx_lost",
    cost: Cost::PacketsLost,
    when: "a counter of packets that were not sent is at least 0.1 % of the packets: `tx_dropped`, \
           `tx_overflow`, `tx_gone`, `tx_too_long`, `tx_unmapped`, `tx_bad_metadata`, `tx_invalid_descs`, \
           `tx_bad_descriptor`, `handoff_full`, `redirect_nowhere`, `copy_failed`, `pass_refused`",
    why: "The work on these packets was wasted.",
    fix: "See the counter in [operations.md](operations.md#counters-of-a-device).",
    verify: "`pagepool show {of} --watch`: the counter stands still.",
    find: |evidence| of_sockets(evidence, &UNSENT),
    #[cfg(test)]
    case: RuleCase {
        ill: |of| of.socket().count("tx_dropped", 5000),
        says: "tx_dropped rose by 5,000",
        well: |of| of.socket().count("tx_dropped", 50),
    },
};

fn is_much(of: &EntryEvidence, lost: u64) -> bool {
    let moved = ["rx_packets", "tx_packets", "rx", "redirect_in"].map(|name| of.moved(name));
    lost > 0 && lost.saturating_mul(ONE_IN) >= moved.into_iter().max().unwrap_or(0)
}

/// A finding for each of these counters that rose.
fn of_sockets(evidence: &Evidence, counters: &[(&str, &str)]) -> Vec<Finding> {
    let mut all = Vec::new();
    for (process, entry) in evidence.entries(&["socket", "nic", "port"]) {
        for (name, fix) in counters {
            let count = entry.moved(name);
            if is_much(entry, count) {
                let finding = of_entry(evidence, process, entry, (name, count));
                all.push(if fix.is_empty() { finding } else { finding.fixed_by(*fix) });
            }
        }
    }
    all
}

fn of_entry(
    evidence: &Evidence,
    process: &ProcessEvidence,
    entry: &EntryEvidence,
    (name, count): (&str, u64),
) -> Finding {
    let place = format!("{}, {} {}", process.title(), entry.kind, entry.name);
    let pool = process.pools.iter().find(|pool| Some(pool.id) == entry.pool);
    let of = pool.map_or(&process.name, |pool| &pool.name);
    Finding::new(place, of, rose(evidence, name, count) + ".", evidence.per_second(count))
}

fn rose(evidence: &Evidence, name: &str, count: u64) -> String {
    let rate = grouped(evidence.per_second(count).round() as u64);
    format!("{name} rose by {} ({rate} a second)", grouped(count))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::evidence::healthy;
    use crate::doctor::rule::diagnose;
    use crate::doctor::rules::RULES;

    #[test]
    fn no_remedy_is_named_that_the_interface_does_not_have() {
        let mut evidence = healthy::evidence();
        evidence.socket().count("rx_ring_full", 2500);
        let fix = |evidence: &Evidence| rx_ring_full(evidence)[0].fix.clone().expect("one of its own");
        assert!(fix(&evidence).ends_with("or all of its 2 queues (`--queues`)."));
        evidence.links[0].queues = Some((1, 8));
        assert!(fix(&evidence).ends_with("(it uses 1 of 8: `ethtool -L near0 combined N`)."));
        evidence.links[0].queues = Some((1, 1));
        assert!(!fix(&evidence).contains("queue"), "{}", fix(&evidence));
        evidence.processes[0].threads[0].in_kernel = 0.88;
        let said = fix(&evidence);
        assert!(said.starts_with("The thread is in system calls for 98 % of its time"), "{said}");
        assert!(!said.contains("--queues") && !said.contains("ethtool -L"), "{said}");
        evidence.links[0].dropped = 80_000;
        evidence.links[0].rx_ring = Some((4096, 4096));
        let fix = card_dropped(&evidence)[0].fix.clone().expect("one of its own");
        assert!(fix.starts_with("Its ring and its queues are at their maximum"), "{fix}");
    }

    /// Packets that are too long raise a socket's `rx_dropped` in any mode, and with zero copy also the
    /// driver's attempts.
    #[test]
    fn packets_that_are_too_long_are_one_finding() {
        for (zero_copy, attempts) in [("false", 0), ("true", 50_000)] {
            let mut evidence = healthy::evidence();
            evidence.links[0].zero_copy = Some(false);
            let socket = evidence.socket();
            socket.set("zero_copy", zero_copy);
            socket.count("rx_fill_ring_empty", attempts);
            socket.count("rx_dropped", 4000);
            socket.count("rx_too_long", 4000);
            let found = diagnose(RULES, &evidence);
            let names: Vec<_> = found.iter().map(|of| of.rule.name).collect();
            assert_eq!(names, ["rx_refused"], "zero copy {zero_copy}: {found:?}");
        }
    }
}
