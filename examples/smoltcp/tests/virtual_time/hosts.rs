//! The server and a host with many clients, on the two ends of a wire. Time passes only when nothing moves.

use std::time::Duration;

use pagepool::{Bound, Pool, PoolParams};
use pagepool_net::{MemNic, MemNicParams, NicDomain, NicPort, mem_nic};
use pagepool_smoltcp::pattern;
use pagepool_smoltcp::phy::Phy;
use pagepool_smoltcp::server::{Server, Service, interface};
use pagepool_testing::{FaultNic, FaultParams, PlainMemory};
use smoltcp::iface::{Interface, PollResult, SocketHandle, SocketSet};
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::socket::tcp;
use smoltcp::time::Instant;
use smoltcp::wire::{IpCidr, Ipv4Address};

pub const SERVER: Ipv4Address = Ipv4Address::new(198, 18, 0, 1);
const MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];
/// Steps after which a test fails.
const STEPS: usize = 200_000;

/// What the two hosts have.
#[derive(Clone)]
pub struct Params {
    pub mtu: usize,
    /// Slots of each ring.
    pub ring: usize,
    /// Pages of each pool.
    pub pages: usize,
    pub faults: FaultParams,
    pub services: Vec<(Service, usize)>,
    /// Bytes of each socket's buffers.
    pub buffer: usize,
}

impl Default for Params {
    fn default() -> Self {
        let services =
            vec![(Service::Echo, 1), (Service::Discard, 1), (Service::Generate, 2), (Service::Http, 1)];
        let faults = FaultParams::default();
        Self { mtu: 1500, ring: 256, pages: 1024, faults, services, buffer: 64 << 10 }
    }
}

/// One end of the wire.
pub struct End {
    pub phy: Phy<FaultNic<MemNic>>,
    wire: NicPort,
}

impl End {
    fn new(params: &Params, seed: u64) -> Self {
        let domain = NicDomain::new("wire");
        let memory = PlainMemory::new(params.pages, 0).expect("memory");
        let pool = PoolParams { domains: vec![domain.clone()], headroom: 256, ..Default::default() };
        let pool = Pool::new(pool, memory).expect("parameters in range").bind();
        let nic = MemNicParams {
            rx_ring: params.ring,
            tx_ring: params.ring,
            max_packet: params.mtu + 18,
            ..Default::default()
        };
        let (nic, wire) = mem_nic(nic, domain).expect("parameters in range");
        let faults = FaultParams { seed, ..params.faults.clone() };
        let nic = FaultNic::new(nic, faults).expect("parameters in range");
        Self { phy: Phy::new(nic, pool, ChecksumCapabilities::default()), wire }
    }

    /// Puts what this end sent on the wire to the other. What that has no buffer for is lost.
    fn carry(&mut self, to: &mut Self, frame: &mut Vec<u8>) -> usize {
        let mut carried = 0;
        while self.wire.take(|bytes| {
            frame.clear();
            frame.extend_from_slice(bytes);
        }) {
            to.wire.deliver(frame);
            carried += 1;
        }
        carried
    }
}

/// A connection of a client, which checks what it receives.
pub struct Stream {
    handle: SocketHandle,
    /// Bytes of the pattern to send, and to receive.
    pub ask: [u64; 2],
    pub done: [u64; 2],
    pub wrong: u64,
    pub is_over: bool,
}

pub struct Hosts {
    pub now: Instant,
    pub ends: [End; 2],
    pub server: Server,
    pub client: Interface,
    pub sockets: SocketSet<'static>,
    pub streams: Vec<Stream>,
    frame: Vec<u8>,
    buffer: usize,
}

impl Hosts {
    pub fn new(params: &Params) -> Self {
        let mut ends = [End::new(params, 1), End::new(params, 2)];
        let address = |last| IpCidr::new(Ipv4Address::new(198, 18, 0, last).into(), 24);
        let server = Server::new(&mut ends[0].phy, (MACS[0], address(1)), &params.services, params.buffer);
        let client = interface(&mut ends[1].phy, MACS[1], address(2));
        let (sockets, now) = (SocketSet::new(Vec::new()), Instant::ZERO);
        let (streams, frame, buffer) = (Vec::new(), Vec::new(), params.buffer);
        Self { now, ends, server, client, sockets, streams, frame, buffer }
    }

