//! Lost packets: without a buffer, at a full ring, refused, dropped by the card, not sent, or not passed on.

use super::sockets::pool_of;
use crate::doctor::evidence::{
    EntryEvidence, Evidence, LinkEvidence, OfProcess, PoolEvidence, ProcessEvidence,
};
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
    when: "`alloc_failed` of a pool rises, or at least 0.1 % of the packets at its devices find no buffer. \
           These are `rx_no_buffer` of an in-memory NIC, or `rx_dropped` minus `rx_too_long` of a socket in \
           copy mode. Sockets with zero copy are judged only by `alloc_failed`, because the kernel counts a \
           driver's attempts instead of packets",
    why: "If a device has no buffer for a packet, the packet is lost.",
    fix: "If `alloc_failed` rises, the pool is empty: return buffers earlier, or raise the arena's \
          `max_bytes`. Otherwise the thread gives buffers to the device too late: see `rx_ring_full`.",
    verify: "`pagepool show {of} --watch`: alloc_failed, rx_no_buffer and rx_dropped stop rising.",
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
        says: "12,345 packets found no buffer (2,469 per second)",
        // A zero-copy socket: packets too long, while the driver requests buffers.
        well: |of| {
            of.socket().count("rx_fill_ring_empty", 50_000);
            of.socket().count("rx_dropped", 4000);
            of.socket().count("rx_too_long", 4000);
        },
    },
};

fn starved(evidence: &Evidence) -> Vec<Finding> {
    let of = |(process, pool): OfProcess<'_, PoolEvidence>| {
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
            (lost > 0).then(|| format!("{} packets found no buffer ({rate} per second)", grouped(lost))),
        );
        let rate = evidence.per_second(lost.max(failed));
        let finding = Finding::of_pool((process, pool), seen.join("; ") + ".", rate);
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
    let most = most.map_or(String::new(), |most| format!(" (now {} MiB)", most >> 20));
    format!(
        "Return buffers earlier, or raise the arena's `max_bytes`{most}. Pages out: {}; `pagepool show \
         {{of}}` shows where they are.",
        grouped(pool.pages.out)
    )
}

pub const RX_RING_FULL: DoctorRule = DoctorRule {
    name: "rx_ring_full",
    cost: Cost::PacketsLost,
    when: "`rx_ring_full` of a socket rises by at least 0.1 % of its packets",
    why: "If the thread receives too slowly, the receive ring fills up and the kernel drops packets.",
    fix: "For bursts, double `--ring`. For sustained load, give the thread a CPU of its own (`--cpus`), and \
          use more queues if the interface has them. If the thread spends at least 80 % of its time in \
          system calls, use an interface whose driver supports zero copy, or send fewer packets.",
    verify: "`pagepool show {of} --watch`: rx_ring_full stops rising.",
    find: rx_ring_full,
    #[cfg(test)]
    case: RuleCase {
        ill: |of| of.socket().count("rx_ring_full", 2500),
        says: "rx_ring_full rose by 2,500 (500 per second)",
        well: |of| of.socket().count("rx_ring_full", 999),
    },
};

