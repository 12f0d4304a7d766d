//! Two network namespaces of this thread's own with veth pairs between them, and the far end of a device
//! there. The kernel removes them when the test is over, however it ends.

// UNSAFETY: system calls.
#![allow(unsafe_code, dead_code)] // each test binary uses a part

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::rc::Rc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use pagepool_lab::FrameSocket;
use pagepool_link::{Namespace, Netlink, VethEnd};
use pagepool_testing::FarEnd;

/// Longer than any wait that succeeds, even on a busy machine.
pub const LIMIT: Duration = Duration::from_secs(60);

/// Waits until something is so.
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < LIMIT, "{what}: not within {LIMIT:?}");
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// Veth pairs from the namespace that this thread is in now to another.
#[derive(Debug)]
pub struct Veth {
    near: RefCell<Netlink>,
    far: Namespace,
    /// Interfaces here: `near0` and so on; there: `far0` and so on.
    pairs: usize,
    mtu: usize,
    queues: u32,
    pub alive: Cell<bool>,
}

/// What is missing for tests over a veth pair.
pub fn missing() -> Option<String> {
    // SAFETY: the call takes nothing.
    if unsafe { libc::geteuid() } != 0 {
        return Some("it needs root, for network namespaces and XDP".into());
    }
    // SAFETY: the call takes three integers.
    let fd = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW, 0) };
    if fd < 0 {
        return Some(format!("the kernel has no AF_XDP: {}", io::Error::last_os_error()));
    }
    // SAFETY: it has no other owner.
    drop(unsafe { OwnedFd::from_raw_fd(fd) });
    Namespace::new("trial").err().map(|error| error.to_string())
}

/// Which version of Linux is required and which this is, if this is older.
pub fn older_than((major, minor): (u32, u32)) -> Option<String> {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("Linux says what it is");
    let mut numbers = release.split(['.', '-']).map_while(|number| number.parse::<u32>().ok());
    let version = (numbers.next().expect("a major version"), numbers.next().expect("a minor version"));
    let why = || format!("Linux {major}.{minor}; this is {}", release.trim());
    (version < (major, minor)).then(why)
}

/// Why AF_XDP has no packets of several buffers here.
pub fn no_multi_buffer() -> Option<String> {
    older_than((6, 6)).map(|why| format!("packets of several buffers require {why}"))
}

/// Why a driver cannot be asked here what it knows of a packet.
pub fn no_metadata() -> Option<String> {
    let types = "/sys/kernel/btf/vmlinux";
    let untyped = || (!std::path::Path::new(types).exists()).then(|| format!("there is no {types}"));
    older_than((6, 3)).map(|why| format!("metadata requires {why}")).or_else(untyped)
}

/// The CPUs that this thread may run on.
pub fn cpus() -> Vec<usize> {
    // SAFETY: zeroes are a set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes a set.
    assert_eq!(unsafe { libc::sched_getaffinity(0, size_of_val(&set), &raw mut set) }, 0);
    // SAFETY: the numbers lie in the set.
    (0..libc::CPU_SETSIZE as usize).filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) }).collect()
}

/// Sends this thread a signal that does nothing, again and again, until the value is dropped. One alone might
/// come before the thread sleeps, on a busy machine, and would end nothing.
pub fn interrupt_me(every: Duration) -> Interrupts {
    extern "C" fn nothing(_: libc::c_int) {}
    // SAFETY: the handler does nothing.
    unsafe { libc::signal(libc::SIGUSR1, nothing as extern "C" fn(libc::c_int) as libc::sighandler_t) };
    // SAFETY: the call takes nothing.
    let me = unsafe { libc::pthread_self() } as usize; // a pointer in musl
    let (stop, stopped) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        while stopped.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
            // SAFETY: that thread joins this one before it ends.
            assert_eq!(unsafe { libc::pthread_kill(me as libc::pthread_t, libc::SIGUSR1) }, 0);
        }
    });
    Interrupts { stop: Some(stop), thread: Some(thread) }
}

