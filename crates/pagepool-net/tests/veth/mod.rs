//! Two network namespaces of this thread's own with a veth pair between them, and the far end of a device there. The
//! kernel removes them when the test is over, however it ends.

// UNSAFETY: system calls.
#![allow(unsafe_code, dead_code)] // each test binary uses a part

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::Command;
use std::rc::Rc;
use std::time::Duration;

use pagepool_net::testing::FarEnd;

/// Veth pairs from the namespace that this thread is in now to another.
pub struct Veth {
    near: File,
    far: File,
    /// Interfaces here: `near0` and so on; there: `far0` and so on.
    pairs: usize,
    mtu: usize,
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
    // SAFETY: nobody else has it.
    drop(unsafe { OwnedFd::from_raw_fd(fd) });
    Command::new("ip").arg("-V").output().is_err().then(|| "there is no `ip` command (iproute2)".into())
}

fn namespace() -> File {
    File::open("/proc/thread-self/ns/net").expect("/proc")
}

/// This thread gets a network namespace of its own.
fn leave() {
    // SAFETY: the call takes an integer.
    assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNET) }, 0, "{}", io::Error::last_os_error());
    std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1").ok(); // no packets but ours
}

fn enter(namespace: &File) {
    // SAFETY: the call takes two integers.
    let done = unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) };
    assert_eq!(done, 0, "{}", io::Error::last_os_error());
}

pub fn ip(arguments: &str) {
    let done = Command::new("ip").args(arguments.split_whitespace()).output().expect("the ip command");
    assert!(done.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&done.stderr));
}

/// Capabilities, by their numbers in include/uapi/linux/capability.h.
pub const CAP_NET_ADMIN: u32 = 12;
pub const CAP_NET_RAW: u32 = 13;
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
    /// Namespaces with so many pairs. This thread is in the near one from now on.
    pub fn new(pairs: usize, mtu: usize) -> Rc<Self> {
        leave();
        let far = namespace();
        leave();
        let this = Self { near: namespace(), far, pairs, mtu, alive: Cell::new(false) };
        this.revive();
        Rc::new(this)
    }

    /// Makes the pairs again if they were removed.
    pub fn revive(&self) {
        if self.alive.replace(true) {
            return;
        }
        for n in 0..self.pairs {
            // The other end goes to the namespace of a process: this one's holder.
            let path = format!("/proc/{}/fd/{}", std::process::id(), self.far.as_raw_fd());
            ip(&format!("link add near{n} mtu {} type veth peer name far{n} mtu {}", self.mtu, self.mtu));
            ip(&format!("link set far{n} netns {path}"));
            ip(&format!("link set near{n} arp off up"));
            self.there(|| ip(&format!("link set far{n} arp off up")));
        }
    }

    /// Removes the pairs.
    pub fn remove(&self) {
        if self.alive.replace(false) {
            (0..self.pairs).for_each(|n| ip(&format!("link del near{n}")));
        }
    }

    /// Does something in the far namespace.
    pub fn there<R>(&self, work: impl FnOnce() -> R) -> R {
        enter(&self.far);
        let result = work();
        enter(&self.near);
        result
    }

    /// The far end of a pair.
    pub fn far_end(self: &Rc<Self>, pair: usize) -> Far {
        let socket = self.there(|| packet_socket(&format!("far{pair}")));
        Far { socket, veth: self.clone(), patience: Duration::from_millis(2), dead: false }
    }
}

/// A raw socket at the far end of a pair.
pub struct Far {
    socket: OwnedFd,
    veth: Rc<Veth>,
    /// How long it waits for a packet.
    pub patience: Duration,
    dead: bool,
}

fn packet_socket(interface: &str) -> OwnedFd {
    let all = (libc::ETH_P_ALL as u16).to_be();
    // SAFETY: the call takes three integers.
    let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    assert!(fd >= 0, "{}", io::Error::last_os_error());
    // SAFETY: nobody else has it.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    let set = |name: libc::c_int, level: libc::c_int, value: libc::c_int| {
        // SAFETY: the option is an int.
        unsafe { libc::setsockopt(fd, level, name, (&raw const value).cast(), 4) }
    };
    assert_eq!(set(23, libc::SOL_PACKET, 1), 0, "PACKET_IGNORE_OUTGOING");
    set(libc::SO_RCVBUFFORCE, libc::SOL_SOCKET, 32 << 20);
    let name = std::ffi::CString::new(interface).expect("a name");
    // SAFETY: zeroes are an address.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = all;
    // SAFETY: a string that ends with 0.
    address.sll_ifindex = unsafe { libc::if_nametoindex(name.as_ptr()) } as i32;
    let len = size_of_val(&address) as u32;
    // SAFETY: an address of this length.
    let done = unsafe { libc::bind(fd, (&raw const address).cast(), len) };
    assert_eq!(done, 0, "{interface}: {}", io::Error::last_os_error());
    socket
}

impl FarEnd for Far {
    fn send(&mut self, packet: &[u8]) -> bool {
        // SAFETY: the kernel reads as many bytes as there are.
        let sent = unsafe { libc::send(self.socket.as_raw_fd(), packet.as_ptr().cast(), packet.len(), 0) };
        sent == packet.len() as isize
    }

    fn receive(&mut self, packet: &mut Vec<u8>) -> bool {
        if self.dead {
            return false;
        }
        let mut fd = libc::pollfd { fd: self.socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry.
        unsafe { libc::poll(&raw mut fd, 1, self.patience.as_millis() as i32) };
        packet.resize(1 << 16, 0);
        let (to, len) = (packet.as_mut_ptr().cast(), packet.len());
        // SAFETY: the kernel writes at most as many bytes as there are.
        let got = unsafe { libc::recv(self.socket.as_raw_fd(), to, len, libc::MSG_DONTWAIT) };
        packet.truncate(got.max(0) as usize);
        got > 0
    }

    fn settle(&mut self) {
        std::thread::sleep(Duration::from_micros(500)); // the kernel moves packets by itself, on any CPU
    }

    fn longest(&self) -> usize {
        self.veth.mtu + 14
    }

    fn die(&mut self) -> bool {
        self.veth.remove();
        self.dead = true;
        true
    }
}
