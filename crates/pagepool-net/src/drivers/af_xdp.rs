//! `af_xdp:INTERFACE`: AF_XDP sockets. Those that are opened together share one UMEM, so that what one
//! receives the others send without a copy.

use std::sync::Arc;

use pagepool::{Arena, Error, Pool, PoolParams};

use super::open_params::{OpenParams, XdpProgram};
use super::opened_device::{OpenedDevice, SocketInfo};
use super::queues::Queues;
use crate::device::Device;
use crate::error::parameter;
use crate::link::lookup;
use crate::sys::errno;
use crate::xsk::{Attach, Redirect, Umem, UmemParams, XDP_HEADROOM, XskDevice, XskMode, XskParams};

/// The whole arena becomes a UMEM, so it must be committed (`commit_all`). Sockets are opened first, then
/// given buffers, then put into the maps; attaching the XDP programs comes last, so an error leaves no trace.
pub(super) fn open(
    interfaces: &[Queues<'_>],
    params: &OpenParams,
    arena: &Arc<Arena>,
) -> Result<Vec<Vec<OpenedDevice>>, Error> {
    let redirects = redirects(interfaces, params)?;
    let mode = params.af_xdp.umem.mode;
    let mut opened = match open_as(mode, interfaces, params, arena) {
        // One driver has zero copy, another has not: what they share must be copied.
        Err(error) if mode == XskMode::Auto && is_refused_mode(&error) => {
            open_as(XskMode::Copy, interfaces, params, arena)?
        }
        opened => opened?,
    };
    for (queues, redirect) in opened.iter_mut().zip(&redirects) {
        queues
            .iter_mut()
            .try_for_each(|(device, _)| device.join(redirect.clone(), None, Redirect::insert_at_start))?;
    }
    match &params.af_xdp.program {
        XdpProgram::Attach(_) => Redirect::start_all(&redirects)?,
        XdpProgram::Redirects(_) => {}
        XdpProgram::None => pass_all(interfaces, params, &mut opened)?,
    }
    let only_send = matches!(params.af_xdp.program, XdpProgram::None);
    let described = |device| described(device, only_send);
    Ok(opened.into_iter().map(|queues| queues.into_iter().map(described).collect()).collect())
}

/// The sockets of all interfaces, over one UMEM, each with its pool.
type Sockets = Vec<Vec<(XskDevice, Pool)>>;

fn open_as(
    mode: XskMode,
    interfaces: &[Queues<'_>],
    params: &OpenParams,
    arena: &Arc<Arena>,
) -> Result<Sockets, Error> {
    let umem = UmemParams { multi_buffer: params.multi_buffer, mode, ..params.af_xdp.umem.clone() };
    let umem = Umem::new(umem, arena)?;
    interfaces.iter().map(|interface| open_queues(interface, params, &umem, arena)).collect()
}

/// Whether a socket was refused the mode of the first one over its UMEM, perhaps.
fn is_refused_mode(error: &Error) -> bool {
    let Error::System { call: "bind(AF_XDP)", source, .. } = error else { return false };
    matches!(source.raw_os_error(), Some(errno::EOPNOTSUPP | errno::EPROTONOSUPPORT | errno::EINVAL))
}

/// One for each interface; none if the sockets only send.
fn redirects(interfaces: &[Queues<'_>], params: &OpenParams) -> Result<Vec<Arc<Redirect>>, Error> {
    match (&params.af_xdp.program, &params.af_xdp.steer) {
        (XdpProgram::Attach(mode), steer) => {
            let load = |of: &Queues<'_>| {
                let redirect = Redirect::load(of.argument, *mode, params.multi_buffer)?;
                steer.as_ref().map_or(Ok(()), |by| redirect.steer(by)).map(|()| redirect)
            };
            interfaces.iter().map(load).collect()
        }
        (_, Some(by)) => {
            let must_be = "left out unless the XDP program is attached here; use Redirect::steer";
            Err(parameter("af_xdp.steer", by, must_be))
        }
        (XdpProgram::Redirects(redirects), None) if redirects.len() == interfaces.len() => {
            Ok(redirects.clone())
        }
        (XdpProgram::Redirects(redirects), None) => {
            let must_be = format!("one for each interface, of which there are {}", interfaces.len());
            Err(parameter("af_xdp.program", format!("{} redirects", redirects.len()), must_be))
        }
        (XdpProgram::None, None) => Ok(Vec::new()),
    }
}

/// Most drivers send nothing by zero copy while no XDP program is attached.
fn pass_all(interfaces: &[Queues<'_>], params: &OpenParams, opened: &mut Sockets) -> Result<(), Error> {
    for (interface, queues) in interfaces.iter().zip(opened) {
        let name = interface.argument;
        let needs_one = queues.iter().any(|(device, _)| device.is_zero_copy());
        if needs_one && lookup::xdp_program_on(name).is_none() {
            let redirect = Redirect::load(name, Attach::Native, params.multi_buffer)?;
            redirect.pass()?;
            queues
                .iter_mut()
                .try_for_each(|(device, _)| device.join(redirect.clone(), None, Redirect::insert_at_start))?;
        }
    }
    Ok(())
}

/// The sockets of an interface, each with a pool.
fn open_queues(
    interface: &Queues<'_>,
    params: &OpenParams,
    umem: &Arc<Umem>,
    arena: &Arc<Arena>,
) -> Result<Vec<(XskDevice, Pool)>, Error> {
    let socket = |&queue: &u32| {
        let socket = XskParams {
            interface: interface.argument.into(),
            queue,
            rx_ring: params.rx_ring,
            tx_ring: params.tx_ring,
            tx_mode: params.af_xdp.tx_mode,
            busy_limit: params.af_xdp.busy_limit,
            give_up: params.af_xdp.give_up.clone(),
            busy_poll: params.af_xdp.busy_poll,
            ..XskParams::default()
        };
        XskDevice::open_apart(&socket, umem)
    };
    let sockets: Vec<_> = interface.numbers.iter().map(socket).collect::<Result<_, _>>()?;
    sockets.into_iter().map(|device| with_pool(device, params, umem, arena)).collect()
}

/// The device, and a pool whose buffers hold any packet that it may receive. The kernel gets some of them,
/// unless the caller starts the redirect, and may want to give them on another thread.
fn with_pool(
    mut device: XskDevice,
    params: &OpenParams,
    umem: &Arc<Umem>,
    arena: &Arc<Arena>,
) -> Result<(XskDevice, Pool), Error> {
    let least = (XDP_HEADROOM + params.af_xdp.umem.headroom) as usize;
    let headroom = params.pool.headroom.max(least);
    let mut pool = PoolParams { name: device.info().name.clone(), headroom, ..params.pool.clone() };
    pool.domains.push(umem.clone());
    let pool = Pool::new(pool, arena.clone())?.bind();
    device.check_pool(&pool)?;
    if !matches!(params.af_xdp.program, XdpProgram::Redirects(_)) {
        device.receive(&pool, &mut Vec::new(), 0);
    }
    Ok((device, pool.unbind()))
}

fn described((device, pool): (XskDevice, Pool), only_sends: bool) -> OpenedDevice {
    let (mut socket, redirect) = (SocketInfo::from(&device), device.redirect().cloned());
    if only_sends {
        socket.program_id = redirect.as_ref().and_then(|redirect| redirect.passing_id());
    }
    OpenedDevice { device: Box::new(device), pool, wire: None, socket: Some(socket), redirect }
}