/// A thread that sends signals until this is dropped.
pub struct Interrupts {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Drop for Interrupts {
    fn drop(&mut self) {
        drop(self.stop.take());
        let ended = self.thread.take().map(std::thread::JoinHandle::join);
        assert!(std::thread::panicking() || ended.is_none_or(|ended| ended.is_ok()));
    }
}

/// Capabilities, by their numbers in include/uapi/linux/capability.h.
pub const CAP_NET_ADMIN: u32 = 12;
pub const CAP_NET_RAW: u32 = 13;
pub const CAP_IPC_LOCK: u32 = 14;
pub const CAP_PERFMON: u32 = 38;
pub const CAP_BPF: u32 = 39;
pub const CAP_SYS_ADMIN: u32 = 21;

/// Does something on a thread of this namespace that has given these capabilities up.
pub fn without<R: Send>(capabilities: &[u32], work: impl FnOnce() -> R + Send) -> R {
    std::thread::scope(|threads| {
        let thread = threads.spawn(|| {
            give_up(capabilities);
            work()
        });
        thread.join().expect("it did not panic")
    })
}

/// A system call that fails, as in a container that filters it, or with a kernel that does not have it.
#[derive(Clone, Copy)]
pub struct Refused {
    pub call: libc::c_long,
    /// Which of its arguments, from 0, has to have which lower half.
    pub argument: (u32, u32),
    pub errno: libc::c_int,
}

/// The two commands of `membarrier` for grace periods: the query, and the wait.
pub const GRACE_PERIODS: [Refused; 2] = [
    Refused { call: libc::SYS_membarrier, argument: (0, 0), errno: libc::EPERM },
    Refused { call: libc::SYS_membarrier, argument: (0, 1), errno: libc::EINVAL },
];
pub const PACKET_SOCKET: Refused =
    Refused { call: libc::SYS_socket, argument: (0, libc::AF_PACKET as u32), errno: libc::EPERM };

/// Does something on a thread of this namespace for which these system calls fail.
pub fn refused<R: Send>(calls: &[Refused], work: impl FnOnce() -> R + Send) -> R {
    std::thread::scope(|threads| {
        let thread = threads.spawn(|| {
            filter(calls);
            work()
        });
        thread.join().expect("it did not panic")
    })
}

fn filter(calls: &[Refused]) {
    let op = |code: u32, skip, k| libc::sock_filter { code: code as u16, jt: 0, jf: skip, k };
    let (load, is) = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, libc::BPF_JMP | libc::BPF_JEQ);
    let one = |refused: &Refused| {
        [
            op(load, 0, 0), // its number
            op(is, 3, refused.call as u32),
            op(load, 0, 16 + 8 * refused.argument.0),
            op(is, 1, refused.argument.1),
            op(libc::BPF_RET, 0, libc::SECCOMP_RET_ERRNO | refused.errno as u32),
        ]
    };
    let mut code: Vec<_> = calls.iter().flat_map(one).collect();
    code.push(op(libc::BPF_RET, 0, libc::SECCOMP_RET_ALLOW));
    let program = libc::sock_fprog { len: code.len() as u16, filter: code.as_mut_ptr() };
    // SAFETY: the call takes integers, and is of this thread.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }, 0);
    // SAFETY: the kernel reads the classic BPF program; the filter is this thread's.
    let done =
        unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const program) };
    assert_eq!(done, 0, "{}", io::Error::last_os_error());
}

/// Lowers what this process may lock for good.
pub fn limit_locked_memory(bytes: u64) {
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
    // SAFETY: the kernel reads a limit.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const limit) }, 0);
}

/// Of this thread alone: the system call is made as it is, without the C library's rounds over all threads.
fn give_up(capabilities: &[u32]) {
    let header = [0x2008_0522_u32, 0]; // _LINUX_CAPABILITY_VERSION_3, this thread
    let mut sets = [0u32; 6]; // effective, permitted, inheritable: the lower 32, then the upper
    // SAFETY: the kernel reads the header and writes the sets.
    assert_eq!(unsafe { libc::syscall(libc::SYS_capget, &raw const header, &raw mut sets) }, 0);
    for &capability in capabilities {
        sets[(capability / 32 * 3) as usize] &= !(1 << (capability % 32));
    }
    // SAFETY: the kernel reads both.
    assert_eq!(unsafe { libc::syscall(libc::SYS_capset, &raw const header, &raw const sets) }, 0);
}

