//! The demonstration between two kernels: a TCP transfer from one network namespace to another, through us over AF_XDP.
//!
//! ```text
//!   198.18.0.1  far0 ======= near0  forwarding loop  near1 ======= far1  198.18.0.2
//! ```
//!
//! Two sockets over one arena, and a pool for each, so that what one receives the other sends without a copy here. Nothing
//! outlives the process: the namespaces are held by its threads, the programs by its descriptors.

use std::error::Error as _;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use pagepool::{Arena, Error, Pool};
use pagepool_lab::{TcpParams, TcpReport, TcpTransfer, TwoHosts, TwoHostsParams};
use pagepool_net::link::NetError;
use pagepool_net::{Attach, DeviceStats, Redirect, TxMode, Umem, XskDevice};

use super::course::{Course, Phase, Sample};
use super::forwarding::{self, Middle};
use super::live::{self, Bytes, View};
use super::plan::DemoAction;
use super::verdict::{Counted, Verdict};
use crate::engine::socket_sizes::{SocketSizes, mode};
use crate::report::error::error_chain;
use crate::sys;

/// The sender is told when to end, and sends no longer than this beyond it.
const GRACE: Duration = Duration::from_secs(60);
const ETH_HEADER: usize = pagepool::ETH_HEADER;

/// What is made before any packet is sent. The order matters: devices are closed before their links go.
pub struct Stage {
    pub between: Between,
    pub hosts: TwoHosts,
    pub mtu: u32,
    /// For the forwarding loop, if the first host has another one to itself.
    cpu: Option<usize>,
}

/// Pools and devices, and how the devices are attached.
pub struct Between {
    pub pools: [Pool; 2],
    pub nics: [XskDevice; 2],
    pub mode: String,
    /// Of each pool.
    pub pages: usize,
    /// Packets that are taken from a device at once.
    pub burst: usize,
}

impl Stage {
    /// Two hosts, and a device on the link to each. The first host does its own work on the first of the CPUs, if there are two:
    /// that which sends has most to do, and would do it where it is forwarded.
    pub fn new(mtu: u32, cpus: Option<[usize; 2]>) -> Result<Self, String> {
        let stacks = [cpus.map(|[host, _]| host as u32), None];
        let params = TwoHostsParams { mtu, stacks, ..TwoHostsParams::default() };
        let hosts = TwoHosts::new(&params).map_err(|error| with_cause(&error))?;
        let names = hosts.near.each_ref().map(|link| link.name.clone());
        // Where the links are, for sockets are of the namespace that they are made in.
        let between = hosts.run_between(move || Between::new(&names, SocketSizes::of_mtu(mtu)));
        let cpu = cpus.map(|[_, cpu]| cpu).filter(|_| hosts.a.stack.is_some());
        Ok(Self { between: between.map_err(|error| error_chain(&error))?, hosts, mtu, cpu })
    }
}

impl Between {
    fn new(names: &[String; 2], sizes: SocketSizes) -> Result<Self, Error> {
        let arena = Arena::new(sizes.arena("demo", 2))?;
        let umem = Umem::new(sizes.umem("demo"), &*arena)?;
        let one = |name: &str| {
            let redirect = Redirect::attach(name, Attach::Auto, sizes.multi_buffer())?;
            let mut socket = sizes.socket(name, 0);
            socket.redirect = Some(redirect);
            let nic = XskDevice::open(socket, &umem)?;
            Ok::<_, Error>((sizes.pool_of(name, &nic, &umem, &arena)?, nic))
        };
        let (pool0, nic0) = one(&names[0])?;
        let (pool1, nic1) = one(&names[1])?;
        let mode = mode(&nic0); // both are of one kind
        Ok(Self { pools: [pool0, pool1], nics: [nic0, nic1], mode, pages: sizes.pages, burst: sizes.burst })
    }
}

