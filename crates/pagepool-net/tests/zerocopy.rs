//! Pages of a pool sent over real sockets on loopback: the receiver finds what was written, no page is used
//! again before the kernel is done with it, and all have returned at the end.

#![expect(clippy::unwrap_used, reason = "a test fails where it cannot go on")]

use std::collections::HashMap;
use std::io::{ErrorKind, IoSlice, Read};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pagepool::{
    Arena, ArenaParams, Bound, DeferredUser, InUse, OnBusy, PAGE_SIZE, PageBuf, PageIdx, Pool, PoolParams,
};
use pagepool_net::{Sent, ZeroCopySocket};

/// Long enough for a machine that is busy.
const LIMIT: Duration = Duration::from_secs(60);

/// A socket, or the reason why there is none on this machine.
fn zero_copy(test: &str, socket: impl Into<OwnedFd>) -> Option<Arc<ZeroCopySocket>> {
    match ZeroCopySocket::new(socket) {
        Ok(socket) => Some(Arc::new(socket)),
        Err(refused) => {
            println!("SKIP {test}: {refused}");
            None
        }
    }
}

fn udp_pair() -> (UdpSocket, UdpSocket) {
    let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
    receiver.set_read_timeout(Some(LIMIT)).unwrap();
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    sender.connect(receiver.local_addr().unwrap()).unwrap();
    (sender, receiver)
}

fn tcp_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (receiver, _) = listener.accept().unwrap();
    receiver.set_read_timeout(Some(LIMIT)).unwrap();
    sender.set_write_timeout(Some(LIMIT)).unwrap();
    sender.set_nodelay(true).unwrap();
    (sender, receiver)
}

/// A pool whose pages are sent, and what is known of each.
struct Sender {
    arena: Arc<Arena>,
    pool: Bound,
    socket: Arc<ZeroCopySocket>,
    user: DeferredUser,
    /// The cookie that each page was queued with last.
    cookies: HashMap<PageIdx, u64>,
    reused: u64,
}

impl Sender {
    /// Over few pages, so that they must come back.
    fn new(socket: Arc<ZeroCopySocket>, on_busy: OnBusy) -> Self {
        let arena = Arena::new(ArenaParams { max_bytes: 48 << 12, ..Default::default() }).unwrap();
        let params =
            PoolParams { refill: 8, cache_size: 16, defer_capacity: 32, on_busy, ..Default::default() };
        let pool = Pool::new(params, arena.clone()).unwrap().bind();
        let user = pool.deferred_user(socket.clone()).unwrap();
        Self { arena, pool, socket, user, cookies: HashMap::new(), reused: 0 }
    }

    /// A page that nobody reads any more, all of it the number's lowest byte.
    fn page(&mut self, number: u64) -> PageBuf {
        let until = Instant::now() + LIMIT;
        let mut buffer = loop {
            if let Some(buffer) = self.pool.alloc_page() {
                break buffer;
            }
            assert!(Instant::now() < until, "no page came back: {:?}", self.pool.deferred_stats());
            std::thread::yield_now();
        };
        if let Some(cookie) = self.cookies.remove(&buffer.page()) {
            assert!(!self.socket.in_use(cookie), "page {:?} is used too early", buffer.page());
            self.reused += 1;
        }
        buffer.bytes_mut().unwrap().fill(number as u8);
        buffer
    }

    fn queue(&mut self, mut buffer: PageBuf, sent: Sent) {
        let Some(cookie) = sent.cookie else { return drop(buffer) };
        self.cookies.insert(buffer.page(), cookie);
        let until = Instant::now() + LIMIT;
        while let Err(back) = self.pool.defer(&self.user, buffer, cookie) {
            assert!(Instant::now() < until, "the queue stays full: {:?}", self.pool.deferred_stats());
            std::thread::yield_now();
            self.pool.poll_deferred();
            buffer = back;
        }
    }

    /// Ends the pool: all pages return, and every send is over.
    fn end(self) {
        let handle = self.pool.handle();
        let shutdown = self.pool.destroy();
        assert!(shutdown.wait(LIMIT), "{}", shutdown.report());
        let (stats, waits) = (self.socket.stats(), handle.deferred_stats());
        assert_eq!(stats.copied + stats.zero_copy, stats.sends, "{stats:?}");
        assert_eq!((waits.pending(), waits.leaked, handle.inflight().total), (0, 0, 0), "{waits:?}");
        assert_eq!(waits.queued, waits.reused + waits.freed_late);
        assert_eq!(self.arena.pages_out(), 0);
        println!("{stats:?}, {} pages used again, {waits:?}", self.reused);
    }
}

