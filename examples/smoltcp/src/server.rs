//! Services over smoltcp: what the program does with a device.
//!
//! smoltcp has no backlog: each socket of a service accepts one connection, and listens again when that ends.

use std::time::Duration;

use smoltcp::iface::{Config, Interface, PollIngressSingleResult, PollResult, SocketHandle, SocketSet};
use smoltcp::phy::Device;
use smoltcp::socket::{tcp, udp};
use smoltcp::time::Instant;
use smoltcp::wire::{EthernetAddress, IpCidr, Ipv4Address};

use crate::pattern;

/// Most packets that smoltcp takes in a round, and most passes over its sockets: a TAP has no end of its own.
const MOST: usize = 64;
/// Datagrams that wait for an answer, and their bytes.
const DATAGRAMS: (usize, usize) = (64, 128 << 10);
/// Bytes that an echo moves at once.
const SCRATCH: usize = 64 << 10;
const HELLO: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 6\r\n\
    Connection: close\r\n\r\nhello\n";

/// A service over TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Port 7: sends back what comes.
    Echo,
    /// Port 9: checks what comes.
    Discard,
    /// Port 19: sends the stream of [`pattern`].
    Generate,
    /// Port 80: greets.
    Http,
}

impl Service {
    /// Its port.
    pub fn port(self) -> u16 {
        match self {
            Self::Echo => 7,
            Self::Discard => 9,
            Self::Generate => 19,
            Self::Http => 80,
        }
    }
}

/// A socket of a service.
struct Connection {
    handle: SocketHandle,
    service: Service,
    /// Bytes of the stream so far.
    position: u64,
}

/// smoltcp with its services. A datagram to port 7 is answered, too.
pub struct Server {
    interface: Interface,
    sockets: SocketSet<'static>,
    connections: Vec<Connection>,
    datagrams: SocketHandle,
    scratch: Vec<u8>,
    /// Parts of streams to port 9 that differ from [`pattern`].
    pub wrong: u64,
}

impl Server {
    /// A server at an address. Each service gets so many sockets, with buffers of `buffer` bytes.
    pub fn new(
        device: &mut (impl Device + ?Sized),
        (mac, address): ([u8; 6], IpCidr),
        services: &[(Service, usize)],
        buffer: usize,
    ) -> Self {
        let interface = interface(device, mac, address);
        let mut sockets = SocketSet::new(Vec::new());
        let storage = || tcp::SocketBuffer::new(vec![0; buffer]);
        let mut connection = |service| {
            let handle = sockets.add(tcp::Socket::new(storage(), storage()));
            Connection { handle, service, position: 0 }
        };
        let each = services.iter().flat_map(|&(service, count)| std::iter::repeat_n(service, count));
        let connections = each.map(&mut connection).collect();
        let datagrams = sockets.add(datagram_socket());
        let scratch = vec![0; SCRATCH];
        let mut this = Self { interface, sockets, connections, datagrams, scratch, wrong: 0 };
        this.serve(); // listens before the first packet
        this
    }

    /// Sends what leaves the network through a router.
    pub fn set_router(&mut self, router: Ipv4Address) {
        let _ = self.interface.routes_mut().add_default_ipv4_route(router); // the table has room for one
    }

    /// Handles the packets of a turn, and writes those that are due. Returns whether there were any.
    pub fn round(&mut self, now: Instant, device: &mut impl Device) -> bool {
        let Self { interface, sockets, .. } = self;
        interface.poll_maintenance(now);
        let came = (0..MOST)
            .take_while(|_| {
                interface.poll_ingress_single(now, device, sockets) != PollIngressSingleResult::None
            })
            .count();
        self.serve();
        let Self { interface, sockets, .. } = self;
        let left =
            (0..MOST).take_while(|_| interface.poll_egress(now, device, sockets) != PollResult::None).count();
        came + left > 0
    }

