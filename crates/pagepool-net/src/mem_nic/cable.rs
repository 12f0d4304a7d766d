//! A cable between two in-memory NICs.

use super::port::{NicPort, PortStep};

/// Packets that cross in one direction in a step.
const BURST: usize = 64;

/// Connects two ports: each receives what the other sends.
///
/// ```
/// # use pagepool::{Arena, ArenaParams, Pool, PoolParams};
/// use pagepool_net::testing::Cable;
/// use pagepool_net::{Device, MemNicParams, NicDomain, TxQueue, mem_nic};
/// let domain = NicDomain::new("both");
/// # let arena = Arena::new(ArenaParams { max_bytes: 8 << 20, ..Default::default() })?;
/// let pool = Pool::new(PoolParams { domains: vec![domain.clone()], ..Default::default() }, arena)?.bind();
/// let (mut one, a) = mem_nic(MemNicParams::default(), domain.clone())?;
/// let (mut two, b) = mem_nic(MemNicParams::default(), domain)?;
/// let mut cable = Cable::new(a, b);
///
/// let mut packets = Vec::with_capacity(64);
/// two.receive(&pool, &mut packets, 64); // its first buffers
/// let mut out = TxQueue::new();
/// let mut packet = pagepool::XdpBuff::received(pool.alloc_page().unwrap(), 60).unwrap();
/// packet.data_mut().fill(7);
/// out.push(packet);
/// one.transmit(&mut out);
/// assert_eq!(cable.step(), 1);
/// assert_eq!(two.receive(&pool, &mut packets, 64), 1);
/// assert_eq!(packets[0].data(), [7; 60]);
/// # Ok::<(), pagepool::Error>(())
/// ```
#[derive(Debug)]
pub struct Cable {
    /// One end.
    pub a: NicPort,
    /// The other end.
    pub b: NicPort,
    lossless: bool,
}

impl Cable {
    /// A cable that drops packets without a buffer; the receiving device counts them in `rx_no_buffer`.
    pub fn new(a: NicPort, b: NicPort) -> Self {
        Self { a, b, lossless: false }
    }

    /// A cable on which a packet waits for buffers, and the sender's ring fills. It drops packets that the
    /// other end can never accept, and everything once the other end is gone.
    pub fn lossless(a: NicPort, b: NicPort) -> Self {
        Self { a, b, lossless: true }
    }

    /// Carries at most 64 packets in each direction; returns how many left both ends.
    pub fn step(&mut self) -> usize {
        let Self { a, b, lossless } = self;
        carry(a, b, *lossless) + carry(b, a, *lossless)
    }
}

fn carry(from: &mut NicPort, to: &mut NicPort, lossless: bool) -> usize {
    let carried = from.step(|from| match to.step(|to| cross(from, to, lossless)) {
        Some(carried) => carried,
        None => (0..BURST).take_while(|_| from.take(|_| ())).count(),
    });
    carried.unwrap_or(0)
}

fn cross(from: &mut PortStep<'_>, to: &mut PortStep<'_>, lossless: bool) -> usize {
    let pass = |packet: &[u8], to: &mut PortStep<'_>| {
        let stays = lossless && to.must_wait(packet.len());
        if !stays {
            to.deliver(packet);
        }
        !stays
    };
    (0..BURST).take_while(|_| from.take_if(|packet| pass(packet, to))).count()
}