impl Veth {
    /// Namespaces with `pairs` pairs, of one queue each. This thread is in the near one from now on.
    pub fn new(pairs: usize, mtu: usize) -> Rc<Self> {
        Self::with_queues(pairs, mtu, 1)
    }

    /// The same, with `queues` queues at all ends.
    pub fn with_queues(pairs: usize, mtu: usize, queues: u32) -> Rc<Self> {
        let near = Namespace::new("near").expect("root may have one");
        // SAFETY: the call takes integers, and moves only this thread, which then keeps the namespace alive.
        assert_eq!(unsafe { libc::setns(near.as_fd().as_raw_fd(), libc::CLONE_NEWNET) }, 0);
        let near = RefCell::new(Netlink::open().expect("a namespace of our own"));
        let far = Namespace::new("far").expect("one more");
        let this = Self { near, far, pairs, mtu, queues, alive: Cell::new(false) };
        this.revive();
        Rc::new(this)
    }

    /// Makes the pairs again if they were removed.
    pub fn revive(&self) {
        if self.alive.replace(true) {
            return;
        }
        let mut over_there = self.far.netlink().expect("a namespace of our own");
        for n in 0..self.pairs {
            let (near, far) = (format!("near{n}"), format!("far{n}"));
            let end = |name, namespace| VethEnd {
                name,
                namespace,
                mac: None,
                mtu: self.mtu as u32,
                queues: self.queues,
            };
            let pair = (end(&near, None), end(&far, Some(self.far.as_fd())));
            self.near.borrow_mut().add_veth(&pair.0, &pair.1).expect("names that are free");
            turn(&mut over_there, &far, true);
            self.set_up(&near, true);
        }
    }

    /// Turns an interface of this side on or off. One that is on passes packets both ways when this returns:
    /// the kernel lets the other end send again a while later, and drops its packets until then.
    pub fn set_up(&self, near: &str, up: bool) {
        turn(&mut self.near.borrow_mut(), near, up);
        if up {
            self.near.borrow_mut().wait_up(near, LIMIT).expect("it comes up");
            let mut over_there = self.far.netlink().expect("a namespace of our own");
            over_there.wait_up(&near.replace("near", "far"), LIMIT).expect("it comes up");
        }
    }

    /// Removes the pairs.
    pub fn remove(&self) {
        if self.alive.replace(false) {
            let mut netlink = self.near.borrow_mut();
            for n in 0..self.pairs {
                let link = netlink.link(&format!("near{n}")).expect("it is there");
                netlink.delete(link.index).expect("it is there");
            }
        }
    }

    /// The far end of a pair.
    pub fn far_end(self: &Rc<Self>, pair: usize) -> Far {
        let socket = FrameSocket::open(&self.far, &format!("far{pair}")).expect("it is there");
        let patience = Duration::from_millis(2);
        Far { socket, longest: self.mtu + 14, veth: self.clone(), patience, dead: false }
    }

    /// Where the far ends are.
    pub fn far(&self) -> &Namespace {
        &self.far
    }
}

/// A socket that hears what goes out of an interface here, as tcpdump does.
pub struct Tap(OwnedFd);

