//! Back ends of virtio queues: one that is gone, exits again and again, or hangs and keeps buffers.

use super::sockets::pool_of;
use crate::doctor::evidence::{EntryEvidence, Evidence, OfProcess, ProcessEvidence};
#[cfg(test)]
use crate::doctor::rule::RuleCase;
use crate::doctor::rule::{Cost, DoctorRule, Finding};
use crate::words::grouped;

pub const BACK_END_LOST: DoctorRule = DoctorRule {
    name: "back_end_lost",
    cost: Cost::NoPackets,
    when: "a vhost device has no buffer on its rings at the last look, received nothing between the looks, \
           and its pool has pages: no back end is connected",
    why: "Without a back end no packets move. The device reconnects by itself.",
    fix: "Start the back end. Its log may say why it exited. For vhost_net create the TAP again (`ip tuntap \
          add`). No restart is required.",
    verify: "`pagepool show {of} --watch`: in_rx is above 0.",
    find: back_end_lost,
    #[cfg(test)]
    case: RuleCase {
        ill: |of| {
            of.vhost().now.extend([("in_rx".into(), 0), ("link_lost".into(), 3)]);
        },
        says: "It has no back end, and has lost 3 so far.",
        well: |of| {
            of.socket().now.insert("in_rx".into(), 0);
            of.vhost().now.insert("in_rx".into(), 0);
            of.pool().moved.alloc_failed = 1; // so it has no page for it
        },
    },
};

fn back_end_lost(evidence: &Evidence) -> Vec<Finding> {
    let is_lost = |(process, device): &(&ProcessEvidence, &EntryEvidence)| {
        let pool = process.pools.iter().find(|pool| Some(pool.id) == device.pool);
        let has_pages = pool.is_none_or(|pool| pool.moved.alloc_failed == 0);
        let is_open = device.now("closed_with") + device.now("kept") == 0;
        device.now("in_rx") == 0 && device.moved("rx_packets") == 0 && has_pages && is_open
    };
    let of = |(process, device): (&ProcessEvidence, &EntryEvidence)| match device.now("link_lost") {
        0 => {
            let seen = "It has no back end: none has connected so far.".into();
            of_device((process, device), seen, 0.0).fixed_by("Start the back end as a client of the socket.")
        }
        lost => {
            let seen = format!("It has no back end, and has lost {} so far.", grouped(lost));
            of_device((process, device), seen, 0.0)
        }
    };
    devices(evidence).filter(is_lost).map(of).collect()
}

pub const BACK_END_RESTARTS: DoctorRule = DoctorRule {
    name: "back_end_restarts",
    cost: Cost::PacketsLost,
    when: "`link_lost` of a vhost device rises",
    why: "The packets that a back end has when it exits are lost, and none move until the next is there.",
    fix: "Look into the back end's log: it exited, or closed the connection. If the log has no reason, it \
          may break the rules of the rings (an index that is impossible): report that to its authors.",
    verify: "`pagepool show {of} --watch`: link_lost stops rising.",
    find: back_end_restarts,
    #[cfg(test)]
    case: RuleCase {
        ill: |of| of.vhost().count("link_lost", 5),
        says: "link_lost rose by 5 (1.0 per second).",
        well: |of| {
            of.vhost().now.insert("link_lost".into(), 5); // before the first look
        },
    },
};

fn back_end_restarts(evidence: &Evidence) -> Vec<Finding> {
    let of = |(process, device): (&ProcessEvidence, &EntryEvidence)| {
        let (lost, rate) = (device.moved("link_lost"), evidence.per_second(device.moved("link_lost")));
        let seen = format!("link_lost rose by {} ({rate:.1} per second).", grouped(lost));
        (lost > 0).then(|| of_device((process, device), seen, rate))
    };
    devices(evidence).filter_map(of).collect()
}

pub const BACK_END_HUNG: DoctorRule = DoctorRule {
    name: "back_end_hung",
    cost: Cost::BuffersLost,
    when: "`kept` of a vhost device is above 0: its back end did not answer when asked to stop",
    why: "The back end may still write to these buffers, so they never return to their pool.",
    fix: "Kill the back end, and restart the program: both map this memory.",
    verify: "After the restart, `pagepool show {of}` prints no kept.",
    find: back_end_hung,
    #[cfg(test)]
    case: RuleCase {
        ill: |of| {
            of.vhost().now.insert("kept".into(), 1024);
        },
        says: "1,024 buffers were left to it.",
        well: |of| {
            of.vhost().now.insert("closed_with".into(), 1024);
        },
    },
};

fn back_end_hung(evidence: &Evidence) -> Vec<Finding> {
    let of = |(process, device): (&ProcessEvidence, &EntryEvidence)| {
        let kept = device.now("kept");
        let seen = format!("Its back end did not answer: {} buffers were left to it.", grouped(kept));
        (kept > 0).then(|| of_device((process, device), seen, 0.0))
    };
    devices(evidence).filter_map(of).collect()
}

/// Devices with a vhost back end.
fn devices(evidence: &Evidence) -> impl Iterator<Item = (&ProcessEvidence, &EntryEvidence)> {
    let has_one = |mode: &str| mode.starts_with("vhost_");
    evidence.entries(&["nic"]).filter(move |(_, device)| device.param("mode").is_some_and(has_one))
}

fn of_device((process, device): OfProcess<'_, EntryEvidence>, seen: String, rate: f64) -> Finding {
    let place = format!("{}, {}", process.title(), device.name);
    Finding::new(place, pool_of(process, device), seen, rate)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::evidence::healthy;

    #[test]
    fn a_back_end_that_never_came_is_no_loss() {
        let mut evidence = healthy::evidence();
        evidence.vhost().now.insert("in_rx".into(), 0);
        let found = back_end_lost(&evidence);
        assert_eq!((found.len(), &*found[0].of), (1, "near0"));
        assert_eq!(found[0].place, "drop, pid 500, vhost_user:/run/sw0.sock:0");
        assert!(found[0].seen.contains("none has connected") && found[0].fix.is_some(), "{found:?}");
        evidence.vhost().count("rx_packets", 1);
        assert_eq!(back_end_lost(&evidence), [], "a burst has all its buffers");
        evidence.vhost().set("mode", "tap");
        evidence.vhost().count("rx_packets", 0);
        assert_eq!(back_end_lost(&evidence), [], "it has no back end");
    }
}
