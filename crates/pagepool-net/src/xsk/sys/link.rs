//! Interfaces of this thread's network namespace: numbers, queues, rings, and the XDP program that is there.

// UNSAFETY: system calls, whose arguments name memory by address.
#![expect(unsafe_code)]

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Commands of the ethtool ioctl (include/uapi/linux/ethtool.h, v7.3).
const ETHTOOL_GDRVINFO: u32 = 0x03;
const ETHTOOL_GRINGPARAM: u32 = 0x10;
const ETHTOOL_GCHANNELS: u32 = 0x3c;
/// Nested attributes of `IFLA_XDP` (include/uapi/linux/if_link.h, v7.3).
const IFLA_XDP: u16 = 43;
const IFLA_XDP_PROG_IDS: [u16; 4] = [4, 5, 6, 7];
/// The name of a queueing discipline (include/uapi/linux/rtnetlink.h, v7.3).
const TCA_KIND: u16 = 1;
/// Most datagrams of an answer, and most bytes that the kernel puts into one.
const DATAGRAMS: usize = 1 << 16;
const DATAGRAM: usize = 1 << 16;
/// Bits of an attribute's type that are not its type.
const NLA_TYPE_MASK: u16 = 0x3fff;

/// The number of an interface.
pub(crate) fn index_of(name: &str) -> io::Result<u32> {
    let name = CString::new(name).map_err(|_| io::Error::from_raw_os_error(libc::ENODEV))?;
    // SAFETY: a string that ends with 0.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    if index == 0 { Err(io::Error::last_os_error()) } else { Ok(index) }
}

/// The names of all interfaces of this thread's network namespace; none if the kernel does not say.
pub(crate) fn names() -> Vec<String> {
    // SAFETY: gives a list that nobody else has, or none.
    let list = unsafe { libc::if_nameindex() };
    let (mut names, mut at) = (Vec::new(), list);
    // SAFETY: the list ends with an entry without a name, and is looked at no further.
    while let Some(name) = unsafe { at.as_ref() }.map(|entry| entry.if_name).filter(|name| !name.is_null()) {
        // SAFETY: a string that ends with 0 and lives as long as the list.
        names.push(unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned());
        at = at.wrapping_add(1);
    }
    if !list.is_null() {
        // SAFETY: the call above gave it, and nothing of it is used any more.
        unsafe { libc::if_freenameindex(list) };
    }
    names
}

/// Receive and transmit queues of an interface, where its driver says.
pub(crate) fn queues(name: &str) -> io::Result<(u32, u32)> {
    let [_, _, _, _, _, rx, tx, _, combined] = ethtool::<9>(name, ETHTOOL_GCHANNELS)?;
    Ok((rx.saturating_add(combined), tx.saturating_add(combined)))
}

/// Slots of the receive ring of an interface's hardware, where its driver says.
pub(crate) fn hardware_ring(name: &str) -> io::Result<u32> {
    let [_, _, _, _, _, rx, ..] = ethtool::<9>(name, ETHTOOL_GRINGPARAM)?;
    Ok(rx)
}

/// The longest payload of a packet on an interface.
pub(crate) fn mtu(name: &str) -> io::Result<u32> {
    let socket = socket(libc::AF_INET, libc::SOCK_DGRAM, 0)?;
    let mut request = request_for(name)?;
    // SAFETY: the kernel reads the name, and writes within the request.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFMTU as _, &raw mut request) };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel wrote an integer.
    Ok(unsafe { request.ifr_ifru.ifru_mtu } as u32)
}

/// Whether an interface is one of a pair whose other end gets what it sends; false also where the kernel does not say.
pub(crate) fn is_veth(name: &str) -> bool {
    let driver = b"veth\0";
    ethtool::<DRVINFO>(name, ETHTOOL_GDRVINFO).is_ok_and(|answer| {
        let bytes = answer[1..3].iter().flat_map(|word| word.to_ne_bytes()); // its name is behind the command
        bytes.take(driver.len()).eq(*driver)
    })
}

/// Whether packets of an interface begin with an Ethernet header.
pub(crate) fn is_ethernet(name: &str) -> bool {
    let ask = || {
        let socket = socket(libc::AF_INET, libc::SOCK_DGRAM, 0)?;
        let mut request = request_for(name)?;
        // SAFETY: the kernel reads the name, and writes within the request.
        let done = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFHWADDR as _, &raw mut request) };
        if done < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel wrote an address, whose family is the kind of hardware.
        Ok(unsafe { request.ifr_ifru.ifru_hwaddr.sa_family })
    };
    ask().is_ok_and(|kind| [libc::ARPHRD_ETHER, libc::ARPHRD_LOOPBACK].contains(&kind))
}