impl Tap {
    pub fn new(interface: &str) -> Self {
        let all = (libc::ETH_P_ALL as u16).to_be();
        let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK;
        // SAFETY: the call takes three integers.
        let fd = unsafe { libc::socket(libc::AF_PACKET, kind, i32::from(all)) };
        assert!(fd >= 0, "{}", io::Error::last_os_error());
        // SAFETY: it has no other owner.
        let this = Self(unsafe { OwnedFd::from_raw_fd(fd) });
        let index = Netlink::open().and_then(|mut here| here.link(interface)).expect("it is there").index;
        // SAFETY: zeroes are an address.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        (address.sll_protocol, address.sll_ifindex) = (all, index as i32);
        let len = size_of_val(&address) as libc::socklen_t;
        // SAFETY: the kernel reads an address of this length.
        assert_eq!(unsafe { libc::bind(fd, (&raw const address).cast(), len) }, 0);
        this
    }

    /// Packets that went out and were not counted yet, at most 1000: waits until there are so many, and looks
    /// for more.
    pub fn heard(&self, expected: usize) -> usize {
        let mut heard = 0;
        wait_until("packets that go out", || {
            heard += self.heard_by_now();
            heard >= expected
        });
        heard + self.heard_by_now()
    }

    fn heard_by_now(&self) -> usize {
        let went_out = || {
            let mut byte = [0u8; 1];
            // SAFETY: zeroes are an address.
            let mut from: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
            let mut len = size_of_val(&from) as libc::socklen_t;
            // SAFETY: the kernel writes at most one byte, and an address of this length.
            let got = unsafe {
                let to = byte.as_mut_ptr().cast();
                libc::recvfrom(self.0.as_raw_fd(), to, 1, 0, (&raw mut from).cast(), &raw mut len)
            };
            (got >= 0).then(|| usize::from(from.sll_pkttype == libc::PACKET_OUTGOING))
        };
        (0..1000).map_while(|_| went_out()).sum()
    }
}

fn turn(netlink: &mut Netlink, link: &str, up: bool) {
    let index = netlink.link(link).expect("it is there").index;
    netlink.set_up(index, up).expect("it is ours");
}

/// A raw socket at the far end of a pair.
#[derive(Debug)]
pub struct Far {
    socket: FrameSocket,
    longest: usize,
    veth: Rc<Veth>,
    /// How long [`receive`](FarEnd::receive) waits for a packet. Silence proves nothing: who knows what comes
    /// asks for it with [`next`](Self::next) or [`arriving`](Self::arriving).
    pub patience: Duration,
    dead: bool,
}

impl Far {
    /// The next packet.
    pub fn next(&mut self) -> Vec<u8> {
        let mut packet = Vec::new();
        assert!(self.receive_within(LIMIT, &mut packet), "no packet arrives within {LIMIT:?}");
        packet
    }

    /// Packets until so many have arrived, and what comes right behind them.
    pub fn arriving(&mut self, count: usize) -> Vec<Vec<u8>> {
        let silence = Duration::from_millis(if count == 0 { 200 } else { 20 });
        let (mut all, mut packet, start) = (Vec::new(), Vec::new(), Instant::now());
        while all.len() < 2 * count + 100 {
            let is_due = all.len() < count && start.elapsed() < LIMIT;
            let patience = if is_due { LIMIT } else { silence };
            match self.receive_within(patience, &mut packet) {
                true => all.push(packet.clone()),
                false if is_due => {}
                false => break,
            }
        }
        all
    }

    fn receive_within(&mut self, patience: Duration, packet: &mut Vec<u8>) -> bool {
        packet.resize(1 << 16, 0);
        let ready = !self.dead && self.socket.wait(patience);
        let got = if ready { self.socket.receive(packet).unwrap_or(None) } else { None };
        packet.truncate(got.unwrap_or(0));
        got.is_some()
    }
}

impl FarEnd for Far {
    fn send(&mut self, packet: &[u8]) -> bool {
        self.socket.send(packet).unwrap_or(false)
    }

    fn receive(&mut self, packet: &mut Vec<u8>) -> bool {
        self.receive_within(self.patience, packet)
    }

    fn settle(&mut self) {
        std::thread::sleep(Duration::from_micros(500)); // the kernel moves packets by itself, on any CPU
    }

    fn longest(&self) -> usize {
        self.longest
    }

    fn die(&mut self) -> bool {
        self.veth.remove();
        self.dead = true;
        true
    }
}