    /// Connects to a service. Sends so many bytes of the pattern, and expects so many.
    pub fn connect(&mut self, service: Service, ask: [u64; 2]) {
        let storage = || tcp::SocketBuffer::new(vec![0; self.buffer]);
        let mut socket = tcp::Socket::new(storage(), storage());
        let port = 40_000 + self.streams.len() as u16;
        socket.connect(self.client.context(), (SERVER, service.port()), port).expect("a fresh socket");
        let handle = self.sockets.add(socket);
        self.streams.push(Stream { handle, ask, done: [0; 2], wrong: 0, is_over: false });
    }

    /// One round of both hosts and of the wire. Time passes if nothing moved.
    pub fn step(&mut self) {
        let Self { now, ends: [near, far], server, client, sockets, streams, frame, .. } = self;
        let mut moved = near.phy.turn() + far.phy.turn();
        moved += usize::from(server.round(*now, &mut near.phy));
        moved += usize::from(client.poll(*now, &mut far.phy, sockets) != PollResult::None);
        streams.iter_mut().filter(|stream| !stream.is_over).for_each(|stream| stream.serve(sockets));
        moved += near.carry(far, frame) + far.carry(near, frame);
        if moved == 0 {
            let most = Duration::from_secs(1);
            let theirs = client.poll_delay(*now, sockets).map_or(most, Into::into);
            let idle = server.idle(*now, most).min(theirs).max(Duration::from_millis(1));
            *now += idle.into();
        }
    }

    /// Steps until something is so.
    pub fn until(&mut self, what: &str, mut is_so: impl FnMut(&mut Self) -> bool) {
        for _ in 0..STEPS {
            if is_so(self) {
                return;
            }
            self.step();
        }
        let open = self.streams.iter().filter(|stream| !stream.is_over).count();
        let first = self.streams.iter().find(|stream| !stream.is_over).map(|stream| stream.done);
        panic!("{what}: not within {STEPS} steps, at {}; {open} open, first {first:?}", self.now);
    }

    /// Steps until all connections are over, with what they asked for. Closes both ends.
    pub fn finish(mut self) {
        self.until("all connections are over", |hosts| hosts.streams.iter().all(|stream| stream.is_over));
        for stream in &self.streams {
            assert_eq!((stream.done, stream.wrong), (stream.ask, 0));
        }
        assert_eq!(self.server.wrong, 0);
        self.close();
    }

    /// Closes both ends: no buffer is missing.
    pub fn close(self) {
        for end in self.ends {
            let pool: Bound = end.phy.close();
            assert_eq!(pool.inflight().out, 0);
        }
    }
}

impl Stream {
    fn serve(&mut self, sockets: &mut SocketSet<'_>) {
        let socket = sockets.get_mut::<tcp::Socket>(self.handle);
        let Self { ask, done, wrong, .. } = self;
        while done[0] < ask[0] && socket.can_send() {
            let part = pattern::from(done[0], (ask[0] - done[0]).min(1 << 16) as usize);
            done[0] += socket.send_slice(part).expect("it can send") as u64;
        }
        while done[1] < ask[1] && socket.can_recv() {
            let read = |bytes: &mut [u8]| {
                let len = bytes.len().min((ask[1] - done[1]) as usize);
                *wrong += u64::from(!pattern::is(done[1], &bytes[..len]));
                (len, len)
            };
            done[1] += socket.recv(read).expect("it can receive") as u64;
        }
        if done == ask {
            match socket.state() {
                tcp::State::Established | tcp::State::CloseWait => socket.close(),
                tcp::State::FinWait2 | tcp::State::TimeWait | tcp::State::Closed => self.end(sockets),
                _ => {}
            }
        }
    }

    /// The other side has all that was sent.
    fn end(&mut self, sockets: &mut SocketSet<'_>) {
        sockets.get_mut::<tcp::Socket>(self.handle).abort();
        self.is_over = true;
    }
}
