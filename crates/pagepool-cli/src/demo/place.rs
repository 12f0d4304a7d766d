//! Where a demonstration takes place: what was asked for, and whether that goes together.

use clap::ValueEnum;

use super::memory::Task;
use super::plan::DemoAction;

/// What `--on` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum On {
    /// veth where that can be done, else memory; memory too if --program or --size asks for it, and veth if --mtu does
    Auto,
    /// Two NICs made of software: no root, no kernel
    Memory,
    /// Two network namespaces of our own, and a real TCP transfer between them over AF_XDP: root, or the same capabilities
    Veth,
}

/// Where it takes place.
#[derive(Clone, Copy, Debug)]
pub enum Place {
    /// In memory.
    Memory(Task),
    /// Between namespaces, with links of this MTU.
    Veth(u32),
    /// The same, or in memory if that cannot be done.
    VethElse(u32, Task),
}

const USUAL_MTU: u32 = 1500;
const USUAL_SIZE: usize = 64;

/// Refuses what would do nothing.
pub fn choose(
    on: On,
    mtu: Option<u32>,
    size: Option<usize>,
    program: Option<DemoAction>,
) -> Result<Place, String> {
    let task = Task { program: program.unwrap_or(DemoAction::Forward), size: size.unwrap_or(USUAL_SIZE) };
    let of_memory = program.is_some() || size.is_some();
    match on {
        On::Memory | On::Auto if of_memory && mtu.is_some() => {
            Err("--mtu is of links, which are on veth; --program and --size are of the NICs in memory: leave one out".into())
        }
        On::Memory if mtu.is_some() => {
            Err("--mtu is of links, and there are none in memory: use --size, or --on veth".into())
        }
        On::Memory => Ok(Place::Memory(task)),
        On::Auto if of_memory => Ok(Place::Memory(task)),
        On::Veth if size.is_some() => {
            Err("--size is of packets made here, but on veth the kernel's TCP makes them: use --mtu, or --on memory".into())
        }
        On::Veth if task.program != DemoAction::Forward => Err(format!(
            "program {} would keep TCP's packets from the other host, so veth has only forward: use --on memory",
            task.program.name()
        )),
        On::Auto if mtu.is_none() => Ok(Place::VethElse(USUAL_MTU, task)),
        On::Auto | On::Veth => Ok(Place::Veth(mtu.unwrap_or(USUAL_MTU))),
    }
}
