//! How sockets were opened, and on what: links that are down, generic XDP, copies, offloads.

#[cfg(test)]
use crate::doctor::evidence::OffloadEvidence;
use crate::doctor::evidence::{EntryEvidence, Evidence, LinkEvidence, LinkState, ProcessEvidence};
#[cfg(test)]
use crate::doctor::rule::RuleCase;
use crate::doctor::rule::{Cost, DoctorRule, Finding};

pub const LINK_DOWN: DoctorRule = DoctorRule {
    name: "link_down",
    cost: Cost::NoPackets,
    when: "at the last look, an interface on which a process has sockets is down, has no carrier, or is gone",
    why: "Sockets on it receive no packets, and packets that they send are dropped.",
    fix: "Run `ip link set dev {of} up`.",
    verify: "`ip link show {of}` prints state UP.",
    find: link_down,
    #[cfg(test)]
    case: RuleCase {
        ill: |of| of.links[0].state = LinkState::NoCarrier,
        says: "It has no carrier. Processes with sockets on it: drop, pid 500. Some(\"Set the other end",
        well: |of| {
            of.links[0].state = LinkState::Down;
            of.processes[0].dead_for = Some(std::time::Duration::ZERO);
        },
    },
};

fn link_down(evidence: &Evidence) -> Vec<Finding> {
    let of = |link: &LinkEvidence| {
        let (seen, fix) = match link.state {
            LinkState::Up => return None,
            LinkState::Down => ("is down", None),
            LinkState::NoCarrier => (
                "has no carrier",
                Some(
                    "Set the other end of the link up (`ip link set dev NAME up`): the port at the end of \
                     the cable, the peer of a veth, or a port of a bridge or bond. `ip link` shows a lower \
                     interface after an @.",
                ),
            ),
            LinkState::Gone => {
                ("is gone", Some("Restart the program once the interface is back in its network namespace."))
            }
        };
        let has_socket = |process: &&ProcessEvidence| {
            let sockets = process.entries.iter().filter(|entry| entry.kind == "socket");
            sockets.filter_map(|socket| evidence.link_of(process, socket)).any(|of| of.index == link.index)
        };
        let of: Vec<_> = evidence.alive().filter(has_socket).map(ProcessEvidence::title).collect();
        let seen = format!("It {seen}. Processes with sockets on it: {}.", of.join("; "));
        (!of.is_empty()).then(|| Finding::of_link(link, seen, 0.0).fixed_if(fix))
    };
    evidence.links.iter().filter_map(of).collect()
}

pub const GENERIC_XDP: DoctorRule = DoctorRule {
    name: "generic_xdp",
    cost: Cost::EachPacket,
    when: "the XDP program of a socket runs in generic mode, although the driver supports native XDP \
           (reported by Linux 6.3 and later)",
    why: "In generic mode, the kernel first allocates an skb for each packet, and often copies the packet.",
    fix: "Use `--mode native` (`Attach::Native`), and an MTU that fits a page. If the driver refuses, the \
          error states why.",
    verify: "`ip link show {of}` prints xdp instead of xdpgeneric.",
    find: generic_xdp,
    #[cfg(test)]
    case: RuleCase {
        ill: |of| of.socket().set("attach", "generic"),
        says: "generic mode, although driver ice supports native mode",
        well: |of| {
            of.socket().set("attach", "generic");
            of.links[0].native = Some(false);
        },
    },
};

fn generic_xdp(evidence: &Evidence) -> Vec<Finding> {
    let is_generic = |(_, socket, link): &(&ProcessEvidence, &EntryEvidence, &LinkEvidence)| {
        socket.param("attach") == Some("generic") && link.native == Some(true)
    };
    let of = |(process, socket, link): (&ProcessEvidence, &EntryEvidence, &LinkEvidence)| {
        let why = socket.param("attach_reason").map_or(String::new(), |why| format!(" Reason: {why}."));
        let driver = driver(link);
        let seen = format!("XDP runs in generic mode, although driver {driver} supports native mode.{why}");
        Finding::of_socket(evidence, (process, socket), &link.name, seen)
    };
    evidence.receivers().filter(is_generic).map(of).collect()
}

