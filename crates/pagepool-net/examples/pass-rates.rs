//! What it costs to pass packets on to the kernel's stack: by a [`KernelStack`], and by a TAP's `write(2)`.
//! And the rate of TCP through "receive, decide, pass", beside that of the kernel alone.
//!
//! `cargo run --profile dist -p pagepool-net --example pass-rates`, as root, in its own namespaces, which are
//! gone at the end. Each number is the median of nine rounds, with the least and the most.

use std::error::Error;
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use pagepool::{Arena, ArenaParams, Bound, Pool, PoolParams, XdpBuff};
use pagepool_lab::{DropRule, Hook, pin, pin_named};
use pagepool_link::{Tap, TcpParams, TcpTransfer, TwoHosts, TwoHostsParams};
use pagepool_net::{Action, Forwarder, Ingress, KernelStack, PortId, Stack, XskDevice};

type Result<T = ()> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// A counter of the kernel.
type Seen = fn() -> Result<u64>;

const ROUNDS: usize = 9;
const PART: Duration = Duration::from_millis(300);
const TCP: Duration = Duration::from_secs(1);
/// The kernel works no longer on packets that it has.
const LIMIT: Duration = Duration::from_secs(5);
/// Packets between two looks at the clock.
const BURST: usize = 64;
/// The UDP port of a socket that is full, and one that nobody has.
const FULL: u16 = 9;
const NOBODYS: u16 = 10;
/// The kernel behind user space, and a host behind the TAP with the kernel's address there.
const OURS: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 9);
const BEHIND_TAP: [Ipv4Addr; 2] = [Ipv4Addr::new(198, 18, 5, 2), Ipv4Addr::new(198, 18, 5, 1)];
/// The CPUs of the client, and of all else.
const CPUS: [usize; 2] = [0, 1];

fn main() -> Result {
    let hosts = TwoHosts::new(&TwoHostsParams::default())?;
    hosts.between.netlink()?.add_address(hosts.near[0].index, OURS, 24)?;
    let from = hosts.a.address;
    let packets = hosts.between.spawn("packets", move || packets(from))?;
    packets.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    tcp(&hosts)
}

/// Measures ways in turn, in another order each time. Prints what the first costs (or achieves), in the
/// second's.
fn compare(what: &str, unit: &str, ways: [&str; 2], mut measure: impl FnMut(usize) -> Result<f64>) -> Result {
    let mut found = [vec![], vec![]];
    for round in 0..ROUNDS {
        for way in [round % 2, 1 - round % 2] {
            found[way].push(measure(way)?);
        }
    }
    let ratios = found[0].iter().zip(&found[1]).map(|(one, other)| one / other).collect();
    let [one, other] = found.map(spread);
    println!("{what}\n  {} {one} {unit}, {} {other} {unit}: {} x", ways[0], ways[1], spread(ratios));
    Ok(())
}

/// The median, the least and the most.
fn spread(mut of: Vec<f64>) -> String {
    of.sort_by(f64::total_cmp);
    let digits = if of[0] < 30.0 { 2 } else { 0 };
    format!("{:.digits$} ({:.digits$} to {:.digits$})", of[of.len() / 2], of[0], of[of.len() - 1])
}

/// The ways up into the kernel of this thread's namespace.
struct Ways {
    stack: KernelStack,
    tap: Tap,
    pool: Bound,
}

impl Ways {
    /// Passes a packet again and again. Returns the nanoseconds that each took.
    fn up(&mut self, packet: &[u8], seen: Seen) -> Result<f64> {
        let (before, from) = (seen()?, self.stack.stats());
        let start = Instant::now();
        while start.elapsed() < PART {
            for _ in 0..BURST {
                let mut copy = self.pool.packet(packet.len()).ok_or("the pool is empty")?;
                copy.data_mut().copy_from_slice(packet);
                self.stack.deliver(copy, Ingress { port: PortId(0) }).map_err(|_| "it was refused")?;
            }
            self.stack.send();
        }
        let (took, to) = (start.elapsed(), self.stack.stats());
        if to.refused > from.refused {
            return Err("a backlog was full: its packets cost less".into());
        }
        each(took, to.passed - from.passed, before, seen)
    }

    /// The same by the TAP.
    fn write(&self, packet: &[u8], seen: Seen) -> Result<f64> {
        let (before, mut count, start) = (seen()?, 0, Instant::now());
        while start.elapsed() < PART {
            for _ in 0..BURST {
                count += u64::from(self.tap.send(packet)?);
            }
        }
        each(start.elapsed(), count, before, seen)
    }

    /// Both, with a packet for each.
    fn compare(&mut self, what: &str, [up, write]: [&[u8]; 2], seen: Seen) -> Result {
        compare(what, "ns", ["by a KernelStack", "by a TAP"], |way| match way {
            0 => self.up(up, seen),
            _ => self.write(write, seen),
        })
    }
}

