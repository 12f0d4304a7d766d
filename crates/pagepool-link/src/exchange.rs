//! A netlink socket, and one exchange over it: a request, and its whole answer.
//!
//! Every exchange is limited in time and datagrams. Answers to earlier requests are recognised by their
//! sequence number and skipped. Datagrams of other senders than the kernel are ignored.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use crate::error::{LinkError, remedy_of};
use crate::message::{Attributes, Malformed, NetlinkMessage, NetlinkMessages, Request, text, u32_at};
use crate::sys::poll::wait_readable;
use crate::sys::{self, uapi};

/// The time limit for an answer.
const LIMIT: Duration = Duration::from_secs(5);
/// The most datagrams of one answer.
const DATAGRAMS: usize = 1 << 20;
/// Bytes for one datagram; the kernel sends at most 32 KiB at once.
const DATAGRAM_BYTES: usize = 64 << 10;
/// Attempts to read a table that changes while it is read.
const ATTEMPTS: usize = 8;

#[derive(Debug)]
pub(crate) struct NetlinkSocket {
    socket: OwnedFd,
    sequence: u32,
    buffer: Box<[u8]>,
}

/// The purpose of a request, for errors: what is asked, and about what.
pub(crate) type Purpose<'a> = (&'static str, &'a str);

impl NetlinkSocket {
    /// Opens a socket for a netlink protocol in the calling thread's namespace.
    pub(crate) fn open(protocol: i32) -> Result<Self, LinkError> {
        let socket = sys::netlink::open(protocol);
        let socket = socket.map_err(|error| LinkError::call("socket", "netlink", error))?;
        Ok(Self::over(socket))
    }