#[test]
fn zero_copy_datagrams_return_their_pages() {
    for on_busy in [OnBusy::Keep, OnBusy::Skip { ahead: 8 }, OnBusy::Release] {
        let (sender, receiver) = udp_pair();
        let Some(socket) = zero_copy("datagrams", sender) else { return };
        let mut sender = Sender::new(socket.clone(), on_busy);
        let mut packet = vec![0; 2 * PAGE_SIZE];
        for number in 0..2000_u64 {
            let buffer = sender.page(number);
            let sent = socket.send(&[IoSlice::new(buffer.bytes().unwrap())]).unwrap();
            assert_eq!(sent.bytes, PAGE_SIZE);
            sender.queue(buffer, sent);
            if number % 4 == 3 {
                (number - 3..=number).for_each(|number| receive(&receiver, &mut packet, number));
            }
        }
        assert!(sender.reused > 1000, "{} pages of 48 were used again", sender.reused);
        let stats = socket.stats();
        assert_eq!((stats.sends + stats.refused, stats.ordinary, stats.other_notes), (2000, 0, 0));
        sender.end();
    }
}

fn receive(receiver: &UdpSocket, packet: &mut [u8], number: u64) {
    assert_eq!(receiver.recv(packet).unwrap(), PAGE_SIZE);
    assert!(packet[..PAGE_SIZE].iter().all(|&byte| byte == number as u8), "datagram {number}");
}

#[test]
fn a_zero_copy_stream_returns_its_pages() {
    for nonblocking in [false, true] {
        let (sender, receiver) = tcp_pair();
        sender.set_nonblocking(nonblocking).unwrap();
        let Some(socket) = zero_copy("a stream", sender) else { return };
        let mut sender = Sender::new(socket.clone(), OnBusy::Keep);
        let reader = std::thread::spawn(move || read_pages(receiver, 2000));
        for number in 0..2000 {
            let buffer = sender.page(number);
            let sent = send_all(&socket, buffer.bytes().unwrap());
            sender.queue(buffer, sent);
        }
        reader.join().expect("the reader found every byte");
        assert!(sender.reused > 1000, "{} pages of 48 were used again", sender.reused);
        sender.end();
    }
}

