//! A command on interfaces: its plan, and the work of its threads.

use pagepool_net::TxMode;

use super::capture::CaptureTap;
use super::options::{Mode, ReceiveOptions, TrafficOptions};
use crate::traffic::poll_loop::{FrameSource, PortHandler};
use crate::traffic::sockets::{Interface, PortSide, SocketSizes};

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
        interfaces.iter().map(|interface| interface.mtu).max().unwrap_or(0)
    }

    fn work(&self, thread: &mut ThreadContext<'_>) -> (Self::Handler, Self::Source);
}

pub struct TrafficPlan<'a> {
    pub name: &'static str,
    pub interfaces: Vec<&'a str>,
    pub options: &'a TrafficOptions,
    /// How packets are received, if they are.
    pub receive: Option<&'a ReceiveOptions>,
    /// How packets are sent, if they are.
    pub tx_mode: Option<TxMode>,
    /// How many numbered frames it checks, if it does.
    pub expected_frames: Option<u64>,
    /// Whether the interfaces are in promiscuous mode.
    pub promiscuous: bool,
}

impl<'a> TrafficPlan<'a> {
    /// A plan that neither receives nor sends.
    pub fn new(name: &'static str, interfaces: Vec<&'a str>, options: &'a TrafficOptions) -> Self {
        let (receive, tx_mode, expected_frames) = (None, None, None);
        Self { name, interfaces, options, receive, tx_mode, expected_frames, promiscuous: false }
    }

    /// Whether cards spread flows over only the used queues.
    pub fn rss(&self) -> bool {
        self.receive.is_some_and(|receive| receive.rss)
    }

    /// Whether it changes settings of an interface, and restores them.
    pub fn changes_settings(&self) -> bool {
        self.receive.is_some_and(|receive| receive.rss || receive.fix_offloads)
    }

    /// Whether it runs beside other XDP programs.
    pub fn is_beside(&self) -> bool {
        self.receive.is_some_and(|receive| receive.beside.is_some())
    }

    /// An option that only AF_XDP sockets have, if one is given. `can_spin`: a thread may poll without pause.
    pub fn option_of_sockets(&self, can_spin: bool) -> Option<&'static str> {
        let of_options = [
            ("--mode", self.options.mode != Mode::Auto),
            ("--busy-poll", self.options.busy_poll.is_some() && !can_spin),
            ("--tx-mode", self.tx_mode.is_some_and(|mode| mode != TxMode::Auto)),
        ];
        let of_receive = self.receive.map(|receive| {
            [
                ("--match", receive.steer.is_some()),
                ("--beside", receive.beside.is_some()),
                ("--map", !receive.map.is_empty()),
                ("--pin", receive.pin.is_some()),
                ("--rss", receive.rss),
                ("--fix-offloads", receive.fix_offloads),
            ]
        });
        let mut all = of_options.into_iter().chain(of_receive.into_iter().flatten());
        all.find(|(_, given)| *given).map(|(option, _)| option)
    }

    /// Its effect on an interface, to be followed by the interface's name.
    pub fn effect(&self) -> String {
        let effect = match (self.receive, self.options.mode) {
            (Some(of), _) if of.steer.is_some() => "withholds packets that match from the kernel on",
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
