//! smoltcp over AF_XDP, in pages of a pool. [`phy`] is the file to copy; the rest is a server over it.

pub mod afxdp;
pub mod neighbours;
pub mod nic;
pub mod own;
pub mod pattern;
pub mod phy;
pub mod server;
pub mod wire;
