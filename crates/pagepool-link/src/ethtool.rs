//! Driver settings, read and changed by ioctl. `libc` has no types for them, and a few commands need no
//! crate.

pub(crate) mod offload;

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use self::offload::Offload;
use crate::error::LinkError;
use crate::message::text;
use crate::sys::errno::{EINVAL, EOPNOTSUPP};
use crate::sys::ethtool::{self as sys, Command, Features};

/// The queues that a driver uses, and could use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Channels {
    /// Queues that receive, including those that also send.
    pub rx: u32,
    /// Queues that send, including those that also receive.
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
    /// Opens a socket in the calling thread's namespace.
    pub fn open() -> Result<Self, LinkError> {
        let socket = sys::open().map_err(|error| LinkError::call("socket", "ethtool", error))?;
        Ok(Self { socket })
    }

    /// The active offloads. An offload that the driver does not know is off.
    pub fn offloads(&self, link: &str) -> Result<Vec<Offload>, LinkError> {
        self.those(link, &Offload::ALL, |features| features.active)
    }

    /// Turns an offload on or off, and checks the result.
    pub fn set_offload(&self, link: &str, offload: Offload, on: bool) -> Result<(), LinkError> {
        let (features, bits) = (self.features(link)?, numbered(&self.feature_names(link)?, &[offload]));
        let is_so = |features: Features| (features.active & bits != 0) == on;
        if !is_so(features) {
            self.set(link, features, bits & features.available, on)?;
            if !is_so(self.features(link)?) {
                return Err(kept(link, offload, on));
            }
        }
        Ok(())
    }

    /// Turns off the offloads that let a link send packets that are not whole, or lack checksums or VLAN
    /// tags.
    pub fn send_whole_packets(&self, link: &str) -> Result<(), LinkError> {
        Offload::OF_SENDER.into_iter().try_for_each(|offload| self.set_offload(link, offload, false))
    }

    /// The offloads in `of` that have a feature in `bits`.
    pub(crate) fn those(
        &self,
        link: &str,
        of: &[Offload],
        bits: impl Fn(Features) -> u128,
    ) -> Result<Vec<Offload>, LinkError> {
        let (names, bits) = (self.feature_names(link)?, bits(self.features(link)?));
        Ok(of.iter().copied().filter(|&offload| bits & numbered(&names, &[offload]) != 0).collect())
    }

    /// Fails if one of the offloads has a feature in `bits`: the driver did not turn it to `wanted`.
    pub(crate) fn refuse_kept(
        &self,
        link: &str,
        of: &[Offload],
        wanted: bool,
        bits: impl Fn(Features) -> u128,
    ) -> Result<(), LinkError> {
        let all = self.those(link, of, bits)?;
        all.first().map_or(Ok(()), |&offload| Err(kept(link, offload, wanted)))
    }

    /// The kernel's names of features, by their numbers.
    pub(crate) fn feature_names(&self, link: &str) -> Result<Vec<String>, LinkError> {
        let names = sys::feature_names(self.socket.as_fd(), link).map_err(|error| refused(link, error))?;
        Ok(names.iter().map(|name| text(name)).collect())
    }

    /// Changeable, requested and active features.
    pub(crate) fn features(&self, link: &str) -> Result<Features, LinkError> {
        sys::features(self.socket.as_fd(), link).map_err(|error| refused(link, error))
    }

    /// Turns features on or off, where the driver allows it.
    pub(crate) fn set(&self, link: &str, now: Features, bits: u128, on: bool) -> Result<(), LinkError> {
        match sys::set_features(self.socket.as_fd(), link, now, bits, on) {
            Err(error) if !is_fixed(&error) => Err(refused(link, error)),
            _ => Ok(()),
        }
    }

    /// The queues that the driver uses; `None` if it does not report them.
    pub fn channels(&self, link: &str) -> Result<Option<Channels>, LinkError> {
        let answer = self.query(link, sys::GCHANNELS)?;
        Ok(answer.map(|[_, max_rx, max_tx, _, max_combined, rx, tx, _, combined]| Channels {
            rx: rx.saturating_add(combined),
            tx: tx.saturating_add(combined),
            max_rx: max_rx.max(max_combined),
            max_tx: max_tx.max(max_combined),
        }))
    }

    /// Slots of the hardware's receive ring, and the most that it could have; `None` if the driver has none,
    /// or does not report them.
    pub fn rx_ring(&self, link: &str) -> Result<Option<(u32, u32)>, LinkError> {
        let answer = self.query(link, sys::GRINGPARAM)?;
        Ok(answer.map(|[_, most, _, _, _, slots, ..]| (slots, most)).filter(|&(slots, _)| slots > 0))
    }

    /// The name of the driver, if there is one.
    pub fn driver(&self, link: &str) -> Result<Option<String>, LinkError> {
        let Some(words) = self.query(link, sys::GDRVINFO)? else { return Ok(None) };
        let name: Vec<u8> = words[1..9].iter().flat_map(|word| word.to_ne_bytes()).collect();
        Ok(Some(text(&name)))
    }

    /// The indirection table of a card with RSS. The hash of a packet's flow selects an entry, which is the
    /// packet's queue. `None` if the driver has no such table. Two system calls.
    ///
    /// ```
    /// use pagepool_link::Ethtool;
    /// assert_eq!(Ethtool::open()?.indirection("lo")?, None);
    /// # Ok::<(), pagepool_link::LinkError>(())
    /// ```
    pub fn indirection(&self, link: &str) -> Result<Option<Vec<u32>>, LinkError> {
        let table = if_supported(link, sys::indirection(self.socket.as_fd(), link))?;
        Ok(table.filter(|table| !table.is_empty()))
    }

    /// Sets the indirection table; an empty one restores the driver's default.
    pub(crate) fn set_indirection(&self, link: &str, table: &[u32]) -> Result<(), LinkError> {
        sys::set_indirection(self.socket.as_fd(), link, table).map_err(|error| refused(link, error))
    }

    /// The number of a card's rules for single flows (ntuple); `None` if the driver has no such rules.
    ///
    /// ```
    /// use pagepool_link::Ethtool;
    /// assert_eq!(Ethtool::open()?.flow_rules("lo")?, None);
    /// # Ok::<(), pagepool_link::LinkError>(())
    /// ```
    pub fn flow_rules(&self, link: &str) -> Result<Option<u32>, LinkError> {
        if_supported(link, sys::rule_count(self.socket.as_fd(), link))
    }

    fn query<const WORDS: usize>(
        &self,
        link: &str,
        command: Command<WORDS>,
    ) -> Result<Option<[u32; WORDS]>, LinkError> {
        if_supported(link, sys::query(self.socket.as_fd(), link, command, 0))
    }
}

/// The answer of a driver; `None` if it does not know the request.
fn if_supported<T>(link: &str, answer: io::Result<T>) -> Result<Option<T>, LinkError> {
    match answer {
        Err(error) if error.raw_os_error() == Some(EOPNOTSUPP) => Ok(None),
        answer => answer.map(Some).map_err(|error| refused(link, error)),
    }
}

/// The bits of the features of these offloads, given all feature names by number.
pub(crate) fn numbered(names: &[String], of: &[Offload]) -> u128 {
    let is_of = |name: &str| of.iter().any(|offload| offload.has(name));
    names.iter().enumerate().fold(0, |bits, (number, name)| bits | u128::from(is_of(name)) << number)
}

fn kept(link: &str, offload: Offload, wanted: bool) -> LinkError {
    LinkError::FixedOffload { link: link.into(), offload: offload.name(), wanted }
}

/// Whether this error means that a driver does not change a setting.
fn is_fixed(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(EOPNOTSUPP | EINVAL))
}

fn refused(link: &str, error: io::Error) -> LinkError {
    LinkError::call("ioctl(SIOCETHTOOL)", format!("interface {link:?}"), error)
}
