//! The server in a network namespace, and a host in another that asks it: for tests and measurements.

use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use pagepool::PoolRef;
use pagepool_link::{LinkError, Namespace, Netlink, Offload, VethEnd};
use pagepool_net::{Device, Match, TxMode};
use smoltcp::phy::{Medium, TunTapInterface};
use smoltcp::wire::IpCidr;

use crate::afxdp::{self, Error};
use crate::neighbours::Neighbours;
use crate::nic::Nic;
use crate::own::OwnMemory;
use crate::phy::Phy;
use crate::server::{Server, Service};

/// Where the server is, and the host. The server's namespace has the address, too.
pub const SERVER: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
/// The host that asks.
pub const HOST: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 2);
/// Length of the network's prefix.
const PREFIX: u8 = 24;
/// For a link to come up.
const LIMIT: Duration = Duration::from_secs(10);
/// How soon the server sees that it is to stop.
const IDLE: Duration = Duration::from_millis(20);

/// How the server's packets move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// AF_XDP, in pages of the pool.
    Pool(TxMode),
    /// AF_XDP, copied to and from a `Vec` for each packet.
    Own(TxMode),
    /// smoltcp's own device: a TAP interface of the host.
    Tap,
}

/// The two namespaces.
#[derive(Debug)]
pub struct Wire {
    /// The server's: `near0`.
    pub near: Namespace,
    /// The host's: `far0`, or `tap0`.
    pub far: Namespace,
}

impl Wire {
    /// No link yet: the TAP comes with its server.
    pub fn for_tap() -> Result<Self, LinkError> {
        Ok(Self { near: Namespace::new("server")?, far: Namespace::new("host")? })
    }

    /// A veth pair. The host's kernel computes checksums itself, or leaves them to its device.
    pub fn veth(mtu: u32, checksums: bool) -> Result<Self, LinkError> {
        let Self { near, far } = Self::for_tap()?;
        let end = |name, namespace| VethEnd { name, namespace, mac: None, mtu, queues: 1 };
        let mut netlink = near.netlink()?;
        netlink.add_veth(&end("near0", None), &end("far0", Some(far.as_fd())))?;
        far.ethtool()?.send_whole_packets("far0")?;
        if !checksums {
            far.ethtool()?.set_offload("far0", Offload::TxChecksum, true)?;
        }
        near.ethtool()?.set_offload("near0", Offload::Gro, false)?;
        set_up(&mut netlink, "near0", SERVER)?;
        set_up(&mut far.netlink()?, "far0", HOST)?;
        netlink.wait_up("near0", LIMIT)?;
        Ok(Self { near, far })
    }
}

fn set_up(netlink: &mut Netlink, name: &str, address: Ipv4Addr) -> Result<(), LinkError> {
    let index = netlink.link(name)?.index;
    netlink.set_up(index, true)?;
    netlink.add_address(index, address, PREFIX)
}

/// What is left when the server ends.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    /// Buffers of the pool that have not returned.
    pub missing: u64,
    /// Packets of several buffers, which were copied: received, and sent.
    pub copied: [u64; 2],
    /// Parts of received streams that were wrong.
    pub wrong: u64,
}

/// A server on a thread of its own.
#[derive(Debug)]
pub struct Running {
    thread: JoinHandle<Result<Report, Error>>,
    stop: Arc<AtomicBool>,
    /// The folder of its thread in `/proc`.
    task: PathBuf,
    /// Its pool, unless it has a TAP.
    pub pool: Option<PoolRef>,
}