/// Nanoseconds per packet, if the kernel saw them all. The last may still be in its backlog.
fn each(took: Duration, count: u64, before: u64, seen: Seen) -> Result<f64> {
    let start = Instant::now();
    while start.elapsed() < LIMIT {
        if seen()? - before >= count {
            return Ok(took.as_nanos() as f64 / count as f64);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Err(format!("the kernel saw {} of {count} packets", seen()? - before).into())
}

/// What single packets cost, all on one CPU.
fn packets(from: Ipv4Addr) -> Result {
    pin(CPUS[1])?;
    let _full = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, FULL))?; // nobody reads it
    let tap = Tap::open("tap0")?;
    let mut here = pagepool_link::Netlink::open()?;
    let index = here.link("tap0")?.index;
    here.add_address(index, BEHIND_TAP[1], 24)?;
    let arena = Arena::new(ArenaParams { max_bytes: 32 << 20, commit_all: true, ..Default::default() })?;
    let pool = Pool::new(PoolParams { headroom: 256, ..Default::default() }, arena)?.bind();
    let mut ways = Ways { stack: KernelStack::new("near0")?, tap, pool };
    let [near, by_tap] = [[from, OURS], BEHIND_TAP].map(|ends| datagram(ends, FULL, 60, true));
    (0..10_000).try_for_each(|_| ways.tap.send(&by_tap).map(drop))?; // fills it: those count only if read
    ways.compare("60 bytes to a socket that is full", [&near, &by_tap], udp_seen)?;
    let rules = (DropRule::add(Hook::Ingress, "near0")?, DropRule::add(Hook::Ingress, "tap0")?);
    ways.compare("60 bytes that a rule at the ingress drops", [&near, &by_tap], all_seen)?;
    drop(rules);
    let [summed, plain] = [true, false].map(|sum| datagram([from, OURS], NOBODYS, 1514, sum));
    let names = ["with a checksum", "without one"];
    compare("1514 bytes to no socket, by a KernelStack", "ns", names, |way| {
        ways.up([&summed, &plain][way], udp_seen)
    })
}

/// UDP packets that the kernel of this namespace delivered, or dropped at the socket or for want of one.
fn udp_seen() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/net/snmp")?;
    let line = text.lines().filter(|line| line.starts_with("Udp:")).nth(1).ok_or("no UDP")?;
    // Delivered, no port, errors. A wrong checksum is an error, too, and costs less.
    let numbers: Vec<u64> = line.split(' ').skip(1).map(str::parse).collect::<std::result::Result<_, _>>()?;
    Ok(numbers[..3].iter().sum::<u64>() - numbers[6])
}

/// Packets of all kinds that this CPU took from drivers and backlogs.
fn all_seen() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/net/softnet_stat")?;
    let cpu = format!("{:08x}", CPUS[1]);
    // The 13th number is the CPU's.
    let line = text.lines().find(|line| line.split(' ').nth(12) == Some(&cpu)).ok_or("no such CPU")?;
    Ok(u64::from_str_radix(&line[..8], 16)?)
}

/// A datagram to everybody's MAC address.
fn datagram(ends: [Ipv4Addr; 2], port: u16, len: usize, summed: bool) -> Vec<u8> {
    let mut packet = b"\xff\xff\xff\xff\xff\xff\x02from\x01\x08\0".to_vec();
    let bytes = |number: usize| (number as u16).to_be_bytes();
    packet.extend([&[0x45, 0], &bytes(len - 14)[..], &[0, 0, 0, 0, 64, 17, 0, 0]].concat());
    packet.extend(ends.map(|end| end.octets()).concat());
    packet.extend([[0x30, 0x39], port.to_be_bytes(), bytes(len - 34), [0, 0]].concat());
    packet.resize(len, 7);
    let ip = sum(&packet[14..34], 0);
    packet[24..26].copy_from_slice(&ip.to_be_bytes());
    if summed {
        let udp = sum(&packet[26..], 17 + (len as u32 - 34));
        packet[40..42].copy_from_slice(&udp.to_be_bytes());
    }
    packet
}

/// The Internet checksum of an even number of bytes, and of a number.
fn sum(bytes: &[u8], more: u32) -> u16 {
    let words = bytes.as_chunks().0.iter().map(|word| u32::from(u16::from_be_bytes(*word)));
    let total = words.sum::<u32>() + more;
    let once = (total & 0xffff) + (total >> 16);
    !((once & 0xffff) + (once >> 16)) as u16
}

/// TCP to the kernel: through user space, and without an XDP program.
fn tcp(hosts: &TwoHosts) -> Result {
    let names = ["through user space", "by the kernel alone"];
    compare("TCP, MTU 1500, every byte checked", "Gbit/s", names, |way| {
        if way == 1 {
            return transfer(hosts).map(|(gbit_s, _)| gbit_s);
        }
        let (stop, (ready, is_ready)) = (Arc::new(AtomicBool::new(false)), mpsc::channel());
        let stopped = stop.clone();
        let forwarder = hosts.between.spawn("forwarder", move || pass_all(&stopped, &ready))?;
        is_ready.recv().ok();
        let result = transfer(hosts);
        stop.store(true, Ordering::Relaxed);
        let passed = forwarder.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        let (gbit_s, received) = result?;
        match passed > received / 1500 {
            true => Ok(gbit_s),
            false => Err(format!("{received} bytes arrived, but only {passed} packets passed").into()),
        }
    })
}

/// The rate, and the bytes received.
fn transfer(hosts: &TwoHosts) -> Result<(f64, u64)> {
    let params = TcpParams { duration: TCP, ..TcpParams::default() };
    let transfer = TcpTransfer::start(&hosts.a.namespace, &hosts.between, OURS, params)?;
    pin_named("tcp-send", CPUS[0])?;
    pin_named("tcp-receive", CPUS[1])?;
    let report = transfer.join()?;
    match report.is_whole() {
        true => Ok((report.gbit_s(), report.received)),
        false => Err(format!("{report:?}").into()),
    }
}

/// Passes all packets until `stop`. Returns how many the kernel took.
fn pass_all(stop: &AtomicBool, ready: &mpsc::Sender<()>) -> Result<u64> {
    pin(CPUS[1])?;
    let (device, pool) = XskDevice::simple("near0", 0)?;
    let stack = KernelStack::new("near0")?;
    let mut forwarder = Forwarder::with_stack(|_: &mut XdpBuff, _: Ingress| Action::Pass, stack);
    forwarder.add_port(device, pool);
    forwarder.poll(); // the device has buffers
    ready.send(())?;
    forwarder.run(stop)?;
    Ok(forwarder.stack_mut().stats().passed)
}