/// As many sends as it takes; the cookie is the last one's that has one.
fn send_all(socket: &ZeroCopySocket, bytes: &[u8]) -> Sent {
    let mut sent = Sent { bytes: 0, cookie: None };
    let until = Instant::now() + LIMIT;
    while sent.bytes < bytes.len() {
        assert!(Instant::now() < until, "the stream does not move");
        match socket.send(&[IoSlice::new(&bytes[sent.bytes..])]) {
            Ok(part) => {
                sent.bytes += part.bytes;
                sent.cookie = part.cookie.or(sent.cookie);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
    }
    sent
}

fn read_pages(mut receiver: TcpStream, pages: u64) {
    let mut page = vec![0; PAGE_SIZE];
    for number in 0..pages {
        receiver.read_exact(&mut page).unwrap();
        assert!(page.iter().all(|&byte| byte == number as u8), "page {number} of the stream");
    }
}

#[test]
fn a_peer_that_is_gone_ends_the_wait() {
    let (sender, receiver) = tcp_pair();
    sender.set_nonblocking(true).unwrap();
    let Some(socket) = zero_copy("a peer that is gone", sender) else { return };
    let mut sender = Sender::new(socket.clone(), OnBusy::Keep);
    for number in 0..16 {
        let buffer = sender.page(number);
        let sent = send_all(&socket, buffer.bytes().unwrap());
        sender.queue(buffer, sent);
    }
    drop(receiver); // with bytes unread: a reset
    let until = Instant::now() + LIMIT;
    while Instant::now() < until && socket.send(&[IoSlice::new(b"more")]).is_ok() {
        std::thread::sleep(Duration::from_millis(1));
    }
    sender.end();
    let before = socket.stats();
    assert!(socket.send(&[IoSlice::new(b"more")]).is_err());
    assert_eq!(socket.stats(), before, "a send that failed is not one");
}

#[test]
fn the_pool_keeps_the_socket_until_the_kernel_is_done() {
    let (sender, mut receiver) = tcp_pair();
    let Some(socket) = zero_copy("keeping the socket", sender) else { return };
    let mut sender = Sender::new(socket.clone(), OnBusy::Keep);
    let kept = Arc::downgrade(&socket);
    let buffer = sender.page(7);
    let sent = send_all(&socket, buffer.bytes().unwrap());
    sender.queue(buffer, sent);
    let Sender { arena, pool, user, socket: of_sender, .. } = sender;
    drop((socket, of_sender, user));
    let shutdown = pool.destroy();
    let mut page = vec![0; PAGE_SIZE];
    receiver.read_exact(&mut page).unwrap();
    assert!(page.iter().all(|&byte| byte == 7));
    assert!(shutdown.wait(LIMIT), "{}", shutdown.report());
    assert_eq!((arena.pages_out(), kept.strong_count()), (0, 0), "with the last page goes the socket");
}

#[test]
fn sends_that_fail_or_carry_nothing_leave_the_count_right() {
    let (sender, receiver) = udp_pair();
    let Some(socket) = zero_copy("sends that fail", sender) else { return };
    let too_much = vec![0; 70_000];
    let mut cookies = Vec::new();
    let mut packet = [0; 64];
    for number in 0..100_u8 {
        assert_eq!(socket.send(&[IoSlice::new(&too_much)]).unwrap_err().raw_os_error(), Some(90), "EMSGSIZE");
        assert_eq!(socket.send(&[]).unwrap(), Sent { bytes: 0, cookie: None });
        assert_eq!(receiver.recv(&mut packet).unwrap(), 0);
        cookies.extend(socket.send(&[IoSlice::new(&[number; 32])]).unwrap().cookie);
        assert_eq!(receiver.recv(&mut packet).unwrap(), 32);
    }
    let until = Instant::now() + LIMIT;
    while cookies.iter().any(|&cookie| socket.in_use(cookie)) {
        assert!(Instant::now() < until, "{:?}", socket.stats());
        socket.refresh();
    }
    let stats = socket.stats();
    assert_eq!((stats.sends + stats.refused, stats.ordinary), (100, 100));
    assert_eq!(stats.copied + stats.zero_copy, stats.sends);
    assert!(cookies.is_sorted());
}

#[test]
fn a_window_that_is_full_sends_copies() {
    let (sender, receiver) = tcp_pair();
    let Some(socket) = zero_copy("a full window", sender) else { return };
    let mut got = vec![0; 5000];
    for _ in 0..5000 {
        assert_eq!(socket.send(&[IoSlice::new(b"x")]).unwrap().bytes, 1);
    }
    let mut receiver = receiver;
    receiver.read_exact(&mut got).unwrap();
    assert!(got.iter().all(|&byte| byte == b'x'));
    let stats = socket.stats();
    assert_eq!(stats.sends + stats.ordinary + stats.refused, 5000, "{stats:?}");
    let until = Instant::now() + LIMIT;
    while socket.stats().copied + socket.stats().zero_copy < stats.sends {
        assert!(Instant::now() < until, "{:?}", socket.stats());
        socket.refresh();
    }
}

#[test]
fn a_socket_with_ip_recverr_is_refused() {
    let (sender, _receiver) = udp_pair();
    if !sys::turn_on_recverr(&sender) {
        return println!("SKIP IP_RECVERR: the kernel refuses it");
    }
    let error = ZeroCopySocket::new(sender).expect_err("a failed send would leave the count open");
    assert!(error.to_string().contains("IP_RECVERR"), "{error}");
}

mod sys {
    //! The one system call of these tests.
    // UNSAFETY: a system call.
    #![expect(unsafe_code)]

    use std::net::UdpSocket;
    use std::os::fd::AsRawFd;

    pub fn turn_on_recverr(socket: &UdpSocket) -> bool {
        let on: libc::c_int = 1;
        let len = size_of_val(&on) as libc::socklen_t;
        let (fd, at) = (socket.as_raw_fd(), (&raw const on).cast());
        // SAFETY: the option is an int, which lives as long as the call.
        unsafe { libc::setsockopt(fd, libc::IPPROTO_IP, libc::IP_RECVERR, at, len) == 0 }
    }
}