impl Running {
    /// Starts the server, and waits until it has its device.
    pub fn start(
        wire: &Wire,
        way: Way,
        services: &'static [(Service, usize)],
        buffer: usize,
    ) -> Result<Self, Error> {
        let stop = Arc::new(AtomicBool::new(false));
        let (ready, is_ready) = mpsc::channel();
        let until = stop.clone();
        let run = move || {
            let loops = Loop { services, buffer, until, ready };
            match way {
                Way::Tap => loops.over_tap(),
                Way::Pool(mode) => loops.over_pool(afxdp::open("near0", ours(services)?, mode)?),
                Way::Own(mode) => loops.over_copies(afxdp::open("near0", ours(services)?, mode)?),
            }
        };
        let namespace = if way == Way::Tap { &wire.far } else { &wire.near };
        let thread = namespace.spawn("server", run)?;
        match is_ready.recv() {
            Ok((task, pool)) => Ok(Self { thread, stop, task, pool }),
            Err(_) => {
                Err(thread.join().map_err(|_| "the server panicked")?.err().unwrap_or("it ended".into()))
            }
        }
    }

    /// The CPU time of its thread so far.
    pub fn cpu(&self) -> Result<Duration, Error> {
        let text = std::fs::read_to_string(self.task.join("schedstat"))?;
        let nanoseconds = text.split(' ').next().unwrap_or_default().parse()?;
        Ok(Duration::from_nanos(nanoseconds))
    }

    /// Stops the server, which closes its device.
    pub fn stop(self) -> Result<Report, Error> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| "the server panicked")?
    }
}

/// The packets of the services, to the address.
fn ours(services: &[(Service, usize)]) -> Result<Match, Error> {
    let ports: Vec<_> =
        services.iter().map(|(service, _)| format!("tcp dst port {}", service.port())).collect();
    let udp = Service::Echo.port();
    Ok(format!("dst host {SERVER} and ({} or udp dst port {udp}) and not fragment", ports.join(" or "))
        .parse()?)
}

/// The server's loop.
struct Loop {
    services: &'static [(Service, usize)],
    buffer: usize,
    until: Arc<AtomicBool>,
    ready: mpsc::Sender<(PathBuf, Option<PoolRef>)>,
}

impl Loop {
    fn over_tap(self) -> Result<Report, Error> {
        let mut tap = TunTapInterface::new("tap0", Medium::Ethernet)?;
        set_up(&mut Netlink::open()?, "tap0", HOST)?;
        let wrong = self.run(&mut tap, [2, 0x70, 0x70, 0, 0, 9], None)?;
        Ok(Report { wrong, ..Default::default() })
    }

    fn over_pool(self, phy: Phy<Box<dyn Device>>) -> Result<Report, Error> {
        let (mac, pool) = (phy.device.info().mac, phy.pool.handle());
        let mut nic = Neighbours::new(phy, "near0");
        let wrong = self.run(&mut nic, mac.ok_or("near0 has no MAC address")?, Some(pool))?;
        Ok(report(nic.nic, wrong))
    }

    fn over_copies(self, phy: Phy<Box<dyn Device>>) -> Result<Report, Error> {
        let (mac, pool) = (phy.device.info().mac, phy.pool.handle());
        let mut nic = OwnMemory(Neighbours::new(phy, "near0"));
        let wrong = self.run(&mut nic, mac.ok_or("near0 has no MAC address")?, Some(pool))?;
        Ok(report(nic.0.nic, wrong))
    }

    /// Serves until it is to stop. Returns what was wrong.
    fn run(self, nic: &mut impl Nic, mac: [u8; 6], pool: Option<PoolRef>) -> Result<u64, Error> {
        let address = IpCidr::new(SERVER.into(), PREFIX);
        let mut server = Server::new(nic, (mac, address), self.services, self.buffer);
        self.ready.send((std::fs::canonicalize("/proc/thread-self")?, pool))?;
        let start = Instant::now();
        let now = || smoltcp::time::Instant::from_micros(start.elapsed().as_micros() as i64);
        while !self.until.load(Ordering::Relaxed) {
            let moved = nic.turn();
            if !server.round(now(), nic) && moved == 0 {
                nic.wait(server.idle(now(), IDLE))?;
            }
        }
        Ok(server.wrong)
    }
}

fn report(phy: Phy<Box<dyn Device>>, wrong: u64) -> Report {
    let (copied, pool) = (phy.copied, phy.close());
    Report { missing: pool.inflight().out, copied, wrong }
}
