//! What the rows of vhost back ends share: pools, the memory of rings, and pairs of queues as devices.

use std::sync::Arc;

use pagepool::{Arena, Bound, Error, MAX_FRAGS, Pool, PoolParams};

use super::open_params::OpenParams;
use super::opened_device::OpenedDevice;
use super::queues::Queues;
use crate::device::Device;
use crate::device::device::HEADERS;
use crate::error::parameter;
use crate::forward::holder_tags::tag_received;
use crate::sys::remedy::failed;
use crate::vhost::domain::{ARENA_AT, RINGS_AT, VhostDomain};
use crate::virtio::back_end::BackEnd;
use crate::virtio::device::VirtioNet;
use crate::virtio::params::VirtioParams;
use crate::virtio::port::{Port, PortMemory};
use crate::virtio::sys::RingMemory;
use crate::xsk::RxMetadataReader;

/// The longest packet of several segments, by the specification of virtio.
const MAX_SEGMENTED: usize = 65_550;

/// Pairs of queues of one back end, to open.
#[derive(Debug)]
pub(super) struct Pairs<'a> {
    /// The name of the back end in reports and errors: `vhost_user:/run/sw0.sock`.
    pub(super) name: String,
    pub(super) kind: &'static str,
    /// Their numbers.
    pub(super) numbers: &'a [u32],
    pub(super) back_end: Box<dyn BackEnd>,
    /// Whether the back end may connect later.
    pub(super) later: bool,
    /// The longest packet in bytes, if the buffers have room for it, and the MTU.
    pub(super) max_packet: usize,
    pub(super) mtu: usize,
}

/// The number of pairs up to the last.
pub(super) fn pairs_up_to_last(numbers: &[u32]) -> Result<u16, Error> {
    let last = numbers.iter().copied().max().unwrap_or(0);
    let pairs = u16::try_from(last).ok().and_then(|last| last.checked_add(1));
    pairs.ok_or_else(|| parameter("queue", last, "0 to 65534"))
}

/// Opens the pairs of each name, in one address space; none of a name without queues.
pub(super) fn open_each<'a>(
    names: &[Queues<'a>],
    params: &OpenParams,
    arena: &Arc<Arena>,
    pairs: impl Fn(&Queues<'a>) -> Result<Pairs<'a>, Error>,
) -> Result<Vec<Vec<OpenedDevice>>, Error> {
    let domain = VhostDomain::new(arena);
    let open = |queues: &Queues<'a>| match queues.numbers {
        [] => Ok(Vec::new()),
        _ => open_pairs(pairs(queues)?, params, &domain, arena),
    };
    names.iter().map(open).collect()
}

fn open_pairs(
    of: Pairs<'_>,
    params: &OpenParams,
    domain: &Arc<VhostDomain>,
    arena: &Arc<Arena>,
) -> Result<Vec<OpenedDevice>, Error> {
    let name_of = |number: &u32| format!("{}:{number}", of.name);
    let pools: Vec<_> = of
        .numbers
        .iter()
        .map(|number| pool(name_of(number), params, domain, arena))
        .collect::<Result<_, _>>()?;
    let Some((_, capacity)) = pools.first() else { return Ok(Vec::new()) };
    let virtio = virtio_params(&of, *capacity, params);
    virtio.check()?;
    let bytes = usize::from(pairs_up_to_last(of.numbers)?) * VirtioNet::ring_bytes(&virtio);
    let no_memory =
        |source| failed("memfd_create", source, format!("{bytes} bytes of rings: use smaller rings"));
    let rings = RingMemory::new(bytes).map_err(no_memory)?;
    let memory = PortMemory { rings, rings_at: RINGS_AT, arena: arena.clone(), arena_at: ARENA_AT };
    let Pairs { kind, later, .. } = of;
    let port = Port::new(of.back_end, virtio.wanted(), memory);
    let opened = pools.into_iter().zip(of.numbers).map(|((pool, _), number)| {
        let virtio = VirtioParams { name: pool.handle().name().to_owned(), ..virtio.clone() };
        let mut device = VirtioNet::new(&port, *number as u16, kind, domain.clone(), &virtio)?;
        match device.start() {
            Err(Error::Busy { .. }) if later => {} // nobody has connected yet
            started => started?,
        }
        tag_received(&pool, &device.info().name);
        device.receive(&pool, &mut Vec::new(), 0);
        let (wire, socket, redirect) = (None, None, None);
        let metadata = params.offloads.then_some(RxMetadataReader::VIRTIO);
        Ok(OpenedDevice { device: Box::new(device), pool: pool.unbind(), wire, socket, redirect, metadata })
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

fn virtio_params(of: &Pairs<'_>, capacity: usize, params: &OpenParams) -> VirtioParams {
    let (rx_ring, tx_ring) = (params.rx_ring as usize, params.tx_ring as usize);
    let offloads = params.offloads;
    let most = if params.multi_buffer || offloads { MAX_FRAGS + 1 } else { 1 };
    // A packet with more buffers than there are slots would wait forever.
    let max_buffers = most.min(rx_ring).min(tx_ring.saturating_sub(1)).max(1);
    let longest = if offloads { MAX_SEGMENTED } else { of.max_packet };
    let max_packet = longest.min(capacity * max_buffers);
    let mtu = of.mtu.min(max_packet.saturating_sub(HEADERS));
    VirtioParams { name: of.name.clone(), rx_ring, tx_ring, max_packet, mtu, max_buffers, offloads }
}