/// The queueing disciplines, and places for filters, of what goes out of an interface: `noqueue` alone is none. There are none before
/// it was set up for the first time.
pub(crate) fn disciplines(index: u32) -> io::Result<Vec<String>> {
    const HEADERS: usize = 36; // a header of 16 bytes, and a tcmsg of 20
    let mut request = [0u8; HEADERS];
    request[..4].copy_from_slice(&(HEADERS as u32).to_ne_bytes());
    request[4..6].copy_from_slice(&libc::RTM_GETQDISC.to_ne_bytes());
    request[6..8].copy_from_slice(&((libc::NLM_F_REQUEST | libc::NLM_F_DUMP) as u16).to_ne_bytes());
    let mut found = Vec::new();
    netlink(&request, |message| {
        let is_here = message.get(20..24) == Some(&index.to_ne_bytes());
        let mut parts = attributes(message.get(HEADERS..).unwrap_or(&[]));
        let kind = parts.find(|&(kind, _)| kind == TCA_KIND).map(|(_, name)| text(name));
        found.extend(kind.filter(|kind| is_here && kind != "ingress")); // that is for what comes in
    })?;
    Ok(found)
}

/// Words of `struct ethtool_drvinfo`: the command, six texts of 32, 32, 32, 32, 32 and 12 bytes, and five counts.
const DRVINFO: usize = 49;

/// Asks the driver for one of the structures of so many integers.
fn ethtool<const WORDS: usize>(name: &str, command: u32) -> io::Result<[u32; WORDS]> {
    let socket = socket(libc::AF_INET, libc::SOCK_DGRAM, 0)?;
    let mut answer = [0u32; WORDS];
    answer[0] = command;
    let mut request = request_for(name)?;
    request.ifr_ifru.ifru_data = answer.as_mut_ptr().cast();
    // SAFETY: the kernel reads the request, and writes at most the integers that the command gives.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(answer) }
}

/// A request about an interface.
fn request_for(name: &str) -> io::Result<libc::ifreq> {
    // SAFETY: zeroes are a request.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.len() >= request.ifr_name.len() {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    Ok(request)
}

/// The number of the XDP program on an interface, if there is one.
pub(crate) fn xdp_program_on(index: u32) -> io::Result<Option<u32>> {
    let mut request = [0u8; 32]; // a header of 16 bytes, and an ifinfomsg of 16
    request[..4].copy_from_slice(&32u32.to_ne_bytes());
    request[4..6].copy_from_slice(&libc::RTM_GETLINK.to_ne_bytes());
    request[6..8].copy_from_slice(&(libc::NLM_F_REQUEST as u16).to_ne_bytes());
    request[20..24].copy_from_slice(&index.to_ne_bytes());
    let mut found = None;
    netlink(&request, |message| found = found.or(program_in(message)))?;
    Ok(found)
}

/// Asks the kernel, and shows every message of its answer; an error that it answers is one.
fn netlink(request: &[u8], mut show: impl FnMut(&[u8])) -> io::Result<()> {
    let socket = socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE)?;
    // SAFETY: the kernel reads the request.
    let sent = unsafe { libc::send(socket.as_raw_fd(), request.as_ptr().cast(), request.len(), 0) };
    if sent < 0 {
        return Err(io::Error::last_os_error());
    }
    let mut answer = vec![0u8; DATAGRAM];
    for _ in 0..DATAGRAMS {
        // SAFETY: the kernel writes at most as many bytes as there are.
        let got = unsafe { libc::recv(socket.as_raw_fd(), answer.as_mut_ptr().cast(), answer.len(), 0) };
        let got = usize::try_from(got).map_err(|_| io::Error::last_os_error())?;
        if !show_all(&answer[..got], &mut show)? {
            return Ok(());
        }
    }
    Err(io::Error::from_raw_os_error(libc::EMSGSIZE))
}

