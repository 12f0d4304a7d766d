//! Finds the missing capability when the kernel reports only `EPERM`.
//!
//! What   the kernel names no capability. This compares those that a call requires with those of the thread
//!        (`CapEff` in `/proc/thread-self/status`).
//! Who    the error path only.

/// A capability: name and number in include/uapi/linux/capability.h, and whether CAP_SYS_ADMIN replaces it.
#[derive(Clone, Copy, Debug)]
pub struct Capability {
    name: &'static str,
    number: u32,
    or_admin: bool,
}

const NET_ADMIN: Capability = Capability { name: "CAP_NET_ADMIN", number: 12, or_admin: false };
const SYS_ADMIN: Capability = Capability { name: "CAP_SYS_ADMIN", number: 21, or_admin: false };
const BPF: Capability = Capability { name: "CAP_BPF", number: 39, or_admin: true };
const BPF_NET_ADMIN: Capability = Capability { or_admin: true, ..NET_ADMIN };
const PERFMON: Capability = Capability { name: "CAP_PERFMON", number: 38, or_admin: true };

/// For AF_XDP sockets, in the user namespace of the network namespace.
pub(crate) const SOCKET: &[Capability] = &[Capability { name: "CAP_NET_RAW", number: 13, or_admin: false }];
/// For BPF maps, programs and links, in the initial user namespace.
pub const PROGRAM: &[Capability] = &[BPF, BPF_NET_ADMIN];
/// For a BPF program that reads this process's memory.
pub const SEND_PROGRAM: &[Capability] = &[BPF, BPF_NET_ADMIN, PERFMON];
/// To open programs of other processes by id.
pub(crate) const OTHER_PROGRAMS: &[Capability] = &[SYS_ADMIN];
/// For new namespaces, and links in them.
pub(crate) const NAMESPACE: &[Capability] = &[SYS_ADMIN, NET_ADMIN];
/// For busy polling, and for changes to links.
pub const ADMIN: &[Capability] = &[NET_ADMIN];

/// Whether this thread certainly lacks one of these.
pub fn lacks(needed: &[Capability]) -> bool {
    effective().is_some_and(|effective| !missing(needed, effective).is_empty())
}

/// The remedy for a call that requires these and failed.
pub fn remedy(needed: &[Capability]) -> String {
    remedy_with(needed, effective())
}

fn remedy_with(needed: &[Capability], effective: Option<u64>) -> String {
    let list = |names: &[Capability]| {
        names.iter().map(|capability| capability.name).collect::<Vec<_>>().join(" and ")
    };
    let Some(effective) = effective else { return format!("it requires {}, or root", list(needed)) };
    let missing = missing(needed, effective);
    if missing.is_empty() {
        let all = list(needed);
        return format!(
            "this thread has {all}, but in a user namespace or under a seccomp filter: run it outside of the \
             container"
        );
    }
    let missing = list(&missing);
    format!(
        "this thread has no {missing}: run as root, or grant it (setcap, or AmbientCapabilities of systemd)"
    )
}

/// Those of `needed` that are not in `effective`.
fn missing(needed: &[Capability], effective: u64) -> Vec<Capability> {
    let has = |number: u32| effective & 1 << number != 0;
    let lacks =
        |capability: &&Capability| !(has(capability.number) || capability.or_admin && has(SYS_ADMIN.number));
    needed.iter().filter(lacks).copied().collect()
}

/// The thread's effective capabilities.
fn effective() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/thread-self/status").ok()?;
    let bits = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(bits.trim(), 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_missing_is_named() {
        let (bpf, admin, all) = (1 << 39, 1 << 12, !0);
        assert!(remedy_with(PROGRAM, Some(bpf)).starts_with("this thread has no CAP_NET_ADMIN:"));
        assert!(remedy_with(PROGRAM, Some(admin)).starts_with("this thread has no CAP_BPF:"));
        assert!(remedy_with(PROGRAM, Some(0)).starts_with("this thread has no CAP_BPF and CAP_NET_ADMIN:"));
        assert!(
            remedy_with(PROGRAM, Some(1 << SYS_ADMIN.number)).contains("outside of the container"),
            "it does instead"
        );
        assert!(remedy_with(SOCKET, Some(all)).contains("has CAP_NET_RAW, but in a user namespace"));
        assert_eq!(remedy_with(SOCKET, None), "it requires CAP_NET_RAW, or root");
        assert!(effective().is_some());
    }
}
