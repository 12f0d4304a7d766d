//! What a command shows to those who observe it: its pools, and the sockets and ports of its threads.
//!
//! Whoever runs a command asked it to move packets: that it cannot publish, because nobody may write where
//! files of running processes are, is no reason not to. It then runs as with `--no-publish`.

use std::num::NonZeroU32;

use clap::{Args, ValueEnum};
use pagepool::{Holders, PoolRef, Publication, PublishedEntry, publish_entry, sign_of_life};
use pagepool_net::{DeviceStats, ForwardStats, KernelStats, PathStats};

use crate::engine::port_sample::PortSample;
use crate::engine::run_state::RunState;

/// Option of every command that has pools.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct PublishOptions {
    /// Do not show the pools to `pagepool list`, `show`, `top`, `doctor` and `export`
    ///
    /// Without this option they are in a file of $PAGEPOOL_RUN, else of /run/pagepool for root, else of
    /// $XDG_RUNTIME_DIR/pagepool. If there is no such folder, or it cannot be written to, the command runs
    /// all the same and shows nothing.
    #[arg(long)]
    no_publish: bool,
    /// Record who holds each page [WHAT: default sites]
    ///
    /// For `pagepool show`, and for the verdict if buffers are missing: since when, and with `sites` also
    /// which thread allocated it, and where in the program. `stacks` adds the call stack of one in 1000
    /// allocations. It costs instructions for every packet: docs/observing.md says how many.
    #[arg(long, value_enum, value_name = "WHAT", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "sites")]
    holders: Option<HoldersArg>,
}

/// What is recorded of pages that are out.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum HoldersArg {
    Ages,
    Sites,
    Stacks,
}

/// One stack in so many allocations: at a million packets a second a thousand.
const ONE_STACK_IN: Option<NonZeroU32> = NonZeroU32::new(1000);

impl PublishOptions {
    /// What pools record.
    pub fn holders(self) -> Holders {
        match self.holders {
            None => Holders::Off,
            Some(HoldersArg::Ages) => Holders::Ages,
            Some(HoldersArg::Sites) => Holders::Sites { stacks: None },
            Some(HoldersArg::Stacks) => Holders::Sites { stacks: ONE_STACK_IN },
        }
    }

    /// Shows all pools that are made from now on, under the name of the command, as long as the value lives.
    pub fn publish(self, command: &str) -> Option<Publication> {
        if self.no_publish { None } else { pagepool::publish(command).ok() }
    }
}

/// What does not change of a port.
pub struct ShownPort {
    pub pool: PoolRef,
    /// `socket`, or `nic` in memory.
    pub device: &'static str,
    pub interface: String,
    /// In the network namespace of its sockets; none in memory.
    pub ifindex: Option<u32>,
    pub queue: u32,
    /// What else there is to say of the device.
    pub params: Vec<(&'static str, String)>,
}

/// The ports of a run, in the order of their samples.
#[derive(Default)]
pub struct ShownPorts {
    ports: Vec<PortEntries>,
    /// How often the threads had told what they see.
    told: Vec<u64>,
}

/// The entries of a port; none if nothing is published, or the file is full.
struct PortEntries {
    device: Option<PublishedEntry>,
    port: Option<PublishedEntry>,
}

impl ShownPorts {
    /// Shows them, as long as the value lives.
    pub fn new(ports: impl IntoIterator<Item = ShownPort>) -> Self {
        let ports = ports.into_iter().enumerate().map(|(at, port)| PortEntries::new(at as u64 + 1, &port));
        Self { ports: ports.collect(), told: Vec::new() }
    }

    /// Sets all counters to what the threads told last, if they told anything since. Says that the process
    /// lives.
    pub fn look(&mut self, state: &RunState) {
        sign_of_life();
        let told = state.published();
        if self.ports.is_empty() || told == self.told {
            return;
        }
        self.told = told;
        for (entries, sample) in self.ports.iter().zip(&state.sample().ports) {
            entries.set(sample);
        }
    }
}

impl PortEntries {
    fn new(id: u64, port: &ShownPort) -> Self {
        let (parent, name) = (port.pool.id().into(), format!("{}:{}", port.interface, port.queue));
        let queue = port.queue.to_string();
        let ifindex = port.ifindex.map(|index| index.to_string());
        let mut params = vec![("interface", &*port.interface), ("queue", &*queue)];
        params.extend(ifindex.as_deref().map(|index| ("ifindex", index)));
        let of_port = params.clone();
        params.extend(port.params.iter().map(|(key, value)| (*key, &**value)));
        let device = [DeviceStats::NAMES, KernelStats::NAMES].concat();
        let forward = [ForwardStats::NAMES, PathStats::NAMES, &["waiting"]].concat();
        Self {
            device: publish_entry(port.device, id, parent, &name, &params, &device),
            port: publish_entry("port", id, parent, &name, &of_port, &forward),
        }
    }

    fn set(&self, sample: &PortSample) {
        let kernel = sample.nic.kernel.unwrap_or_default();
        if let Some(device) = &self.device {
            set(device, sample.nic.entries().chain(kernel.entries()));
        }
        if let Some(port) = &self.port {
            let waiting = ("waiting", sample.waiting);
            set(port, sample.port.entries().chain(sample.paths.entries()).chain([waiting]));
        }
    }
}

fn set(entry: &PublishedEntry, counters: impl Iterator<Item = (&'static str, u64)>) {
    counters.enumerate().for_each(|(at, (_, value))| entry.set(at, value));
}
