//! The kernel's tables of links, addresses and routes, asked and changed over netlink.
//!
//! Every exchange is bounded in time and in datagrams. Answers to what was asked before are left out by their number, and
//! what did not come from the kernel is not read.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use super::error::{NetError, remedy};
use super::link_info::{self as link, Link, Mac, attribute, check_name};
use super::message::{Attributes, Malformed, Message, Messages, Request, nested, text, u32_at};
use super::route::{self, Address, Route};
use super::sys;
use crate::sys::event::wait_readable;

/// How long the kernel may take for an answer.
const LIMIT: Duration = Duration::from_secs(5);
/// Datagrams of one answer, and room for one: the kernel sends at most 32 KiB at once.
const DATAGRAMS: usize = 1 << 20;
const ROOM: usize = 64 << 10;
/// Attempts to read a table that others change meanwhile.
const ATTEMPTS: usize = 8;

/// Kinds and flags of include/uapi/linux/netlink.h and rtnetlink.h, v7.3.
const ERROR: u16 = 2;
const DONE: u16 = 3;
const NEW_LINK: u16 = 16;
const DELETE_LINK: u16 = 17;
const GET_LINK: u16 = 18;
const NEW_ADDRESS: u16 = 20;
const GET_ADDRESS: u16 = 22;
const NEW_ROUTE: u16 = 24;
const GET_ROUTE: u16 = 26;
const REQUEST: u16 = 1;
const ACK: u16 = 4;
const CHANGED: u16 = 0x10;
const DUMP: u16 = 0x300;
const MAKE: u16 = 0x600;
const CAPPED: u16 = 0x100;
const ERROR_ATTRIBUTES: u16 = 0x200;
const ERROR_TEXT: u16 = 1;

/// One end of a veth pair that is to be.
#[derive(Clone, Copy, Debug)]
pub struct VethEnd<'a> {
    /// Its name: 1 to 15 bytes.
    pub name: &'a str,
    /// The namespace that it is made in; without one, that of the [`Netlink`].
    pub namespace: Option<BorrowedFd<'a>>,
    /// Its address; without one the kernel chooses.
    pub mac: Option<Mac>,
    /// Largest packet without the Ethernet header: 68 to 65535.
    pub mtu: u32,
    /// Receive and transmit queues, the same number: 1 to 4096.
    pub queues: u32,
}

/// A socket to the kernel's tables in one network namespace.
///
/// It stays in the namespace that it was opened in, and may be used from any thread.
#[derive(Debug)]
pub struct Netlink {
    socket: OwnedFd,
    sequence: u32,
    buffer: Box<[u8]>,
}

/// What is asked for, in words.
#[derive(Clone, Copy)]
struct Asked<'a> {
    request: &'static str,
    about: &'a str,
}

impl Netlink {
    /// Opens one in the calling thread's namespace.
    pub fn open() -> Result<Self, NetError> {
        let socket = sys::netlink::open().map_err(|error| NetError::call("socket", "netlink", error))?;
        Ok(Self { socket, sequence: 0, buffer: vec![0; ROOM].into() })
    }

    /// Every link of the namespace.
    pub fn links(&mut self) -> Result<Vec<Link>, NetError> {
        let request = Request::new(GET_LINK, DUMP, &link::header(0, 0, 0));
        self.exchange(request, Asked { request: "list", about: "the links" }, |message| {
            (message.kind == NEW_LINK).then(|| Link::parse(message)).transpose()
        })
    }

    /// The link of this name.
    pub fn link(&mut self, name: &str) -> Result<Link, NetError> {
        check_name(name)?;
        let mut request = Request::new(GET_LINK, ACK, &link::header(0, 0, 0));
        request.text(attribute::NAME, name);
        let found = self.exchange(request, Asked { request: "look up", about: name }, |message| {
            (message.kind == NEW_LINK).then(|| Link::parse(message)).transpose()
        });
        match found {
            Ok(found) => found.into_iter().next().ok_or(NetError::Malformed { what: "no link and no error" }),
            Err(error) if error.errno() == Some(sys::ENODEV) => Err(self.no_link(name)?),
            Err(error) => Err(error),
        }
    }

    fn no_link(&mut self, name: &str) -> Result<NetError, NetError> {
        let known = self.links()?.into_iter().map(|link| link.name).collect();
        Ok(NetError::NoLink { name: name.into(), known })
    }

