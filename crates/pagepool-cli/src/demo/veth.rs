//! The demonstration between two kernels: a TCP transfer from one network namespace to another, through this
//! process over AF_XDP.
//!
//! ```text
//!   198.18.0.1  far0 ======= near0  forwarding loop  near1 ======= far1  198.18.0.2
//! ```
//!
//! Two sockets share one UMEM, each with its own pool, so one sends what the other receives without a copy
//! here. Nothing outlives the process: its threads hold the namespaces, its descriptors the programs.

use std::process::ExitCode;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use pagepool::{Arena, ETH_HEADER, Error, Holders};
use pagepool_link::{LinkError, TcpParams, TcpReport, TcpTransfer, TwoHosts, TwoHostsParams};
use pagepool_net::{Attach, OpenedDevice, TxMode, open_devices};

use super::forward_task::{DemoHandler, ForwardTask};
use super::live::{DemoFigures, DemoTitle, DemoView};
use super::outcome::DemoResult;
use super::plan::DemoAction;
use crate::report::{error_chain, in_words};
use crate::traffic::sockets::{SocketSizes, memory_node};
use crate::traffic::{Phase, SharedState, sum};

/// The sender is stopped when the time is over. This limits it if that fails.
const GRACE: Duration = Duration::from_secs(60);

/// What is made before a packet is sent. The order matters: devices are closed before their links are
/// removed.
pub struct VethSetup {
    pub task: ForwardTask,
    pub hosts: TwoHosts,
}

impl VethSetup {
    /// Makes two hosts, and a device on the link to each. With two CPUs, the first host works on the first
    /// one: a sender does most work, which would otherwise be done on the CPU of the forwarding thread.
    pub fn new(mtu: u32, cpus: Option<[usize; 2]>, holders: Holders) -> Result<Self, String> {
        let stacks = [cpus.map(|[host, _]| host as u32), None];
        let params = TwoHostsParams { mtu, stacks, ..TwoHostsParams::default() };
        let hosts = TwoHosts::new(&params).map_err(in_words)?;
        let names = hosts.near.each_ref().map(|link| format!("af_xdp:{}", link.name));
        let cpu = cpus.map(|[_, cpu]| cpu).filter(|_| hosts.a.stack.is_some());
        let mut sizes = SocketSizes::of_mtu(mtu);
        sizes.needs.holders = holders;
        // In the namespace of the links: a socket belongs to the namespace in which it is opened.
        let task = hosts.run_between(move || open(&names, sizes, cpu));
        Ok(Self { task: task.map_err(in_words)?, hosts })
    }

    /// How the devices are attached. Both are of one kind.
    pub fn mode(&self) -> String {
        self.task.queues[0]
            .socket
            .as_ref()
            .map(|socket| Attach::mode_name(socket.attach, socket.zero_copy))
            .unwrap_or_default()
    }
}

/// Opens a queue of each interface, over one memory, for a thread on a CPU.
fn open(names: &[String; 2], mut sizes: SocketSizes, cpu: Option<usize>) -> Result<ForwardTask, Error> {
    let mut cpus: Vec<_> = cpu.into_iter().collect();
    sizes.needs.node = memory_node::choose([], &cpus);
    if let Some(node) = sizes.needs.node.filter(|_| cpus.is_empty()) {
        cpus = memory_node::cpus_of(node);
    }
    let arena = Arena::new(sizes.arena("demo", 2))?;
    let devices = names.each_ref().map(|name| (&**name, &[0][..]));
    let opened = open_devices(&devices, &sizes.open_params("demo"), &arena)?;
    let opened: Vec<_> = opened.into_iter().flatten().collect();
    let Ok(queues) = <[OpenedDevice; 2]>::try_from(opened) else { unreachable!("one queue of each") };
    let SocketSizes { pages, burst, .. } = sizes;
    Ok(ForwardTask { queues, pages: [pages; 2], burst, action: DemoAction::Forward, consumer: None, cpus })
}

pub fn demonstrate(setup: VethSetup, mtu: u32, view: &DemoView<'_>) -> Result<ExitCode, String> {
    let (mode, VethSetup { task, hosts }) = (setup.mode(), setup);
    let batch = task.queues[1].socket.as_ref().is_some_and(|socket| socket.tx_mode == TxMode::BpfBatch);
    let title = title(&mode, batch, mtu, view.seconds);
    let pools = task.pools();
    let state = Arc::new(SharedState::new(1));
    let forwarding = start(task, &state, &hosts)?;
    let (start, warm) = (Instant::now(), state.sample());
    let mut figures = DemoFigures::begin(view, warm.clone(), title);
    let transferred = transfer(&hosts, &state, &mut figures, view.seconds);
    let seconds = start.elapsed().as_secs_f64();
    state.move_to(Phase::Draining);
    forwarding.join().map_err(|_| "the forwarding thread panicked".to_owned())?;
    let (report, end) = (transferred?, state.sample());
    // A frame that a device received was sent on, or counted as dropped: then TCP sent it again.
    let result = DemoResult {
        mode,
        action: DemoAction::Forward,
        size: mtu as usize + ETH_HEADER,
        seconds,
        sent: sum(&end.ports, |at| at.nic.rx_packets + at.nic.rx_no_buffer),
        arrived: sum(&end.ports, |at| at.nic.tx_completed),
        corrupt: u64::from(!report.is_whole()),
        gbit_s: Some(report.gbit_s()),
        warm: warm.ports,
        end: end.ports,
    };
    Ok(figures.end(&result, report.received, &result.verdict(&pools, view.limit)))
}

fn title(mode: &str, batch: bool, mtu: u32, seconds: u64) -> DemoTitle {
    let tx = if batch { ", TX by BPF batch" } else { "" };
    DemoTitle {
        line: format!("TCP, kernel to kernel over {mode}{tx}, MTU {mtu}, {seconds} s"),
        fields: vec![
            ("mode", mode.into()),
            ("action", DemoAction::Forward.name().into()),
            ("mtu", mtu.into()),
        ],
        interfaces: ["near0", "near1"],
        has_transfer: true,
    }
}

/// Starts the forwarding thread in the namespace between the hosts, where BPF programs that send find their
/// interfaces.
pub fn start(
    task: ForwardTask,
    state: &Arc<SharedState>,
    hosts: &TwoHosts,
) -> Result<JoinHandle<DemoHandler>, String> {
    let state = state.clone();
    hosts.run_between(move || task.start(state))
}

/// Transfers from one host to the other until the time is over or a signal ends the demonstration.
fn transfer(
    hosts: &TwoHosts,
    state: &SharedState,
    figures: &mut DemoFigures<'_>,
    seconds: u64,
) -> Result<TcpReport, String> {
    let params = TcpParams { duration: Duration::from_secs(seconds) + GRACE, ..TcpParams::default() };
    let failed = |error: LinkError| format!("the transfer between the hosts failed: {}", error_chain(&error));
    let (from, to) = (&hosts.a, &hosts.b);
    let transfer = TcpTransfer::start(&from.namespace, &to.namespace, to.address, params).map_err(failed)?;
    state.move_to(Phase::Traffic);
    figures.watch(state, Some(&transfer), |_, now| sum(&now.ports, |at| at.nic.tx_completed));
    transfer.stop();
    transfer.join().map_err(failed)
}
