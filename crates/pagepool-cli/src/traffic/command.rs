//! A command on interfaces: its plan, and the work of its threads.

use std::time::Duration;

use super::capture::CaptureTap;
use super::options::{ReceiveOptions, TrafficOptions, TransmitOptions};
use crate::traffic::poll_loop::{FrameSource, PortHandler};
use crate::traffic::sockets::{Interface, PortSide, SocketPlan, SocketSizes};

pub trait TrafficCommand {
    type Handler: PortHandler;
    /// Where a thread's own frames come from.
    type Source: FrameSource;

    fn plan(&self) -> TrafficPlan<'_>;

    /// An error if it cannot work on these interfaces.
    fn check(&self, _: &[Interface]) -> Result<(), String> {
        Ok(())
    }

    /// The longest packet without its Ethernet header.
    fn mtu(&self, interfaces: &[Interface]) -> u32 {
        interfaces.iter().map(|interface| interface.link.mtu).max().unwrap_or(0)
    }

    fn work(&self, thread: &mut ThreadContext<'_>) -> (Self::Handler, Self::Source);
}

pub struct TrafficPlan<'a> {
    pub name: &'static str,
    pub interfaces: Vec<&'a str>,
    pub options: &'a TrafficOptions,
    pub sockets: SocketPlan<'a>,
    /// How many numbered frames it checks, if it does.
    pub expected_frames: Option<u64>,
    /// How long a thread sleeps, even if packets arrive, before packets can end a sleep.
    pub rx_nap: Duration,
    /// Whether the interfaces are in promiscuous mode.
    pub promiscuous: bool,
    /// Whether offloads that change received packets are off while the command runs.
    pub fix_offloads: bool,
    /// Whether cards spread flows over only the used queues.
    pub rss: bool,
}

impl<'a> TrafficPlan<'a> {
    /// A plan that neither receives nor sends.
    pub fn new(name: &'static str, interfaces: Vec<&'a str>, options: &'a TrafficOptions) -> Self {
        Self {
            name,
            interfaces,
            options,
            sockets: SocketPlan::default(),
            expected_frames: None,
            rx_nap: Duration::ZERO,
            promiscuous: false,
            fix_offloads: false,
            rss: false,
        }
    }

    /// This plan, with receiving as these options say.
    pub fn receiving(self, receive: &'a ReceiveOptions) -> Self {
        let ReceiveOptions { fix_offloads, rss, steer, beside, map, pin, rx_usecs } = receive;
        let (attach, steer, pin) = (Some(self.options.mode.attach()), steer.as_ref(), pin.as_deref());
        let sockets = SocketPlan { attach, maps: map, pin, beside: *beside, steer, ..self.sockets };
        let rx_nap = Duration::from_micros(*rx_usecs);
        Self { sockets, rx_nap, fix_offloads: *fix_offloads, rss: *rss, ..self }
    }

    /// This plan, with sending as these options say.
    pub fn sending(self, transmit: &TransmitOptions) -> Self {
        Self { sockets: SocketPlan { tx_mode: Some(transmit.tx_mode()), ..self.sockets }, ..self }
    }

    /// Whether it changes settings of an interface, and restores them.
    pub fn changes_settings(&self) -> bool {
        self.fix_offloads || self.rss
    }

    /// Its effect on an interface, to be followed by the interface's name.
    pub fn effect(&self) -> String {
        let effect = match (self.sockets.attach, self.options.mode) {
            (Some(_), _) if self.sockets.steer.is_some() => "withholds packets that match from the kernel on",
            (Some(_), _) => "withholds all packets from the kernel on",
            (None, mode) if mode.copies() => "may saturate",
            // Zero copy needs an XDP program, and many drivers restart the link to attach one.
            (None, _) => "may restart and saturate",
        };
        format!("{} {effect}", self.name)
    }
}

pub struct ThreadContext<'a> {
    pub interfaces: &'a [Interface],
    pub sizes: &'a SocketSizes,
    pub threads: usize,
    /// Where each of its ports belongs.
    pub sides: Vec<PortSide>,
    /// Copies packets to a file. A command that sends takes it; otherwise received packets are copied.
    pub tap: Option<CaptureTap>,
}
