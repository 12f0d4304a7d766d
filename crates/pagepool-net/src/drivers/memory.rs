//! `memory:NAME`: an in-memory NIC.

use std::sync::Arc;

use pagepool::{Arena, Error, Pool, PoolParams};

use super::open_params::OpenParams;
use super::opened_device::OpenedDevice;
use super::queues::{Queues, open_single};
use crate::mem_nic::nic_domain::NicDomain;
use crate::mem_nic::{MemNicParams, mem_nic};

pub(super) fn open(
    nics: &[Queues<'_>],
    params: &OpenParams,
    arena: &Arc<Arena>,
) -> Result<Vec<Vec<OpenedDevice>>, Error> {
    open_single(nics, "a NIC in memory", |name| open_one(name, params, arena))
}

fn open_one(name: &str, params: &OpenParams, arena: &Arc<Arena>) -> Result<OpenedDevice, Error> {
    let defaults = MemNicParams::default();
    let name = if name.is_empty() { defaults.name } else { name.into() };
    let domain = NicDomain::new(&*name);
    let mut pool = PoolParams { name: name.clone(), ..params.pool.clone() };
    pool.domains.push(domain.clone());
    let max_buffers = if params.multi_buffer { defaults.max_buffers } else { 1 };
    let (rx_ring, tx_ring) = (params.rx_ring as usize, params.tx_ring as usize);
    let (device, port) = mem_nic(MemNicParams { name, rx_ring, tx_ring, max_buffers, ..defaults }, domain)?;
    let pool = Pool::new(pool, arena.clone())?;
    let (socket, redirect, metadata) = (None, None, None);
    Ok(OpenedDevice { device: Box::new(device), pool, wire: Some(port), socket, redirect, metadata })
}