    /// How long nothing is due, at most `most`.
    pub fn idle(&mut self, now: Instant, most: Duration) -> Duration {
        let idle = self.interface.poll_delay(now, &self.sockets);
        idle.map_or(most, |idle| most.min(idle.into()))
    }

    /// Does the work of the services.
    fn serve(&mut self) {
        let Self { sockets, connections, datagrams, scratch, wrong, .. } = self;
        for connection in connections {
            connection.serve(sockets.get_mut(connection.handle), scratch, wrong);
        }
        let socket = sockets.get_mut::<udp::Socket>(*datagrams);
        while socket.can_send()
            && let Ok((len, from)) = socket.recv_slice(scratch)
        {
            let _ = socket.send_slice(&scratch[..len], from); // too long for the buffer: lost
        }
    }
}

/// smoltcp's side of an interface.
pub fn interface(device: &mut (impl Device + ?Sized), mac: [u8; 6], address: IpCidr) -> Interface {
    let config = Config::new(EthernetAddress(mac).into());
    let mut interface = Interface::new(config, device, Instant::ZERO);
    interface.update_ip_addrs(|addresses| {
        let _ = addresses.push(address); // there is room for two
    });
    interface
}

fn datagram_socket() -> udp::Socket<'static> {
    let (count, bytes) = DATAGRAMS;
    let storage = || udp::PacketBuffer::new(vec![udp::PacketMetadata::EMPTY; count], vec![0; bytes]);
    let mut socket = udp::Socket::new(storage(), storage());
    let _ = socket.bind(Service::Echo.port()); // a fresh socket, and a port that is not 0
    socket
}

impl Connection {
    fn serve(&mut self, socket: &mut tcp::Socket<'_>, scratch: &mut [u8], wrong: &mut u64) {
        if !socket.is_open() {
            self.position = 0;
            let _ = socket.listen(self.service.port()); // it is closed, and the port is not 0
        }
        match self.service {
            Service::Echo => echo(socket, scratch),
            Service::Discard => self.check(socket, wrong),
            Service::Generate => self.generate(socket),
            Service::Http => greet(socket),
        }
        if socket.state() == tcp::State::CloseWait && !socket.can_recv() {
            socket.close(); // after what waits to be sent
        }
    }

    fn check(&mut self, socket: &mut tcp::Socket<'_>, wrong: &mut u64) {
        while socket.can_recv() {
            let read = socket.recv(|bytes| (bytes.len(), (bytes.len(), pattern::is(self.position, bytes))));
            let Ok((len, is_right)) = read else { return };
            self.position += len as u64;
            *wrong += u64::from(!is_right);
        }
    }

    fn generate(&mut self, socket: &mut tcp::Socket<'_>) {
        while socket.can_send() {
            let fill = |space: &mut [u8]| {
                pattern::write(self.position, space);
                (space.len(), space.len())
            };
            let Ok(len) = socket.send(fill) else { return };
            self.position += len as u64;
        }
    }
}

/// Moves what there is room for.
fn echo(socket: &mut tcp::Socket<'_>, scratch: &mut [u8]) {
    while socket.can_recv() && socket.can_send() {
        let Ok(bytes) = socket.peek(scratch.len()) else { return };
        let len = bytes.len();
        scratch[..len].copy_from_slice(bytes);
        let Ok(sent) = socket.send_slice(&scratch[..len]) else { return };
        let _ = socket.recv(|_| (sent, ())); // it has been seen
    }
}

/// Answers any request, and ends the connection.
fn greet(socket: &mut tcp::Socket<'_>) {
    let is_whole = socket.peek(SCRATCH).is_ok_and(|bytes| bytes.ends_with(b"\r\n\r\n"));
    if is_whole && socket.can_send() {
        let _ = socket.recv(|bytes| (bytes.len(), ()));
        let _ = socket.send_slice(HELLO); // it fits in an empty buffer
        socket.close();
    }
}
