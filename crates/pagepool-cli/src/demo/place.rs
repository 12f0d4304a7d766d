//! Where a demonstration runs, from its options.

use std::process::ExitCode;

use clap::ValueEnum;

use super::live::DemoView;
use super::memory::{self, MemoryDemo};
use super::plan::DemoAction;
use super::veth::{self, VethSetup};
use crate::report::output;
use crate::sys::{self, CapabilitySet};

/// The values of `--on`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DemoOn {
    /// veth if available, else memory; --mtu selects veth, --size and --action select memory
    Auto,
    /// Two NICs simulated in memory; requires no privileges
    Memory,
    /// A TCP transfer between two new network namespaces over AF_XDP; requires root or its capabilities
    Veth,
}

#[derive(Clone, Copy, Debug)]
pub enum DemoPlace {
    Memory(MemoryDemo),
    /// Between namespaces, with links of this MTU.
    Veth(u32),
    /// Between namespaces, or in memory if that is not available.
    VethElse(u32, MemoryDemo),
}

impl DemoPlace {
    /// Runs the demonstration there, and judges it.
    pub fn demonstrate(self, view: &DemoView<'_>) -> Result<ExitCode, String> {
        let set_up = |mtu| VethSetup::new(mtu, sys::two_cpus(), view.holders);
        match self {
            Self::Memory(demo) => memory::demonstrate(demo, view),
            Self::Veth(mtu) => veth::demonstrate(set_up(mtu)?, mtu, view),
            Self::VethElse(mtu, demo) => match set_up(mtu) {
                Ok(setup) => veth::demonstrate(setup, mtu, view),
                Err(why) => {
                    output::note(why_in_memory(&why));
                    memory::demonstrate(demo, view)
                }
            },
        }
    }
}

/// The capabilities for the demonstration between namespaces. CAP_SYS_ADMIN suffices for bpf(2).
const ON_VETH: CapabilitySet =
    CapabilitySet::SYS_ADMIN.union(CapabilitySet::NET_ADMIN).union(CapabilitySet::NET_RAW);

/// Why it runs in memory, and what veth would require.
fn why_in_memory(why: &str) -> String {
    let missing = ON_VETH - sys::effective_capabilities();
    match missing.is_empty() {
        false => format!(
            "This process lacks {}, so using in-memory NICs. For the AF_XDP demo run as root, outside a \
             restricted container.",
            sys::capability_list(missing)
        ),
        true => format!("The AF_XDP demo is not available, so using in-memory NICs: {why}"),
    }
}

const USUAL_MTU: u32 = 1500;
const USUAL_SIZE: usize = 64;

/// The place that the options select, or an error if they contradict each other.
pub fn choose(
    on: DemoOn,
    mtu: Option<u32>,
    size: Option<usize>,
    action: Option<DemoAction>,
) -> Result<DemoPlace, String> {
    let demo = MemoryDemo { action: action.unwrap_or(DemoAction::Forward), size: size.unwrap_or(USUAL_SIZE) };
    let of_memory = action.is_some() || size.is_some();
    match on {
        DemoOn::Memory | DemoOn::Auto if of_memory && mtu.is_some() => {
            Err("--mtu applies to veth only, --action and --size apply to memory only: leave one out".into())
        }
        DemoOn::Memory if mtu.is_some() => Err("--mtu applies to veth only: use --size, or --on veth".into()),
        DemoOn::Memory => Ok(DemoPlace::Memory(demo)),
        DemoOn::Auto if of_memory => Ok(DemoPlace::Memory(demo)),
        DemoOn::Veth if size.is_some() => Err(
            "--size applies to memory only; on veth the kernel's TCP chooses the size: use --mtu, or --on \
                 memory"
                .into(),
        ),
        DemoOn::Veth if demo.action != DemoAction::Forward => Err(format!(
            "--action is {}, but must be forward on veth, or it stops the TCP transfer: use --on memory",
            demo.action.name()
        )),
        DemoOn::Auto if mtu.is_none() => Ok(DemoPlace::VethElse(USUAL_MTU, demo)),
        DemoOn::Auto | DemoOn::Veth => Ok(DemoPlace::Veth(mtu.unwrap_or(USUAL_MTU))),
    }
}
