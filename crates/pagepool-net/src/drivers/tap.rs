//! `tap:NAME`: a TAP.

use std::sync::Arc;

use pagepool::{Arena, Error, MAX_FRAGS, Pool, PoolParams};
use pagepool_link::Tap;

use super::open_params::OpenParams;
use super::opened_device::OpenedDevice;
use super::queues::{Queues, open_single};
use crate::interface::lookup;
use crate::tap::{TapDevice, TapParams};

pub(super) fn open(
    taps: &[Queues<'_>],
    params: &OpenParams,
    arena: &Arc<Arena>,
) -> Result<Vec<Vec<OpenedDevice>>, Error> {
    open_single(taps, "a TAP", |name| open_one(name, params, arena))
}

fn open_one(name: &str, params: &OpenParams, arena: &Arc<Arena>) -> Result<OpenedDevice, Error> {
    let tap = match params.taps.iter().find(|tap| tap.name() == name) {
        Some(open) => open.clone(),
        None => Arc::new(Tap::open(name).map_err(lookup::system)?),
    };
    let pool = PoolParams { name: format!("{name}:0"), ..params.pool.clone() };
    let pool = Pool::new(pool, arena.clone())?.bind();
    let buffer = pool.alloc_page();
    let no_buffer = || Error::Busy { what: "the arena has no free page: raise max_bytes".into() };
    let (rx_ring, tx_ring) = (params.rx_ring, params.tx_ring);
    let max_buffers = if params.multi_buffer { MAX_FRAGS + 1 } else { 1 };
    let capacity = buffer.as_ref().ok_or_else(no_buffer)?.packet_capacity();
    drop(buffer);
    let device = TapDevice::new(tap, &TapParams { rx_ring, tx_ring, max_buffers, capacity })?;
    let (wire, socket, redirect, metadata) = (None, None, None, None);
    Ok(OpenedDevice { device: Box::new(device), pool: pool.unbind(), wire, socket, redirect, metadata })
}
