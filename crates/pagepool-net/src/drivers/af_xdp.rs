//! `af_xdp:INTERFACE`: AF_XDP sockets. Those that are opened together share one UMEM, so that what one
//! receives the others send without a copy.

use std::sync::Arc;

use pagepool::{Arena, Error, Pool, PoolParams};

use super::open_params::{OpenParams, XdpProgram};
use super::opened_device::{OpenedDevice, SocketInfo};
use super::queues::Queues;
use crate::device::Device;
use crate::xsk::{Redirect, Umem, UmemParams, XDP_HEADROOM, XskDevice, XskParams};

/// The whole arena becomes a UMEM, so it must be committed (`commit_all`).
pub(super) fn open(
    interfaces: &[Queues<'_>],
    params: &OpenParams,
    arena: &Arc<Arena>,
) -> Result<Vec<Vec<OpenedDevice>>, Error> {
    let umem = UmemParams { multi_buffer: params.multi_buffer, ..params.af_xdp.umem.clone() };
    let umem = Umem::new(umem, &**arena)?;
    interfaces.iter().map(|interface| open_queues(interface, params, &umem, arena)).collect()
}

fn open_queues(
    interface: &Queues<'_>,
    params: &OpenParams,
    umem: &Arc<Umem>,
    arena: &Arc<Arena>,
) -> Result<Vec<OpenedDevice>, Error> {
    let name = interface.argument;
    let redirect = match &params.af_xdp.program {
        XdpProgram::Attach(mode) => Some(Redirect::attach(name, *mode, params.multi_buffer)?),
        XdpProgram::Attached(redirect) => Some(redirect.clone()),
        XdpProgram::None => None,
    };
    let socket = |&queue: &u32| {
        let socket = XskParams {
            interface: name.into(),
            queue,
            rx_ring: params.rx_ring,
            tx_ring: params.tx_ring,
            redirect: redirect.clone(),
            tx_mode: params.af_xdp.tx_mode,
            busy_limit: params.af_xdp.busy_limit,
            busy_poll: params.af_xdp.busy_poll,
            ..XskParams::default()
        };
        XskDevice::open(socket, umem)
    };
    let sockets: Vec<_> = interface.numbers.iter().map(socket).collect::<Result<_, _>>()?;
    sockets.into_iter().map(|device| with_pool(device, params, umem, arena)).collect()
}

/// The device, and a pool whose buffers hold any packet that it may receive.
fn with_pool(
    device: XskDevice,
    params: &OpenParams,
    umem: &Arc<Umem>,
    arena: &Arc<Arena>,
) -> Result<OpenedDevice, Error> {
    let least = (XDP_HEADROOM + params.af_xdp.umem.headroom) as usize;
    let headroom = params.pool.headroom.max(least);
    let mut pool = PoolParams { name: device.info().name.clone(), headroom, ..params.pool.clone() };
    pool.domains.push(umem.clone());
    let pool = Pool::new(pool, arena.clone())?.bind();
    device.check_pool(&pool)?;
    let socket = Some(SocketInfo::from(&device));
    Ok(OpenedDevice { device: Box::new(device), pool: pool.unbind(), wire: None, socket })
}
