//! `af_xdp:INTERFACE`: AF_XDP sockets. Sockets opened together share one UMEM: each sends packets of another
//! without a copy.

use std::sync::{Arc, Mutex, PoisonError};

use pagepool::{Arena, Error, Pool, PoolParams};

use super::open_params::{OpenParams, XdpProgram};
use super::opened_device::{OpenedDevice, SocketInfo};
use super::queues::Queues;
use crate::device::Device;
use crate::error::parameter;
use crate::forward::holder_tags::tag_received;
use crate::interface::lookup;
use crate::sys::errno;
use crate::xsk::{
    Attach, Redirect, Umem, UmemParams, UnboundSocket, XDP_HEADROOM, XskDevice, XskMode, XskParams,
};

/// The sockets of all interfaces, over one UMEM.
type Sockets<T> = Vec<Vec<T>>;

/// Does something to each.
fn each<T, U>(sockets: Sockets<T>, work: impl Fn(T) -> Result<U, Error>) -> Result<Sockets<U>, Error> {
    sockets.into_iter().map(|queues| queues.into_iter().map(&work).collect()).collect()
}

/// Makes the whole arena a UMEM, which must be committed (`commit_all`). Opens the sockets, gives them
/// buffers, puts them into the maps, and attaches the XDP programs last: an error leaves no trace.
pub(super) fn open(
    interfaces: &[Queues<'_>],
    params: &OpenParams,
    arena: &Arc<Arena>,
) -> Result<Vec<Vec<OpenedDevice>>, Error> {
    let redirects = redirects(interfaces, params)?;
    let mut opened = open_sockets(interfaces, params, arena)?;
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
    each(opened, |device| Ok(described(device, only_send)))
}

/// Opens the sockets in the requested mode, and gives them buffers.
fn open_sockets(
    interfaces: &[Queues<'_>],
    params: &OpenParams,
    arena: &Arc<Arena>,
) -> Result<Sockets<(XskDevice, Pool)>, Error> {
    let mode = params.af_xdp.umem.mode;
    match bind(make_sockets(mode, interfaces, params, arena)?, params) {
        // One driver has zero copy, another has not: their shared UMEM must use copies.
        Err(error) if mode == XskMode::Auto && is_refused_mode(&error) => {
            bind(make_sockets(XskMode::Copy, interfaces, params, arena)?, params)
        }
        bound => bound,
    }
}

/// Binds all sockets first, then gives them buffers.
fn bind(
    sockets: Sockets<(UnboundSocket, Pool)>,
    params: &OpenParams,
) -> Result<Sockets<(XskDevice, Pool)>, Error> {
    let bound = each(sockets, |(socket, pool)| Ok((XskDevice::bind(socket)?, pool)))?;
    each(bound, |(device, pool)| with_buffers(device, pool, params))
}

fn make_sockets(
    mode: XskMode,
    interfaces: &[Queues<'_>],
    params: &OpenParams,
    arena: &Arc<Arena>,
) -> Result<Sockets<(UnboundSocket, Pool)>, Error> {
    let umem = UmemParams { multi_buffer: params.multi_buffer, mode, ..params.af_xdp.umem.clone() };
    let umem = Umem::new(umem, arena)?;
    interfaces.iter().map(|interface| make_queues(interface, params, &umem, arena)).collect()
}

/// Whether a socket may have been refused because of the mode of the first one over its UMEM.
fn is_refused_mode(error: &Error) -> bool {
    let Error::System { call: "bind(AF_XDP)", source, .. } = error else { return false };
    matches!(source.raw_os_error(), Some(errno::EOPNOTSUPP | errno::EPROTONOSUPPORT | errno::EINVAL))
}

/// One redirect for each interface; none if the sockets only send.
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
            let must_be = "left out unless this call attaches the XDP program; use Redirect::steer";
            Err(parameter("af_xdp.steer", by, must_be))
        }
        (XdpProgram::Redirects(redirects), None) if redirects.len() == interfaces.len() => {
            Ok(redirects.clone())
        }
        (XdpProgram::Redirects(redirects), None) => {
            let must_be = format!("one per interface, {} in all", interfaces.len());
            Err(parameter("af_xdp.program", format!("{} redirects", redirects.len()), must_be))
        }
        (XdpProgram::None, None) => Ok(Vec::new()),
    }
}

/// Held from the check whether an interface has a program until it has one: several threads open queues, and
/// one program serves all queues of an interface.
static ONE_PROGRAM: Mutex<()> = Mutex::new(());

/// Attaches a program that passes all packets: most drivers send nothing by zero copy without one.
fn pass_all(
    interfaces: &[Queues<'_>],
    params: &OpenParams,
    opened: &mut Sockets<(XskDevice, Pool)>,
) -> Result<(), Error> {
    for (Queues { argument: name, .. }, queues) in interfaces.iter().zip(opened) {
        let needs_one = queues.iter().any(|(device, _)| device.is_zero_copy());
        let _one = ONE_PROGRAM.lock().unwrap_or_else(PoisonError::into_inner);
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

fn make_queues(
    interface: &Queues<'_>,
    params: &OpenParams,
    umem: &Arc<Umem>,
    arena: &Arc<Arena>,
) -> Result<Vec<(UnboundSocket, Pool)>, Error> {
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
        let socket = UnboundSocket::make(socket, umem)?;
        let pool = pool(socket.name(), params, umem, arena)?;
        Ok((socket, pool))
    };
    interface.numbers.iter().map(socket).collect()
}

/// A pool whose buffers hold every packet that a device over the UMEM may receive.
fn pool(name: String, params: &OpenParams, umem: &Arc<Umem>, arena: &Arc<Arena>) -> Result<Pool, Error> {
    let least = (XDP_HEADROOM + params.af_xdp.umem.headroom) as usize;
    let headroom = params.pool.headroom.max(least);
    let mut pool = PoolParams { name, headroom, ..params.pool.clone() };
    pool.domains.push(umem.clone());
    Pool::new(pool, arena.clone())
}

/// Gives some of the pool's buffers to the kernel, unless the caller starts the redirects later, and may give
/// them on another thread.
fn with_buffers(mut device: XskDevice, pool: Pool, params: &OpenParams) -> Result<(XskDevice, Pool), Error> {
    let pool = pool.bind();
    device.check_pool(&pool)?;
    let later = match &params.af_xdp.program {
        XdpProgram::Redirects(all) => !all.iter().any(|redirect| redirect.is_started()),
        XdpProgram::Attach(_) | XdpProgram::None => false,
    };
    if !later {
        tag_received(&pool, &device.info().name);
        device.receive(&pool, &mut Vec::new(), 0);
    }
    Ok((device, pool.unbind()))
}

fn described((device, pool): (XskDevice, Pool), only_sends: bool) -> OpenedDevice {
    let (mut socket, redirect) = (SocketInfo::from(&device), device.redirect().cloned());
    if only_sends {
        socket.program_id = redirect.as_ref().and_then(|redirect| redirect.passing_id());
    }
    let metadata = redirect.as_ref().and_then(|redirect| redirect.rx_metadata());
    OpenedDevice { device: Box::new(device), pool, wire: None, socket: Some(socket), redirect, metadata }
}
