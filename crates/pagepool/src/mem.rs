//! Pages and their memory: arena, device memory, and the addresses that devices use.

pub(crate) mod area;
pub(crate) mod arena;
pub(crate) mod device_memory;
pub(crate) mod dma;
pub(crate) mod page;
pub(crate) mod provider;
pub(crate) mod starved;
pub(crate) mod topology;

// The providers exported here are public.
pub use arena::Arena;
pub use device_memory::DeviceMemory;