    /// Makes a pair of links, each of which receives what is sent to the other. Both are down.
    pub fn add_veth(&mut self, near: &VethEnd<'_>, far: &VethEnd<'_>) -> Result<(), NetError> {
        check_name(near.name)?;
        check_name(far.name)?;
        let mut request = Request::new(NEW_LINK, MAKE | ACK, &link::header(0, 0, 0));
        describe(&mut request, near);
        request.nest(nested(attribute::INFO), |info| {
            info.text(attribute::INFO_KIND, "veth").nest(nested(attribute::INFO_DATA), |data| {
                data.nest(nested(attribute::VETH_PEER), |peer| {
                    describe(peer.fixed(&link::header(0, 0, 0)), far);
                });
            });
        });
        let about = format!("the veth pair {} and {}", near.name, far.name);
        self.change(request, "make", &about)
    }

    /// Deletes a link, and with a veth its peer.
    pub fn delete(&mut self, index: u32) -> Result<(), NetError> {
        let request = Request::new(DELETE_LINK, ACK, &link::header(index, 0, 0));
        self.change(request, "delete", &format!("link {index}"))
    }

    /// Turns a link on or off.
    pub fn set_up(&mut self, index: u32, up: bool) -> Result<(), NetError> {
        let flags = if up { link::UP } else { 0 };
        let request = Request::new(NEW_LINK, ACK, &link::header(index, flags, link::UP));
        self.change(request, if up { "turn on" } else { "turn off" }, &format!("link {index}"))
    }

    /// Sets the largest packet of a link.
    pub fn set_mtu(&mut self, index: u32, mtu: u32) -> Result<(), NetError> {
        let mut request = Request::new(NEW_LINK, ACK, &link::header(index, 0, 0));
        request.number(attribute::MTU, mtu);
        self.change(request, "set the MTU", &format!("of link {index} to {mtu}"))
    }

    /// Sets the MAC address of a link.
    pub fn set_mac(&mut self, index: u32, mac: Mac) -> Result<(), NetError> {
        let mut request = Request::new(NEW_LINK, ACK, &link::header(index, 0, 0));
        request.attribute(attribute::ADDRESS, &mac.0);
        self.change(request, "set the MAC address", &format!("of link {index} to {mac}"))
    }

    /// Gives a link an address, in a subnet of so many bits.
    pub fn add_address(&mut self, index: u32, ip: Ipv4Addr, bits: u8) -> Result<(), NetError> {
        let fixed = route::address_header(route::INET, bits, index);
        let mut request = Request::new(NEW_ADDRESS, MAKE | ACK, &fixed);
        request.attribute(route::attribute::LOCAL, &ip.octets());
        request.attribute(route::attribute::ADDRESS, &ip.octets());
        self.change(request, "add the address", &format!("{ip}/{bits} to link {index}"))
    }

    /// Adds a route to a network of so many bits, through a neighbour on one of the links; 0 bits are the default route.
    pub fn add_route(&mut self, to: Ipv4Addr, bits: u8, through: Ipv4Addr) -> Result<(), NetError> {
        let mut request = Request::new(NEW_ROUTE, MAKE | ACK, &route::new_header(bits));
        if bits > 0 {
            request.attribute(route::attribute::DESTINATION, &to.octets());
        }
        request.attribute(route::attribute::GATEWAY, &through.octets());
        self.change(request, "add the route", &format!("to {to}/{bits} through {through}"))
    }

    /// The links that the default route leaves through, of all tables and of both families of addresses.
    pub fn default_route_links(&mut self) -> Result<Vec<u32>, NetError> {
        let mut links = Vec::new();
        for family in [route::INET, route::INET6] {
            let request = Request::new(GET_ROUTE, DUMP, &route::header(family, 0));
            let asked = Asked { request: "list", about: "the routes" };
            let routes = self.exchange(request, asked, |message| {
                let route = if message.kind == NEW_ROUTE { Route::parse(message)? } else { None };
                Ok(route.filter(Route::is_default))
            })?;
            links.extend(routes.into_iter().flat_map(|route| route.links));
        }
        links.sort_unstable();
        links.dedup();
        Ok(links)
    }