    pub(crate) fn over(socket: OwnedFd) -> Self {
        Self { socket, sequence: 0, buffer: vec![0; DATAGRAM_BYTES].into() }
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Sends a request and parses the messages of one kind in the answer. Repeats it if the table changed in
    /// between.
    pub(crate) fn exchange<T>(
        &mut self,
        mut request: Request,
        purpose: Purpose<'_>,
        kind: u16,
        parse: impl Fn(&NetlinkMessage<'_>) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, LinkError> {
        let deadline = Instant::now() + LIMIT;
        for _ in 0..ATTEMPTS {
            let mut read = Vec::new();
            let pick = |message: &NetlinkMessage<'_>| {
                read.extend((message.kind == kind).then(|| parse(message)).transpose()?);
                Ok(())
            };
            if !self.ask(&mut request, purpose, (deadline, DATAGRAMS), pick)? {
                return Ok(read);
            }
        }
        Err(LinkError::TooMuch { what: "changes of a table while it was read", limit: ATTEMPTS })
    }

    /// Sends a request, and passes the answer's messages to `pick`, up to the last. Returns whether the table
    /// changed in between. The limits are those of the answer: when, and after how many datagrams.
    pub(crate) fn ask(
        &mut self,
        request: &mut Request,
        purpose: Purpose<'_>,
        (deadline, most): (Instant, usize),
        mut pick: impl FnMut(&NetlinkMessage<'_>) -> Result<(), Malformed>,
    ) -> Result<bool, LinkError> {
        self.sequence = self.sequence.wrapping_add(1);
        sys::netlink::send(self.socket.as_fd(), request.numbered(self.sequence))
            .map_err(|error| LinkError::call("send", format!("to {} {}", purpose.0, purpose.1), error))?;
        let mut changed = false;
        for _ in 0..most {
            let len = self.receive(purpose, deadline)?;
            for message in NetlinkMessages(&self.buffer[..len]) {
                let message = message?;
                if message.sequence != self.sequence {
                    continue; // of an exchange that was aborted
                }
                changed |= message.flags & uapi::NLM_F_DUMP_INTR != 0;
                match FinalMessage::parse(&message)? {
                    None => pick(&message)?,
                    Some(FinalMessage { errno: 0, .. }) => return Ok(changed),
                    Some(end) => return Err(end.refused(purpose)),
                }
            }
        }
        Err(LinkError::TooMuch { what: "datagrams in an answer", limit: most })
    }

    /// Receives a datagram, and returns its length: 0 if the kernel did not send it.
    fn receive(&mut self, (what, about): Purpose<'_>, deadline: Instant) -> Result<usize, LinkError> {
        let about = || format!("{what} {about}");
        loop {
            match sys::netlink::receive(self.socket.as_fd(), &mut self.buffer) {
                Ok((len, true)) if len <= self.buffer.len() => return Ok(len),
                Ok((_, true)) => {
                    return Err(LinkError::Malformed { what: "a datagram longer than the kernel sends" });
                }
                Ok((_, false)) => return Ok(0),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    wait_readable(
                        [Some(self.socket.as_fd())],
                        deadline.saturating_duration_since(Instant::now()),
                    );
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(LinkError::call("recvfrom", about(), error)),
            }
            if Instant::now() >= deadline {
                let remedy = "the kernel may be busy with removing network namespaces; try again";
                return Err(LinkError::TimedOut { what: about(), limit: LIMIT, remedy });
            }
        }
    }
}

/// The last message of an answer.
pub(crate) struct FinalMessage {
    /// Why the kernel refused; 0 if it did not.
    pub(crate) errno: i32,
    extack: Option<String>,
}

impl FinalMessage {
    pub(crate) fn parse(message: &NetlinkMessage<'_>) -> Result<Option<Self>, Malformed> {
        if message.kind != uapi::NLMSG_ERROR && message.kind != uapi::NLMSG_DONE {
            return Ok(None);
        }
        let number = u32_at(message.payload, 0).ok_or(Malformed("an end without its number"))?;
        let extack = if message.flags & uapi::NLM_F_ACK_TLVS != 0 { extack(message)? } else { None };
        Ok(Some(Self { errno: number.cast_signed().saturating_neg(), extack }))
    }

    pub(crate) fn refused(self, (request, about): Purpose<'_>) -> LinkError {
        let source = io::Error::from_raw_os_error(self.errno);
        let remedy = remedy_of(request, &source);
        LinkError::Refused { request, about: about.into(), extack: self.extack, remedy, source }
    }
}

/// The kernel's text for an error. It follows the echo of the request, or of its header.
fn extack(message: &NetlinkMessage<'_>) -> Result<Option<String>, Malformed> {
    let behind = match message.kind {
        uapi::NLMSG_DONE => 4,
        _ if message.flags & uapi::NLM_F_CAPPED != 0 => 20,
        _ => {
            let request = u32_at(message.payload, 4).ok_or(Malformed("an error without its request"))?;
            usize::try_from(request).map_or(usize::MAX, |len| len.saturating_add(3) & !3).saturating_add(4)
        }
    };
    let attributes = message.payload.get(behind..).ok_or(Malformed("an error shorter than its request"))?;
    Ok(Attributes(attributes).find(uapi::NLMSGERR_ATTR_MSG)?.map(text))
}

/// A refusal of the kernel, with text, and an echo of the whole request or of its header.
#[cfg(test)]
pub(crate) fn refusal(capped: bool, errno: i32) -> Vec<u8> {
    let mut request = Request::new(uapi::RTM_NEWLINK, uapi::NLM_F_REQUEST, &[0; 16]);
    let request = request.numbered(9);
    let mut fixed = (-errno).to_ne_bytes().to_vec();
    fixed.extend_from_slice(if capped { &request[..16] } else { request });
    let flags = uapi::NLM_F_ACK_TLVS | if capped { uapi::NLM_F_CAPPED } else { 0 };
    let mut answer = Request::new(uapi::NLMSG_ERROR, flags, &fixed);
    answer.text(uapi::NLMSGERR_ATTR_MSG, "no such thing");
    answer.numbered(9).to_vec()
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixDatagram;
    use std::thread;

    use super::*;
    use crate::sys::errno;

    #[test]
    fn refusals_come_with_the_kernels_words() {
        for capped in [false, true] {
            let bytes = refusal(capped, errno::EBUSY);
            let end =
                FinalMessage::parse(&NetlinkMessages(&bytes).next().unwrap().unwrap()).unwrap().unwrap();
            let error = end.refused(("make", "a veth"));
            assert_eq!(error.errno(), Some(errno::EBUSY));
            let expected = "the kernel refused to make a veth, saying \"no such thing\"; it is in use; \
                            stop the program that uses it";
            assert_eq!(error.to_string(), expected);
        }
    }

    fn message(kind: u16, flags: u16, payload: &[u8]) -> Vec<u8> {
        let mut bytes = Request::new(kind, flags, payload).numbered(1).to_vec();
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    /// Exchanges one request with a fake kernel that answers each attempt with these datagrams. Those of
    /// [`message`] get the request's sequence number.
    fn exchange_with(attempts: &[&[&[u8]]]) -> Result<Vec<usize>, LinkError> {
        let (ours, kernel) = UnixDatagram::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let mut socket = NetlinkSocket { buffer: vec![0; 256].into(), ..NetlinkSocket::over(ours.into()) };
        thread::scope(|threads| {
            threads.spawn(|| {
                for (datagrams, sequence) in attempts.iter().zip(1u32..) {
                    kernel.recv(&mut [0; 64]).unwrap();
                    for datagram in *datagrams {
                        let mut datagram = datagram.to_vec();
                        if datagram[8..12] == 1u32.to_ne_bytes() {
                            datagram[8..12].copy_from_slice(&sequence.to_ne_bytes());
                        }
                        kernel.send(&datagram).unwrap();
                    }
                }
            });
            let request = Request::new(uapi::RTM_GETLINK, 0, &[]);
            socket.exchange(request, ("list", "anything"), uapi::RTM_NEWLINK, |message| {
                Ok(message.payload.len())
            })
        })
    }

    #[test]
    fn answers_end_where_the_kernel_says_and_its_errors_are_errors() {
        let link = |flags| message(uapi::RTM_NEWLINK, flags, &[7; 5]);
        let code = |errno: i32| (-errno).to_ne_bytes();
        let (done, ack) = (message(uapi::NLMSG_DONE, 0, &code(0)), message(uapi::NLMSG_ERROR, 0, &code(0)));
        let refused = message(uapi::NLMSG_ERROR, 0, &code(errno::EPERM));
        assert_eq!(exchange_with(&[&[&link(0), &link(0), &done]]).unwrap(), [5, 5]);
        assert_eq!(exchange_with(&[&[&link(0), &ack]]).unwrap(), [5]);
        assert_eq!(exchange_with(&[&[&refused]]).unwrap_err().errno(), Some(errno::EPERM));
        let interrupted = link(uapi::NLM_F_DUMP_INTR);
        let again = exchange_with(&[&[&interrupted, &done], &[&link(0), &link(0), &done]]);
        assert_eq!(again.unwrap(), [5, 5], "a table that changed is read again");
        let cut = exchange_with(&[&[&link(0)[..18]]]).unwrap_err();
        assert!(matches!(cut, LinkError::Malformed { .. }), "{cut}");
        let long = exchange_with(&[&[&[0; 300]]]).unwrap_err();
        assert!(matches!(long, LinkError::Malformed { .. }), "{long}");
    }

    #[test]
    fn answers_to_other_requests_are_skipped() {
        let (link, done) = (message(uapi::RTM_NEWLINK, 0, &[7; 5]), message(uapi::NLMSG_DONE, 0, &[0; 4]));
        let [mut other, mut refused] = [link.clone(), message(uapi::NLMSG_ERROR, 0, &[0xff; 4])];
        (other[8], refused[8]) = (99, 99);
        assert_eq!(exchange_with(&[&[&other, &refused, &link, &done]]).unwrap(), [5]);
    }

    #[test]
    fn datagrams_that_are_cut_end() {
        let link = message(uapi::RTM_NEWLINK, 0, &[7; 5]);
        let several = [link.clone(), link].concat();
        for len in 0..several.len() {
            let read = NetlinkMessages(&several[..len]).filter(Result::is_ok).count();
            assert_eq!(read, usize::from(len >= 21) + usize::from(len >= 45), "cut at {len}");
        }
        assert_eq!(NetlinkMessages(&[0; 64]).filter(Result::is_ok).count(), 0, "a length that cannot be");
    }
}