pub const COPY_MODE: DoctorRule = DoctorRule {
    name: "copy_mode",
    cost: Cost::EachPacket,
    when: "a socket runs in copy mode, although the driver supports zero copy (reported by Linux 6.3 and \
           later). Not reported in generic mode, or on virtio_net without an IOMMU, which refuses zero copy",
    why: "The kernel copies each packet between its own memory and the socket's.",
    fix: "Use `--mode zerocopy` (`XskMode::ZeroCopy`), chunks of 4096 bytes, and an MTU that fits a chunk. \
          If the driver refuses, the error states why.",
    verify: "`pagepool show {of}`: zero_copy is true.",
    find: copy_mode,
    #[cfg(test)]
    case: RuleCase {
        ill: |of| {
            of.socket().set("zero_copy", "false");
            of.socket().set("chunk", "2048");
        },
        says: "driver ice supports zero copy. Chunks have 2048 bytes",
        well: |of| {
            of.socket().set("zero_copy", "false");
            of.links[0].driver = Some("virtio_net".into());
            of.links[0].has_iommu = false;
        },
    },
};

fn copy_mode(evidence: &Evidence) -> Vec<Finding> {
    let mut all = Vec::new();
    for (process, socket) in evidence.entries(&["socket"]) {
        let Some(link) = evidence.link_of(process, socket) else { continue };
        let copies = socket.param("zero_copy") == Some("false") && socket.param("attach") != Some("generic");
        let refuses = link.driver.as_deref() == Some("virtio_net") && !link.has_iommu;
        if !copies || refuses || link.zero_copy != Some(true) {
            continue;
        }
        let chunk = socket.param("chunk").unwrap_or("?");
        let mtu = socket.param("mtu").unwrap_or("?");
        let seen = format!(
            "The kernel copies packets, although driver {} supports zero copy. Chunks have {chunk} bytes, \
             and the MTU is {mtu}.",
            driver(link)
        );
        all.push(Finding::of_socket(evidence, (process, socket), pool_of(process, socket), seen));
    }
    all
}

pub const OFFLOADS: DoctorRule = DoctorRule {
    name: "offloads",
    cost: Cost::PacketsChanged,
    when: "one of [these offloads](operations.md#offloads) is known to change packets that a socket receives",
    why: "Packets arrive merged, or without checksums or VLAN tags. If forwarded, they are wrong or dropped.",
    fix: "Run the `ethtool -K` line in the finding, or use `--fix-offloads`.",
    verify: "`ethtool -k` for the interface in that line: the offloads are off.",
    find: offloads,
    #[cfg(test)]
    case: RuleCase {
        ill: |of| {
            let (effect, command) =
                ("packets arrive at near0 without VLAN tags", "ethtool -K near0 rxvlan off");
            let fault = OffloadEvidence { effect: effect.into(), command: Some(command.into()) };
            of.links[0].offloads.push(fault);
        },
        says: "ethtool -K near0 rxvlan off",
        well: |of| {
            of.links[0].offloads.push(OffloadEvidence::default());
            of.socket().params.retain(|(name, _)| name != "attach"); // it only sends
        },
    },
};

fn offloads(evidence: &Evidence) -> Vec<Finding> {
    let mut all = Vec::new();
    for link in &evidence.links {
        let Some((process, socket, _)) = evidence.receivers().find(|(.., of)| of.index == link.index) else {
            continue;
        };
        for fault in &link.offloads {
            let seen = format!("{}.", fault.effect.trim_end_matches('.'));
            let finding = Finding::of_socket(evidence, (process, socket), &link.name, seen);
            let run = |command: &String| format!("Run `{command}`, or use `--fix-offloads`.");
            let command = fault.command.as_ref().map(run);
            let nothing = || "These offloads cannot be turned off: receive on another interface.".to_owned();
            all.push(finding.fixed_by(command.unwrap_or_else(nothing)));
        }
    }
    all
}

/// The name by which commands show a socket's pool.
pub fn pool_of<'a>(process: &'a ProcessEvidence, socket: &EntryEvidence) -> &'a str {
    let pool = process.pools.iter().find(|pool| Some(pool.id) == socket.pool);
    pool.map_or(&process.name, |pool| &pool.name)
}

fn driver(link: &LinkEvidence) -> &str {
    link.driver.as_deref().unwrap_or("?")
}