fn rx_ring_full(evidence: &Evidence) -> Vec<Finding> {
    let full = |(process, socket): OfProcess<'_, EntryEvidence>| {
        let count = socket.moved("rx_ring_full");
        let finding = || of_entry(evidence, (process, socket), "rx_ring_full", count);
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

const FAULTY: &str = "The device or its driver is faulty. Please report this, with the output of `pagepool \
                      show --json`.";
const BUG: &str = "This is a bug in pagepool. Please report it, with the output of `pagepool show --json`.";

/// Counters of refused packets, with their fixes.
const REFUSED: [(&str, &str); 6] = [
    (
        "rx_too_long",
        "Packets are longer than a chunk. Lower the sender's MTU, or use `--chunk-size 4096` or \
         `multi_buffer` (Linux 6.6).",
    ),
    ("rx_too_many_buffers", "Raise the pool's `chains`, or use larger buffers."),
    (
        "rx_bad_length",
        "Use a `tailroom` that fits the device (`XskDevice::check_pool`). If it already fits, please report \
         this.",
    ),
    ("rx_bad_descriptor", FAULTY),
    ("rx_invalid_descs", BUG),
    ("rx_unmapped", "Add the device's domain to `PoolParams::domains`."),
];

pub const RX_REFUSED: DoctorRule = DoctorRule {
    name: "rx_refused",
    cost: Cost::PacketsLost,
    when: "one of these counters of a device rises by at least 0.1 % of its packets: `rx_too_long`, \
           `rx_too_many_buffers`, `rx_bad_length`, `rx_bad_descriptor`, `rx_invalid_descs`, `rx_unmapped`",
    why: "Packets arrived, but the device or the socket refused them.",
    fix: "Look up the counter in [operations.md](operations.md#counters-of-a-device).",
    verify: "`pagepool show {of} --watch`: the counter stops rising.",
    find: |evidence| of_sockets(evidence, &REFUSED),
    #[cfg(test)]
    case: RuleCase {
        ill: |of| of.socket().count("rx_too_long", 4000),
        says: "rx_too_long rose by 4,000 (800 per second)",
        well: |of| of.socket().count("rx_too_long", 40),
    },
};

pub const CARD_DROPPED: DoctorRule = DoctorRule {
    name: "card_dropped",
    cost: Cost::PacketsLost,
    when: "the packets for which a NIC had no room (the sum of the interface's `rx_missed_errors`, \
           `rx_fifo_errors` and `rx_over_errors`) amount to at least 0.1 % of those that its sockets \
           received. Only NICs that report their ring length (`ethtool -g`) are judged",
    why: "The hardware ring was full, or the driver had no memory, so these packets never reached XDP.",
    fix: "Use more queues (`ethtool -L {of} combined N`), and send the interrupts of each queue to a CPU of \
          its own.",
    verify: "`ip -s -s link show {of}`: missed, fifo and overrun stop rising.",
    find: card_dropped,
    #[cfg(test)]
    case: RuleCase {
        ill: |of| of.links[0].dropped = 80_000,
        says: "80,000 packets (16,000 per second). Its ring has 1,024 slots, and could have 4,096",
        well: |of| of.links[0].dropped = 999,
    },
};

fn card_dropped(evidence: &Evidence) -> Vec<Finding> {
    let of = |link: &LinkEvidence| {
        let sockets = evidence.receivers().filter(|(.., of)| of.index == link.index);
        let came = sockets.map(|(_, of, _)| of.moved("rx_packets")).fold(0, u64::saturating_add);
        let is_much = link.dropped > 0 && link.dropped.saturating_mul(ONE_IN) >= came;
        let (slots, most) = link.rx_ring.filter(|_| is_much)?;
        let rate = evidence.per_second(link.dropped);
        let seen = format!(
            "The NIC dropped {} packets ({} per second). Its ring has {} slots, and could have {}.",
            grouped(link.dropped),
            grouped(rate as u64),
            grouped(slots.into()),
            grouped(most.into())
        );
        let finding = Finding::of_link(link, seen, rate);
        let longer = format!("`ethtool -G {{of}} rx {most}` lengthens the hardware ring.");
        Some(match link.queues {
            _ if slots < most => finding.fixed_by(longer),
            Some((now, most)) if now >= most => finding.fixed_by(
                "The ring length and the number of queues are at their maximum. Send the interrupts of each \
                 queue to a CPU of its own, or send fewer packets.",
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
        "If the other end is down, set it up. Otherwise use a faster receiver or a larger queue. `tc -s \
         qdisc show` and `ip -s link` at both ends show where packets were dropped.",
    ),
    (
        "tx_overflow",
        "If the interface is down (`ip link`), set it up. Otherwise none: the interface is the bottleneck.",
    ),
    ("tx_gone", "The interface was removed: restart the program."),
    ("tx_too_long", "Set the same MTU on both interfaces."),
    ("tx_unmapped", "Send through an `Egress`, which maps or copies packets."),
    (
        "tx_bad_metadata",
        "Check `XskDevice::tx_features` first, call `TxMetadata::write` last, and use a pool with `headroom` \
         256.",
    ),
    ("tx_invalid_descs", BUG),
    ("tx_bad_descriptor", FAULTY),
    ("handoff_full", "The other port's thread is too slow. Use a longer `handoff` ring, or more CPUs."),
    ("redirect_nowhere", "Correct the `PortId` that the handler returns."),
    (
        "copy_failed",
        "The pool for copies had no page. Raise its arena's `max_bytes`, or attach the memory to the device.",
    ),
    (
        "pass_refused",
        "Give the forwarder a network stack if it has none. Otherwise the stack refused them: see \
         `stack_refused`, or it is too slow.",
    ),
];

pub const TX_LOST: DoctorRule = DoctorRule {
    name: "tx_lost",
    cost: Cost::PacketsLost,
    when: "one of these counters of undelivered packets rises by at least 0.1 % of the packets of its device \
           or port: `tx_dropped`, `tx_overflow`, `tx_gone`, `tx_too_long`, `tx_unmapped`, `tx_bad_metadata`, \
           `tx_invalid_descs`, `tx_bad_descriptor`, `handoff_full`, `redirect_nowhere`, `copy_failed`, \
           `pass_refused`",
    why: "The work on these packets is wasted.",
    fix: "Look up the counter in [operations.md](operations.md#counters-of-a-device).",
    verify: "`pagepool show {of} --watch`: the counter stops rising.",
    find: |evidence| of_sockets(evidence, &UNSENT),
    #[cfg(test)]
    case: RuleCase {
        ill: |of| of.socket().count("tx_dropped", 5000),
        says: "tx_dropped rose by 5,000",
        well: |of| of.socket().count("tx_dropped", 50),
    },
};

/// Counters of packets that a kernel's stack did not get, with their fixes.
const UNPASSED: [(&str, &str); 2] = [
    (
        "refused",
        "If the interface is down (`ip link`), set it up. Otherwise the kernel's backlog was full (the \
         second number of a line in `/proc/net/softnet_stat` rises): raise `net.core.netdev_max_backlog`.",
    ),
    ("too_long", "Lower the MTU of the interface and of the senders to 15000."),
];
const STOPPED: &str = "Remove this cause, then restart the program: a stack that stopped does not go on by \
                       itself.";

pub const STACK_REFUSED: DoctorRule = DoctorRule {
    name: "stack_refused",
    cost: Cost::PacketsLost,
    when: "`refused` or `too_long` of a kernel's stack rises by at least 0.1 % of its `passed`",
    why: "A handler passed these packets to the kernel, which did not receive them.",
    fix: "If the stack has stopped, remove the cause in the finding, and restart the program. If the \
          interface is down, set it up. Otherwise raise `net.core.netdev_max_backlog`. For `too_long`, lower \
          the MTU.",
    verify: "`pagepool show {of} --watch`: the counter stops rising.",
    find: stack_refused,
    #[cfg(test)]
    case: RuleCase {
        ill: |of| {
            of.stack().count("refused", 5000);
            of.stack().set("stopped", "a generic XDP program was attached to near0");
        },
        says: "(1,000 per second). It has stopped: a generic XDP program was attached to near0.",
        well: |of| of.stack().count("refused", 999),
    },
};

fn stack_refused(evidence: &Evidence) -> Vec<Finding> {
    let mut all = Vec::new();
    for (process, stack) in evidence.entries(&["stack"]) {
        for (name, fix) in UNPASSED {
            let count = stack.moved(name);
            if !is_much(stack, count) {
                continue;
            }
            let mut finding = of_entry(evidence, (process, stack), name, count).fixed_by(fix);
            if let Some(why) = stack.param("stopped").filter(|_| name == "refused") {
                finding.seen += &format!(" It has stopped: {why}.");
                finding = finding.fixed_by(STOPPED);
            }
            all.push(finding);
        }
    }
    all
}

fn is_much(of: &EntryEvidence, lost: u64) -> bool {
    let moved = ["rx_packets", "tx_packets", "rx", "redirect_in", "passed"].map(|name| of.moved(name));
    lost > 0 && lost.saturating_mul(ONE_IN) >= moved.into_iter().max().unwrap_or(0)
}

/// A finding for each of these counters that rose.
fn of_sockets(evidence: &Evidence, counters: &[(&str, &str)]) -> Vec<Finding> {
    let mut all = Vec::new();
    for (process, entry) in evidence.entries(&["socket", "nic", "port"]) {
        for (name, fix) in counters {
            let count = entry.moved(name);
            if is_much(entry, count) {
                let finding = of_entry(evidence, (process, entry), name, count);
                all.push(if fix.is_empty() { finding } else { finding.fixed_by(*fix) });
            }
        }
    }
    all
}

fn of_entry(evidence: &Evidence, of: OfProcess<'_, EntryEvidence>, name: &str, count: u64) -> Finding {
    let (process, entry) = of;
    let place = format!("{}, {} {}", process.title(), entry.kind, entry.name);
    let of = pool_of(process, entry);
    Finding::new(place, of, rose(evidence, name, count) + ".", evidence.per_second(count))
}

fn rose(evidence: &Evidence, name: &str, count: u64) -> String {
    let rate = grouped(evidence.per_second(count).round() as u64);
    format!("{name} rose by {} ({rate} per second)", grouped(count))
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
        assert!(fix.starts_with("The ring length and the number of queues are at"), "{fix}");
    }

    #[test]
    fn a_stack_that_refuses_has_the_fix_of_its_cause() {
        let said = |change: fn(&mut EntryEvidence)| {
            let mut evidence = healthy::evidence();
            change(evidence.stack());
            let found = diagnose(RULES, &evidence);
            assert!(found.iter().all(|of| of.rule.name == "stack_refused"), "{found:?}");
            found.iter().map(|of| format!("{}: {} {}", of.place, of.seen, of.fix)).collect::<Vec<_>>()
        };
        let backlog = said(|stack| stack.count("refused", 5000)).join("; ");
        assert!(backlog.contains("netdev_max_backlog") && !backlog.contains("stopped"), "{backlog}");
        assert!(backlog.starts_with("drop, pid 500, stack near0: refused rose by 5,000"), "{backlog}");
        let both = said(|stack| {
            stack.set("stopped", "it is elsewhere");
            stack.count("refused", 5000);
            stack.count("too_long", 5000);
        });
        assert!(both[0].ends_with(&format!("It has stopped: it is elsewhere. {STOPPED}")), "{both:?}");
        assert!(both[1].contains("MTU") && !both[1].contains("stopped"), "{both:?}");
        assert_eq!(said(|stack| stack.set("stopped", "it is elsewhere")), [""; 0], "nothing is passed");
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