    /// The link that a packet to this address would leave through, if there is a way.
    pub fn route_to(&mut self, to: IpAddr) -> Result<Option<u32>, NetError> {
        let (family, octets) = route::octets(to);
        let bits = u8::try_from(octets.len() * 8).expect("an address has at most 128 bits");
        let mut request = Request::new(GET_ROUTE, ACK, &route::header(family, bits));
        request.attribute(route::attribute::DESTINATION, &octets);
        let about = to.to_string();
        let routes = self.exchange(request, Asked { request: "find the way to", about: &about }, |message| {
            if message.kind == NEW_ROUTE { Route::parse(message) } else { Ok(None) }
        });
        match routes {
            Ok(routes) => Ok(routes.into_iter().flat_map(|route| route.links).next()),
            Err(error) if error.errno().is_some_and(sys::is_unreachable) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The links that have this address.
    pub fn links_with(&mut self, ip: IpAddr) -> Result<Vec<u32>, NetError> {
        let request = Request::new(GET_ADDRESS, DUMP, &route::address_header(0, 0, 0));
        let asked = Asked { request: "list", about: "the addresses" };
        let addresses = self.exchange(request, asked, |message| {
            let address = if message.kind == NEW_ADDRESS { Address::parse(message)? } else { None };
            Ok(address.filter(|address| address.ip == ip))
        })?;
        Ok(addresses.into_iter().map(|address| address.link).collect())
    }

    fn change(&mut self, request: Request, what: &'static str, about: &str) -> Result<(), NetError> {
        self.exchange(request, Asked { request: what, about }, |_| Ok(None::<()>)).map(|_| ())
    }

    /// Sends a request and picks what is wanted out of the answer. A table that changed while it was read is read again.
    fn exchange<T>(
        &mut self,
        request: Request,
        asked: Asked<'_>,
        mut pick: impl FnMut(&Message<'_>) -> Result<Option<T>, Malformed>,
    ) -> Result<Vec<T>, NetError> {
        let mut request = request.with_flags(REQUEST);
        let deadline = Instant::now() + LIMIT;
        for _ in 0..ATTEMPTS {
            self.sequence = self.sequence.wrapping_add(1);
            let bytes = request.numbered(self.sequence);
            sys::netlink::send(self.socket.as_fd(), bytes).map_err(|error| {
                NetError::call("send", format!("to {} {}", asked.request, asked.about), error)
            })?;
            let mut answer = Answer { picked: Vec::new(), changed: false };
            self.collect(&mut answer, asked, deadline, &mut pick)?;
            if !answer.changed {
                return Ok(answer.picked);
            }
        }
        Err(NetError::TooMuch { what: "changes of a table while it was read", limit: ATTEMPTS })
    }

    fn collect<T>(
        &mut self,
        answer: &mut Answer<T>,
        asked: Asked<'_>,
        deadline: Instant,
        pick: &mut impl FnMut(&Message<'_>) -> Result<Option<T>, Malformed>,
    ) -> Result<(), NetError> {
        for _ in 0..DATAGRAMS {
            let len = self.receive(asked, deadline)?;
            for message in Messages(&self.buffer[..len]) {
                let message = message?;
                if message.sequence != self.sequence {
                    continue; // of an exchange that was given up
                }
                answer.changed |= message.flags & CHANGED != 0;
                match End::of(&message)? {
                    None => answer.picked.extend(pick(&message)?),
                    Some(End { errno: 0, .. }) => return Ok(()),
                    Some(end) => return Err(end.refused(asked)),
                }
            }
        }
        Err(NetError::TooMuch { what: "datagrams in an answer", limit: DATAGRAMS })
    }

    /// Waits for a datagram from the kernel.
    fn receive(&mut self, asked: Asked<'_>, deadline: Instant) -> Result<usize, NetError> {
        let about = || format!("{} {}", asked.request, asked.about);
        loop {
            match sys::netlink::receive(self.socket.as_fd(), &mut self.buffer) {
                Ok((len, true)) if len <= self.buffer.len() => return Ok(len),
                Ok((_, true)) => {
                    return Err(NetError::Malformed { what: "a datagram longer than the kernel sends" });
                }
                Ok((_, false)) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    wait_readable(
                        [Some(self.socket.as_fd())],
                        deadline.saturating_duration_since(Instant::now()),
                    );
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(NetError::call("recvfrom", about(), error)),
            }
            if Instant::now() >= deadline {
                let remedy = "the kernel is busy removing network namespaces, perhaps; try again";
                return Err(NetError::Late { what: about(), limit: LIMIT, remedy });
            }
        }
    }
}

struct Answer<T> {
    picked: Vec<T>,
    changed: bool,
}

/// The last message of an answer.
struct End {
    errno: i32,
    words: Option<String>,
}

impl End {
    /// Reads it, if this is one.
    fn of(message: &Message<'_>) -> Result<Option<Self>, Malformed> {
        if message.kind != ERROR && message.kind != DONE {
            return Ok(None);
        }
        let number = u32_at(message.payload, 0).ok_or(Malformed("an end without its number"))?;
        let words = if message.flags & ERROR_ATTRIBUTES != 0 { words(message)? } else { None };
        Ok(Some(Self { errno: number.cast_signed().saturating_neg(), words }))
    }

    fn refused(self, asked: Asked<'_>) -> NetError {
        let source = io::Error::from_raw_os_error(self.errno);
        let (Asked { request, about }, Self { words, .. }) = (asked, self);
        NetError::Refused { request, about: about.into(), words, remedy: remedy(request, &source), source }
    }
}

/// What the kernel says of an error, behind the header of the request, or the whole of it, that it gives back.
fn words(message: &Message<'_>) -> Result<Option<String>, Malformed> {
    let behind = match message.kind {
        DONE => 4,
        _ if message.flags & CAPPED != 0 => 20,
        _ => {
            let request = u32_at(message.payload, 4).ok_or(Malformed("an error without its request"))?;
            usize::try_from(request).map_or(usize::MAX, |len| len.saturating_add(3) & !3).saturating_add(4)
        }
    };
    let attributes = message.payload.get(behind..).ok_or(Malformed("an error shorter than its request"))?;
    Ok(Attributes(attributes).find(ERROR_TEXT)?.map(text))
}

fn describe(request: &mut Request, end: &VethEnd<'_>) {
    request.text(attribute::NAME, end.name).number(attribute::MTU, end.mtu);
    request.number(attribute::TX_QUEUES, end.queues).number(attribute::RX_QUEUES, end.queues);
    if let Some(Mac(mac)) = end.mac {
        request.attribute(attribute::ADDRESS, &mac);
    }
    if let Some(namespace) = end.namespace {
        request.number(attribute::NAMESPACE, namespace.as_raw_fd().cast_unsigned());
    }
}

/// Reads any bytes as the kernel's answers of every kind, for proofs that none of them does harm; gives how many
/// messages there were.
#[cfg(any(test, feature = "testing"))]
pub(crate) fn read_all(datagram: &[u8]) -> usize {
    let read = |message: Result<Message<'_>, Malformed>| {
        let Ok(message) = message else { return };
        let _ = (Link::parse(&message), Route::parse(&message), Address::parse(&message));
        if let Ok(Some(end)) = End::of(&message) {
            let _ = end.refused(Asked { request: "read", about: "anything" }).to_string();
        }
    };
    Messages(datagram).map(read).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The answer of a kernel that refused, with words, as an echo of the whole request or of its header.
    fn refusal(capped: bool, errno: i32) -> Vec<u8> {
        let mut request = Request::new(NEW_LINK, REQUEST, &link::header(1, 0, 0));
        let request = request.numbered(9);
        let mut fixed = (-errno).to_ne_bytes().to_vec();
        fixed.extend_from_slice(if capped { &request[..16] } else { request });
        let flags = ERROR_ATTRIBUTES | if capped { CAPPED } else { 0 };
        let mut answer = Request::new(ERROR, flags, &fixed);
        answer.text(ERROR_TEXT, "no such thing");
        answer.numbered(9).to_vec()
    }

    #[test]
    fn refusals_come_with_the_kernels_words() {
        for capped in [false, true] {
            let bytes = refusal(capped, sys::EBUSY);
            let end = End::of(&Messages(&bytes).next().unwrap().unwrap()).unwrap().unwrap();
            let error = end.refused(Asked { request: "make", about: "a veth" });
            assert_eq!(error.errno(), Some(sys::EBUSY));
            let expected = "the kernel refused to make a veth, saying \"no such thing\"; somebody else uses it; wait \
                            until that ends, or end it";
            assert_eq!(error.to_string(), expected);
        }
    }

    #[test]
    fn hostile_bytes_do_no_harm() {
        let mut bytes = refusal(false, i32::MIN + 1);
        bytes.extend(refusal(true, 0));
        for kind in [NEW_LINK, NEW_ADDRESS, NEW_ROUTE, ERROR, DONE] {
            let mut message = Request::new(kind, 0xffff, &[1; 16]);
            message.text(3, "name").nest(43, |xdp| {
                xdp.number(5, 1).attribute(6, &[]);
            });
            message.attribute(9, &[8, 0, 0, 0, 1, 0, 0, 0, 7]).attribute(2, &[1; 4]);
            bytes.extend_from_slice(message.numbered(1));
        }
        assert_eq!(read_all(&bytes), 7);
        for cut in 0..bytes.len() {
            read_all(&bytes[..cut]);
            for value in [0, 1, 3, 4, 0x7f, 0x80, 0xff] {
                let mut changed = bytes.clone();
                changed[cut] = value;
                read_all(&changed);
            }
        }
        let mut state = 1u32;
        for _ in 0..4_000 {
            let mut changed = bytes.clone();
            for _ in 0..4 {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let at = (state >> 8) as usize % changed.len();
                changed[at] = state as u8 ^ (state >> 24) as u8;
            }
            read_all(&changed);
        }
    }
}
