//! Where a demonstration takes place: what was asked for, and whether that goes together.

use clap::ValueEnum;

use super::memory::MemoryDemo;
use super::plan::DemoAction;

/// What `--on` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DemoOn {
    /// veth where that can be done, else memory; memory too if --action or --size asks for it, and veth if --mtu does
    Auto,
    /// Two NICs made of software: no root, no kernel
    Memory,
    /// Two network namespaces of our own, and a real TCP transfer between them over AF_XDP: root, or the same capabilities
    Veth,
}

/// Where it takes place.
#[derive(Clone, Copy, Debug)]
pub enum DemoPlace {
    /// In memory.
    Memory(MemoryDemo),
    /// Between namespaces, with links of this MTU.
    Veth(u32),
    /// The same, or in memory if that cannot be done.
    VethElse(u32, MemoryDemo),
}

const USUAL_MTU: u32 = 1500;
const USUAL_SIZE: usize = 64;

/// Refuses what would do nothing.
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
            Err("--mtu is of links, which are on veth; --action and --size are of the NICs in memory: leave one out".into())
        }
        DemoOn::Memory if mtu.is_some() => {
            Err("--mtu is of links, and there are none in memory: use --size, or --on veth".into())
        }
        DemoOn::Memory => Ok(DemoPlace::Memory(demo)),
        DemoOn::Auto if of_memory => Ok(DemoPlace::Memory(demo)),
        DemoOn::Veth if size.is_some() => {
            Err("--size is of packets made here, but on veth the kernel's TCP makes them: use --mtu, or --on memory".into())
        }
        DemoOn::Veth if demo.action != DemoAction::Forward => Err(format!(
            "action {} would keep TCP's packets from the other host, so veth has only forward: use --on memory",
            demo.action.name()
        )),
        DemoOn::Auto if mtu.is_none() => Ok(DemoPlace::VethElse(USUAL_MTU, demo)),
        DemoOn::Auto | DemoOn::Veth => Ok(DemoPlace::Veth(mtu.unwrap_or(USUAL_MTU))),
    }
}
