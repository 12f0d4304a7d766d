//! What a command on interfaces is: its plan, and what its threads do.

use std::path::{Path, PathBuf};
use std::time::Duration;

use pagepool_net::{Attach, Match, TxMode};

use super::capture::CaptureTap;
use super::interface::Interface;
use super::options::{Mode, ReceiveOptions, TrafficOptions, TransmitOptions};
use crate::engine::frame_source::FrameSource;
use crate::engine::poll_loop::PortHandler;
use crate::engine::socket_sizes::SocketSizes;

/// A command on interfaces.
pub trait TrafficCommand {
    /// What a thread does with packets.
    type Handler: PortHandler;
    /// Where a thread's own frames come from.
    type Source: FrameSource;

    /// What it does with which interfaces.
    fn plan(&self) -> TrafficPlan<'_>;

    /// An error for interfaces on which it cannot work.
    fn check(&self, _: &[Interface]) -> Result<(), String> {
        Ok(())
    }

    /// Longest packet without its Ethernet header.
    fn mtu(&self, interfaces: &[Interface]) -> u32 {
        interfaces.iter().map(|interface| interface.link.mtu).max().unwrap_or(0)
    }

    /// The handler and the source of one thread.
    fn work(&self, thread: &mut ThreadContext<'_>) -> (Self::Handler, Self::Source);
}

/// What a command does with which interfaces.
pub struct TrafficPlan<'a> {
    /// The name of the command.
    pub name: &'static str,
    pub interfaces: Vec<&'a str>,
    pub options: &'a TrafficOptions,
    /// Where the XDP program runs that takes packets from the kernel; without one nothing is received.
    pub attach: Option<Attach>,
    /// Maps of programs that are attached already, one for each interface, in place of ours.
    pub maps: &'a [PathBuf],
    /// The folder for the links of ours, if they stay.
    pub pin: Option<&'a Path>,
    /// The priority of our XDP programs, if they run beside others.
    pub beside: Option<u32>,
    /// The packets that it takes; `None`: all.
    pub steer: Option<&'a Match>,
    /// How packets go out, if any do.
    pub tx_mode: Option<TxMode>,
    /// How many numbered frames are looked for, if they are.
    pub expected_frames: Option<u64>,
    /// How long a thread sleeps, whatever arrives, before packets may end a sleep.
    pub rx_nap: Duration,
    /// Whether the interfaces take packets for every MAC address.
    pub promiscuous: bool,
    /// Whether offloads that falsify what is received are off while the command runs.
    pub fix_offloads: bool,
    /// Whether cards spread flows over the used queues alone.
    pub rss: bool,
}

impl<'a> TrafficPlan<'a> {
    /// Of a command that neither receives nor sends.
    pub fn new(name: &'static str, interfaces: Vec<&'a str>, options: &'a TrafficOptions) -> Self {
        Self {
            name,
            interfaces,
            options,
            attach: None,
            maps: &[],
            pin: None,
            beside: None,
            steer: None,
            tx_mode: None,
            expected_frames: None,
            rx_nap: Duration::ZERO,
            promiscuous: false,
            fix_offloads: false,
            rss: false,
        }
    }

    /// Of one that receives as its options say.
    pub fn receiving(self, receive: &'a ReceiveOptions) -> Self {
        let (attach, maps, steer) = (Some(receive.attach()), receive.maps(), receive.steer());
        let (pin, beside, rx_nap) = (receive.pin(), receive.beside(), receive.rx_nap());
        let ReceiveOptions { fix_offloads, rss, .. } = *receive;
        Self { attach, maps, steer, pin, beside, rx_nap, fix_offloads, rss, ..self }
    }

    /// Of one that sends as its options say.
    pub fn sending(self, transmit: &TransmitOptions) -> Self {
        Self { tx_mode: Some(transmit.tx_mode()), ..self }
    }

    /// Whether it changes what an interface does, and puts that back.
    pub fn sets(&self) -> bool {
        self.fix_offloads || self.rss
    }

    /// What becomes of an interface, with the interface's name to follow.
    pub fn effect(&self) -> String {
        let effect = match (self.attach, self.options.mode) {
            (Some(_), _) if self.steer.is_some() => "withholds packets that match from the kernel on",
            (Some(_), _) => "withholds all packets from the kernel on",
            (None, Mode::Copy) => "may saturate",
            // Zero copy needs an XDP program, and many drivers restart the link to attach one.
            (None, _) => "may restart and saturate",
        };
        format!("{} {effect}", self.name)
    }
}

/// One of the threads of a command.
pub struct ThreadContext<'a> {
    pub interfaces: &'a [Interface],
    pub sizes: &'a SocketSizes,
    /// How many threads there are.
    pub threads: usize,
    /// Of which pair of queues and interface each of its ports is.
    pub sides: Vec<PortSide>,
    /// Where packets are copied to for a file. Who sends takes it; else what is received goes there.
    pub tap: Option<CaptureTap>,
}

/// Where a port belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortSide {
    /// Queues of several interfaces that packets go between, over memory of their own.
    pub pair: usize,
    /// Which of the command's interfaces, and which of its queues.
    pub interface: usize,
    pub queue: u32,
}