/// Shows the messages of a datagram; says whether more of them are to come.
fn show_all(mut datagram: &[u8], show: &mut impl FnMut(&[u8])) -> io::Result<bool> {
    let mut more = false;
    while let Some(header) = datagram.get(..16) {
        let field = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
        let len = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let Some(message) = datagram.get(..len).filter(|_| len >= header.len()) else { break };
        if [libc::NLMSG_DONE, libc::NLMSG_ERROR].contains(&i32::from(field(4))) {
            let code =
                message.get(16..20).and_then(|code| code.try_into().ok()).map_or(0, i32::from_ne_bytes);
            return if code < 0 { Err(io::Error::from_raw_os_error(-code)) } else { Ok(false) };
        }
        more = i32::from(field(6)) & libc::NLM_F_MULTI != 0;
        show(message);
        datagram = datagram.get(len.next_multiple_of(4)..).unwrap_or(&[]);
    }
    Ok(more)
}

/// A text that ends with 0, or with its bytes.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// Finds the program in an answer of `RTM_GETLINK`.
fn program_in(answer: &[u8]) -> Option<u32> {
    let is_link = answer.get(4..6)? == libc::RTM_NEWLINK.to_ne_bytes();
    let links = answer.get(32..).filter(|_| is_link)?;
    let (_, xdp) = attributes(links).find(|&(kind, _)| kind == IFLA_XDP)?;
    let ids = attributes(xdp).filter(|(kind, _)| IFLA_XDP_PROG_IDS.contains(kind));
    ids.filter_map(|(_, id)| Some(u32::from_ne_bytes(id.try_into().ok()?))).find(|&id| id != 0)
}

/// The attributes that stand one behind the other: type and payload.
fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let len = u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?) as usize;
        let kind = u16::from_ne_bytes(bytes.get(2..4)?.try_into().ok()?) & NLA_TYPE_MASK;
        let payload = bytes.get(4..len)?;
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or(&[]);
        Some((kind, payload))
    })
}

fn socket(family: libc::c_int, kind: libc::c_int, protocol: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: the call takes three integers.
    let fd = unsafe { libc::socket(family, kind | libc::SOCK_CLOEXEC, protocol) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call just made this descriptor, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_among_attributes_and_broken_answers_are_none() {
        let attribute = |kind: u16, payload: &[u8]| {
            let mut bytes = ((payload.len() + 4) as u16).to_ne_bytes().to_vec();
            bytes.extend(kind.to_ne_bytes());
            bytes.extend(payload);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
            bytes
        };
        let xdp = [attribute(2, &[1]), attribute(4, &77u32.to_ne_bytes())].concat();
        let mut answer = vec![0; 32];
        answer[4..6].copy_from_slice(&libc::RTM_NEWLINK.to_ne_bytes());
        answer.extend(attribute(3, b"veth0\0"));
        answer.extend(attribute(IFLA_XDP, &xdp));
        assert_eq!(program_in(&answer), Some(77));
        for len in 0..answer.len() {
            assert_eq!(program_in(&answer[..len]), None, "cut at {len}");
        }
    }

    #[test]
    fn answers_end_where_the_kernel_says_and_its_errors_are_errors() {
        let message = |kind: i32, flags: i32, payload: &[u8]| {
            let len = 16 + payload.len() as u32;
            let mut bytes = len.to_ne_bytes().to_vec();
            bytes.extend((kind as u16).to_ne_bytes().iter().chain(&(flags as u16).to_ne_bytes()));
            bytes.resize(16, 0);
            bytes.extend(payload);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
            bytes
        };
        let seen = |datagram: &[u8]| {
            let mut lengths = Vec::new();
            let more = show_all(datagram, &mut |message: &[u8]| lengths.push(message.len()));
            (more.map_err(|error| error.raw_os_error()), lengths)
        };
        let one = |flags| message(i32::from(libc::RTM_NEWLINK), flags, &[7; 5]);
        let code = |code: i32| code.to_ne_bytes();
        let several = [one(libc::NLM_F_MULTI), one(libc::NLM_F_MULTI)].concat();
        assert_eq!(seen(&one(0)), (Ok(false), vec![21]));
        assert_eq!(seen(&several), (Ok(true), vec![21, 21]), "more are to come");
        let done = [several.clone(), message(libc::NLMSG_DONE, libc::NLM_F_MULTI, &code(0))].concat();
        assert_eq!(seen(&done), (Ok(false), vec![21, 21]));
        let refused = message(libc::NLMSG_ERROR, 0, &code(-libc::EPERM));
        assert_eq!(seen(&refused), (Err(Some(libc::EPERM)), vec![]));
        for len in 0..several.len() {
            assert!(seen(&several[..len]).0.is_ok(), "cut at {len}");
        }
        assert_eq!(seen(&[0; 64]), (Ok(false), vec![]), "a length that cannot be");
    }
}