/// Runs it, and judges.
pub fn run(stage: Stage, view: &View<'_>) -> Result<Verdict, String> {
    let Stage { between: Between { pools, nics, mode, pages, burst }, hosts, mtu, cpu } = stage;
    if view.lines {
        let sent = if nics[1].tx_mode().0 == TxMode::BpfBatch { " by program" } else { "" };
        println!("TCP between two kernels through {mode}{sent}, MTU {mtu}, {} s.", view.seconds);
    }
    let homes = pools.each_ref().map(Pool::handle);
    let [nic0, nic1] = nics;
    let middle = Middle {
        pools,
        pages: [pages; 2],
        nics: [Box::new(nic0), Box::new(nic1)],
        burst,
        program: DemoAction::Forward,
        consumer: None,
        arrived: |end| Some(sum(end, |nic| nic.tx_completed)),
    };
    let course = Arc::new(Course::new());
    let (forwarding, warm) = start(middle, course.clone(), cpu, &hosts)?;
    let start = Instant::now();
    let transferred = transfer(&hosts, &course, &warm, view);
    let seconds = start.elapsed().as_secs_f64();
    course.move_to(Phase::Draining);
    forwarding.join().map_err(|_| "the forwarding thread panicked".to_owned())?;
    let counted = count(mode, mtu, seconds, transferred?, (warm, course.sample()));
    Ok(Verdict::of(&counted, &homes))
}

/// Starts the forwarding loop between the hosts, where the programs that send find their interfaces, on a CPU or wherever the
/// kernel puts it, and waits for the end of its warm-up.
pub fn start(
    middle: Middle,
    course: Arc<Course>,
    cpu: Option<usize>,
    hosts: &TwoHosts,
) -> Result<(JoinHandle<()>, Sample), String> {
    let (warm, warmed) = mpsc::channel();
    let work = move || {
        cpu.map(sys::pin_to); // it is faster there, and works anywhere
        forwarding::run(middle, &course, |sample| {
            let _ = warm.send(sample); // whoever started this thread waits for it
        })
    };
    let thread = hosts.run_between(|| std::thread::Builder::new().name("forward".into()).spawn(work));
    let thread =
        thread.map_err(|error| format!("a thread could not be started: {error}; raise RLIMIT_NPROC"))?;
    let warm = warmed.recv().map_err(|_| "the forwarding thread ended before its warm-up".to_owned())?;
    Ok((thread, warm))
}

/// The transfer from one host to the other, until it is time or the user wants an end.
fn transfer(hosts: &TwoHosts, course: &Course, warm: &Sample, view: &View<'_>) -> Result<TcpReport, String> {
    let params = TcpParams { duration: Duration::from_secs(view.seconds) + GRACE, ..TcpParams::default() };
    let failed = |error: NetError| format!("the transfer between the hosts failed: {}", with_cause(&error));
    let (from, to) = (&hosts.a, &hosts.b);
    let transfer = TcpTransfer::start(&from.namespace, &to.namespace, to.address, params).map_err(failed)?;
    course.move_to(Phase::Traffic);
    live::watch(course, warm, view, Some(&transfer));
    transfer.stop();
    transfer.join().map_err(failed)
}

impl Bytes for TcpTransfer {
    fn arrived(&self) -> u64 {
        self.received()
    }

    fn is_over(&self) -> bool {
        self.is_over()
    }
}

fn sum(sample: &Sample, of: fn(&DeviceStats) -> u64) -> u64 {
    sample.iter().map(|at| of(&at.nic)).sum()
}

/// Every frame that came to a device of ours was sent on, or is known to have been dropped: then TCP sent it again. If the
/// transfer's bytes did not all come as they were sent, that is damage.
fn count(mode: String, mtu: u32, seconds: f64, report: TcpReport, (warm, end): (Sample, Sample)) -> Counted {
    Counted {
        mode,
        program: DemoAction::Forward,
        size: mtu as usize + ETH_HEADER,
        seconds,
        sent: sum(&end, |nic| nic.rx_packets + nic.rx_no_buffer),
        arrived: sum(&end, |nic| nic.tx_completed),
        corrupt: u64::from(!report.is_whole()),
        gbit_s: Some(report.gbit_s()),
        warm,
        end,
    }
}

/// An error with what caused it.
fn with_cause(error: &NetError) -> String {
    match error.source() {
        Some(cause) => format!("{error} ({cause})"),
        None => error.to_string(),
    }
}
