//! `vhost_user:PATH[,server=1]`: pairs of virtio queues, with a switch behind them.

use std::path::Path;
use std::sync::Arc;

use pagepool::{Arena, Bound, Error, MAX_FRAGS, Pool, PoolParams};

use super::open_params::OpenParams;
use super::opened_device::OpenedDevice;
use super::queues::{Queues, without_options};
use crate::device::Device;
use crate::device::device::HEADERS;
use crate::error::parameter;
use crate::forward::holder_tags::tag_received;
use crate::sys::remedy::failed;
use crate::vhost::domain::{ARENA_AT, RINGS_AT, VhostDomain};
use crate::vhost::vhost_user::VhostUser;
use crate::virtio::back_end::BackEnd;
use crate::virtio::device::VirtioNet;
use crate::virtio::params::VirtioParams;
use crate::virtio::port::{Port, PortMemory};
use crate::virtio::sys::RingMemory;

const KIND: &str = "vhost_user";
/// The longest packet, unless a single buffer is shorter: a jumbo frame with its header and check sequence.
const MAX_PACKET: usize = 9018;

pub(super) fn open(
    sockets: &[Queues<'_>],
    params: &OpenParams,
    arena: &Arc<Arena>,
) -> Result<Vec<Vec<OpenedDevice>>, Error> {
    let domain = VhostDomain::new(arena);
    let of = |queues: &Queues<'_>| {
        let (path, listens) = parse(queues.argument)?;
        let name = format!("{KIND}:{path}");
        let pairs = queues.numbers.iter().max().map_or(1, |&last| last + 1);
        let pairs = u16::try_from(pairs).map_err(|_| parameter("queue", pairs - 1, "0 to 65534"))?;
        let back_end = VhostUser::new(&name, Path::new(path), listens, pairs)?;
        open_pairs(&name, Box::new(back_end), listens, queues.numbers, params, &domain, arena)
    };
    sockets.iter().map(of).collect()
}

/// The path, and whether this process listens.
fn parse(argument: &str) -> Result<(&str, bool), Error> {
    let path = without_options(argument);
    if path.is_empty() {
        return Err(parameter("device", format!("{KIND}:{argument}"), format!("{KIND}:PATH of a socket")));
    }
    match &argument[path.len()..] {
        "" | ",server=0" => Ok((path, false)),
        ",server=1" => Ok((path, true)),
        other => {
            let must_be = "server=1 to listen, or server=0 to connect; a path has no comma";
            Err(parameter("the option", &other[1..], must_be))
        }
    }
}

fn open_pairs(
    name: &str,
    back_end: Box<dyn BackEnd>,
    later: bool,
    numbers: &[u32],
    params: &OpenParams,
    domain: &Arc<VhostDomain>,
    arena: &Arc<Arena>,
) -> Result<Vec<OpenedDevice>, Error> {
    if arena.memfd().is_none() {
        let what = format!("the memory of {name} must be a memfd: open the arena with `Backing::Memfd`");
        return Err(Error::Unsupported { what });
    }
    let pools: Vec<_> = numbers
        .iter()
        .map(|number| pool(format!("{name}:{number}"), params, domain, arena))
        .collect::<Result<_, _>>()?;
    let Some((_, capacity)) = pools.first() else { return Ok(Vec::new()) };
    let virtio = virtio_params(name.to_owned(), *capacity, params);
    virtio.check()?;
    let pairs = numbers.iter().max().map_or(0, |&last| last as usize + 1);
    let bytes = pairs * VirtioNet::ring_bytes(&virtio);
    let no_memory =
        |source| failed("memfd_create", source, format!("{bytes} bytes of rings: use smaller rings"));
    let rings = RingMemory::new(bytes).map_err(no_memory)?;
    let memory = PortMemory { rings, rings_at: RINGS_AT, arena: Some((arena.clone(), ARENA_AT)) };
    let port = Port::new(back_end, virtio.wanted(), memory);
    let opened = pools.into_iter().zip(numbers).map(|((pool, _), &number)| {
        let virtio = VirtioParams { name: format!("{name}:{number}"), ..virtio.clone() };
        let mut device = VirtioNet::new(&port, number as u16, KIND, domain.clone(), &virtio)?;
        match device.start() {
            Err(Error::Busy { .. }) if later => {} // nobody has connected yet
            started => started?,
        }
        tag_received(&pool, &device.info().name);
        device.receive(&pool, &mut Vec::new(), 0);
        let (wire, socket, redirect) = (None, None, None);
        Ok(OpenedDevice { device: Box::new(device), pool: pool.unbind(), wire, socket, redirect })
    });
    opened.collect()
}

/// A pool, and the most bytes of a packet in one of its buffers.
fn pool(
    name: String,
    params: &OpenParams,
    domain: &Arc<VhostDomain>,
    arena: &Arc<Arena>,
) -> Result<(Bound, usize), Error> {
    let headroom = params.pool.headroom.max(64); // the header's cache line
    let mut pool = PoolParams { name, headroom, ..params.pool.clone() };
    pool.domains.push(domain.clone());
    let pool = Pool::new(pool, arena.clone())?.bind();
    let no_buffer = || Error::Busy { what: "the arena has no free page: raise max_bytes".into() };
    let capacity = pool.alloc_page().ok_or_else(no_buffer)?.packet_capacity();
    Ok((pool, capacity))
}

fn virtio_params(name: String, capacity: usize, params: &OpenParams) -> VirtioParams {
    let (rx_ring, tx_ring) = (params.rx_ring as usize, params.tx_ring as usize);
    let most = if params.multi_buffer { MAX_FRAGS + 1 } else { 1 };
    // A packet with more buffers than there are slots would wait forever.
    let max_buffers = most.min(rx_ring).min(tx_ring.saturating_sub(1)).max(1);
    let max_packet = MAX_PACKET.min(capacity * max_buffers);
    VirtioParams { name, rx_ring, tx_ring, max_packet, mtu: max_packet.saturating_sub(HEADERS), max_buffers }
}
