//! Names all missing capabilities of a command at once. The kernel would refuse one call at a time, the next
//! one only after the first is granted.

use pagepool_link::shell_word;

use crate::report::OWN_LINE;
use crate::sys::{self, CapabilitySet};
use crate::traffic::command::TrafficPlan;
use crate::traffic::options::Mode;
use crate::traffic::sockets::{Interface, SocketSizes, locked_bytes, with_sockets};

/// All that commands on interfaces ever require, except to run beside others. The message grants all of them.
const USUAL: CapabilitySet = CapabilitySet::NET_RAW
    .union(CapabilitySet::NET_ADMIN)
    .union(CapabilitySet::BPF)
    .union(CapabilitySet::IPC_LOCK)
    .union(CapabilitySet::PERFMON);
/// The capabilities to attach an XDP program.
const PROGRAM: CapabilitySet = CapabilitySet::BPF.union(CapabilitySet::NET_ADMIN);
/// The capabilities that CAP_SYS_ADMIN includes, for bpf(2).
const OF_BPF: CapabilitySet =
    CapabilitySet::NET_ADMIN.union(CapabilitySet::BPF).union(CapabilitySet::PERFMON);

/// An error that names all capabilities that this thread lacks for the plan.
pub fn check(plan: &TrafficPlan<'_>, interfaces: &[Interface], sizes: &SocketSizes) -> Result<(), String> {
    if with_sockets(interfaces).is_empty() {
        return Ok(()); // the TAPs are open
    }
    let bytes = locked_bytes(interfaces, sizes);
    let (limit, effective) = (sys::lockable_bytes(), sys::effective_capabilities());
    let missing = required(plan, limit.is_some_and(|limit| bytes > limit), effective) - effective;
    if missing.is_empty() {
        return Ok(());
    }
    let (locks, mebibytes) = (missing.contains(CapabilitySet::IPC_LOCK), bytes.div_ceil(1 << 20));
    let locked = format!(" (it locks {mebibytes} MiB of memory, more than `ulimit -Hl` allows)");
    let locked = if locks { &*locked } else { "" };
    let grant = sys::capability_names(USUAL | missing).join(",").to_lowercase();
    Err(format!(
        "{} requires {}, which this process does not have{locked}. Run it as root, or grant \
         them:{OWN_LINE}setcap {grant}+ep {}",
        plan.name,
        sys::capability_list(missing),
        shell_word(&std::env::current_exe().unwrap_or_default().to_string_lossy())
    ))
}

/// The capabilities that the plan requires, of a thread with these effective ones. `locks`: more memory than
/// the limit. A match may also require CAP_PERFMON, on older kernels: their verifier then refuses it.
fn required(plan: &TrafficPlan<'_>, locks: bool, effective: CapabilitySet) -> CapabilitySet {
    // For bpf(2), CAP_SYS_ADMIN includes them; other calls still require them.
    let of_bpf = if effective.contains(CapabilitySet::SYS_ADMIN) { CapabilitySet::empty() } else { OF_BPF };
    let attaches = plan.receive.is_some_and(|receive| receive.map.is_empty());
    let sends_by_batch = plan.tx_mode == Some(pagepool_net::TxMode::BpfBatch);
    let needs = [
        (CapabilitySet::NET_RAW, true),
        (CapabilitySet::IPC_LOCK, locks),
        // Zero copy sends only with an XDP program.
        (PROGRAM & of_bpf, attaches || plan.options.mode == Mode::Zerocopy),
        (CapabilitySet::NET_ADMIN, plan.changes_settings() || plan.options.busy_poll.is_some()),
        (of_bpf, sends_by_batch),
        (of_bpf | CapabilitySet::SYS_ADMIN, plan.is_beside()),
    ];
    let needed = needs.iter().filter(|(_, needed)| *needed).map(|(capabilities, _)| *capabilities);
    needed.fold(CapabilitySet::empty(), CapabilitySet::union)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::traffic::options::{ReceiveOptions, TrafficOptions};

    #[derive(clap::Parser)]
    #[command(disable_help_flag = true)]
    struct RightsTest {
        #[command(flatten)]
        receive: ReceiveOptions,
        #[command(flatten)]
        options: TrafficOptions,
    }

    /// The capabilities that a command with these options lacks, in a thread with these effective ones.
    fn lacking(arguments: &[&str], effective: CapabilitySet) -> CapabilitySet {
        let parsed = RightsTest::parse_from([&["drop"], arguments].concat());
        let plan = TrafficPlan::new("drop", vec!["eth0"], &parsed.options);
        let plan = TrafficPlan { receive: Some(&parsed.receive), ..plan };
        required(&plan, false, effective) - effective
    }

    #[test]
    fn cap_sys_admin_replaces_bpf_capabilities_and_no_others() {
        let [raw, bpf, admin] = [CapabilitySet::NET_RAW, CapabilitySet::BPF, CapabilitySet::SYS_ADMIN];
        assert_eq!(lacking(&[], CapabilitySet::empty()), raw | PROGRAM);
        assert_eq!(lacking(&[], admin), raw);
        assert_eq!(lacking(&["--busy-poll"], admin | raw), CapabilitySet::NET_ADMIN);
        assert_eq!(
            lacking(&["--beside"], bpf | raw),
            admin | CapabilitySet::NET_ADMIN | CapabilitySet::PERFMON
        );
    }
}
