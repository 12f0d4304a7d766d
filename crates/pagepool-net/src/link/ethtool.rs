//! What drivers do beside moving packets, asked and changed by ioctl: `libc` has no types for it, and no
//! crate is needed for a handful of commands.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use super::error::NetError;
use super::message::text;
use super::sys::ethtool::{self as sys, Command, ETH_FLAG_LRO};
use crate::sys::errno::{EINVAL, EOPNOTSUPP};

/// An offload: work on packets that a driver does, or the kernel in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offload {
    /// Checksums of what arrives are checked already.
    RxChecksum,
    /// Checksums of what is sent are left to the device.
    TxChecksum,
    /// What is sent may lie in several fragments.
    ScatterGather,
    /// TCP sends segments larger than the MTU and leaves cutting them to the device.
    Tso,
    /// The same, left to the kernel just in front of the driver.
    Gso,
    /// What arrives is put together into larger segments by the kernel.
    Gro,
    /// The same, by the device.
    Lro,
}

impl Offload {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::RxChecksum, Self::TxChecksum, Self::ScatterGather, Self::Tso, Self::Gso, Self::Gro, Self::Lro];
    /// What a link must not have on its sending side if another takes its packets as they are, byte for byte:
    /// with these, what is sent has no checksum yet, or is larger than the MTU. In the order in which they
    /// can be turned off.
    pub const OF_SENDER: [Self; 3] = [Self::Tso, Self::Gso, Self::TxChecksum];

    /// The commands that read and set it, its keyword and its name.
    fn row(self) -> ([Command<2>; 2], &'static str, &'static str) {
        match self {
            Self::RxChecksum => ([sys::GRXCSUM, sys::SRXCSUM], "rx", "rx-checksumming"),
            Self::TxChecksum => ([sys::GTXCSUM, sys::STXCSUM], "tx", "tx-checksumming"),
            Self::ScatterGather => ([sys::GSG, sys::SSG], "sg", "scatter-gather"),
            Self::Tso => ([sys::GTSO, sys::STSO], "tso", "tcp-segmentation-offload"),
            Self::Gso => ([sys::GGSO, sys::SGSO], "gso", "generic-segmentation-offload"),
            Self::Gro => ([sys::GGRO, sys::SGRO], "gro", "generic-receive-offload"),
            Self::Lro => ([sys::GFLAGS, sys::SFLAGS], "lro", "large-receive-offload"),
        }
    }

    /// What `ethtool -K` is told to turn it on or off.
    pub fn keyword(self) -> &'static str {
        self.row().1
    }

    /// What `ethtool -k` calls it.
    pub fn name(self) -> &'static str {
        self.row().2
    }
}

impl fmt::Display for Offload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How many queues a driver uses, of how many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Channels {
    /// Queues that receive: those of their own and those that do both.
    pub rx: u32,
    /// Queues that send.
    pub tx: u32,
    /// Most queues that could receive.
    pub max_rx: u32,
    /// Most queues that could send.
    pub max_tx: u32,
}

/// A socket for ethtool requests to the drivers of one network namespace.
#[derive(Debug)]
pub struct Ethtool {
    socket: OwnedFd,
}

impl Ethtool {
    /// Opens one in the calling thread's namespace.
    pub fn open() -> Result<Self, NetError> {
        let socket = sys::open().map_err(|error| NetError::call("socket", "ethtool", error))?;
        Ok(Self { socket })
    }

    /// Whether an offload is on. What a driver does not know is off.
    pub fn offload(&self, link: &str, offload: Offload) -> Result<bool, NetError> {
        let ([get, _], ..) = offload.row();
        let [_, value] = self.ask(link, get)?.unwrap_or_default();
        Ok(if offload == Offload::Lro { value & ETH_FLAG_LRO != 0 } else { value != 0 })
    }

    /// The offloads that are on.
    pub fn offloads(&self, link: &str) -> Result<Vec<Offload>, NetError> {
        let on = |offload| Ok(self.offload(link, offload)?.then_some(offload));
        Offload::ALL.into_iter().map(on).filter_map(Result::transpose).collect()
    }

    /// Turns an offload on or off, and looks whether it is.
    pub fn set_offload(&self, link: &str, offload: Offload, on: bool) -> Result<(), NetError> {
        if self.offload(link, offload)? == on {
            return Ok(());
        }
        let value = if offload == Offload::Lro { self.flags(link, on)? } else { u32::from(on) };
        let ([_, set], ..) = offload.row();
        match sys::ask(self.socket.as_fd(), link, set, value) {
            Err(error) if !is_fixed(&error) => Err(refused(link, error)),
            _ if self.offload(link, offload)? == on => Ok(()),
            _ => Err(NetError::FixedOffload { link: link.into(), offload: offload.name(), wanted: on }),
        }
    }

    /// Turns off what would make a link send anything but whole packets with their checksums.
    pub fn send_whole_packets(&self, link: &str) -> Result<(), NetError> {
        Offload::OF_SENDER.into_iter().try_for_each(|offload| self.set_offload(link, offload, false))
    }

    /// How many queues the driver uses; `None` if it does not say.
    pub fn channels(&self, link: &str) -> Result<Option<Channels>, NetError> {
        let answer = self.ask(link, sys::GCHANNELS)?;
        Ok(answer.map(|[_, max_rx, max_tx, _, max_combined, rx, tx, _, combined]| Channels {
            rx: rx.saturating_add(combined),
            tx: tx.saturating_add(combined),
            max_rx: max_rx.max(max_combined),
            max_tx: max_tx.max(max_combined),
        }))
    }

    /// Slots of the hardware's receive ring; `None` if the driver does not say, or has none.
    pub fn rx_ring(&self, link: &str) -> Result<Option<u32>, NetError> {
        let answer = self.ask(link, sys::GRINGPARAM)?;
        Ok(answer.map(|[_, _max, _, _, _, rx, ..]| rx).filter(|&slots| slots > 0))
    }

    /// The name of the driver; `None` if there is none to name.
    pub fn driver(&self, link: &str) -> Result<Option<String>, NetError> {
        let Some(words) = self.ask(link, sys::GDRVINFO)? else { return Ok(None) };
        let name: Vec<u8> = words[1..9].iter().flat_map(|word| word.to_ne_bytes()).collect();
        Ok(Some(text(&name)))
    }

    /// The flags as they are, but for the one of LRO.
    fn flags(&self, link: &str, lro: bool) -> Result<u32, NetError> {
        let now = sys::ask(self.socket.as_fd(), link, sys::GFLAGS, 0);
        let [_, now] = now.map_err(|error| refused(link, error))?;
        Ok(if lro { now | ETH_FLAG_LRO } else { now & !ETH_FLAG_LRO })
    }

    /// What a driver answers; `None` if it does not know the command.
    fn ask<const WORDS: usize>(
        &self,
        link: &str,
        command: Command<WORDS>,
    ) -> Result<Option<[u32; WORDS]>, NetError> {
        match sys::ask(self.socket.as_fd(), link, command, 0) {
            Err(error) if error.raw_os_error() == Some(EOPNOTSUPP) => Ok(None),
            answer => answer.map(Some).map_err(|error| refused(link, error)),
        }
    }
}

/// Whether a driver says with this that it will not change something.
fn is_fixed(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(EOPNOTSUPP | EINVAL))
}

fn refused(link: &str, error: io::Error) -> NetError {
    NetError::call("ioctl(SIOCETHTOOL)", format!("interface {link:?}"), error)
}
