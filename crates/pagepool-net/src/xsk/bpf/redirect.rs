//! The XDP program that redirects an interface's packets to sockets, and its map of sockets.
//!
//! What   one per interface, shared by the devices of its queues: our own XDP program, or the map of another
//!        one, in which this only sets and clears entries. Our own is attached by a link: the kernel detaches
//!        it when the last device is dropped, or when the process exits or is killed.
//! Order  attaching is the step that a driver may refuse, or restart the interface for, so it attaches a
//!        program that passes all packets. That is exchanged for the redirecting one when all sockets have
//!        buffers, and back before they are closed: no packet is redirected to a socket without buffers. A
//!        new match is a new program.
//! Who    any thread; attaching, in the interface's network namespace.

mod refusal;

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use pagepool::Error;
use pagepool_link::{AttachedXdp, LinkInfo, XdpMode, shell_word};

use self::refusal::{no_metadata, not_steered, refused};
use super::chain::dispatcher::{self, ChainForm, ChainSlot};
use super::chain::is_final;
use super::chain::member::ChainMember;
use super::pin::{not_of, open_link, open_map, pin, seen};
use super::rx_metadata::{Functions, RxMetadataReader, random_mark};
use super::waiting_sockets::WaitingSockets;
use super::{program, steer};
use crate::error::parameter;
use crate::interface::lookup;
use crate::steering::Match;
use crate::sys::bpf::{self as sys, Insn};
use crate::sys::errno;
use crate::sys::remedy::{failed, failed_unless};
use crate::xsk::grace_period::GracePeriod;

/// The fewest entries of a map.
const QUEUES: u32 = 64;

/// Where an XDP program runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Attach {
    /// In the driver if possible, otherwise before the stack; [`Redirect::mode`] returns the choice.
    #[default]
    Auto,
    /// In the driver, before the kernel makes an `sk_buff` of the packet.
    Native,
    /// Before the stack: works with any driver, but slower.
    Generic,
}

impl Attach {
    pub(in crate::xsk) fn of(mode: XdpMode) -> Self {
        if mode == XdpMode::Generic { Self::Generic } else { Self::Native }
    }

    fn places(self) -> &'static [XdpMode] {
        match self {
            Self::Auto => &[XdpMode::Native, XdpMode::Generic],
            Self::Native => &[XdpMode::Native],
            Self::Generic => &[XdpMode::Generic],
        }
    }
}

/// An XDP program that redirects packets to AF_XDP sockets, or the XSKMAP of one.
///
/// A packet that is redirected to a socket without buffers is lost, so open everything first:
///
/// | step | where packets go |
/// |---|---|
/// | [`load`](Self::load) | to the stack: nothing is attached |
/// | open the devices; [`receive`](crate::Device::receive) once gives each its buffers | to the stack |
/// | [`start_all`](Self::start_all) | to the sockets, on all interfaces at once |
/// | [`stop_all`](Self::stop_all) | to the stack; packets in the sockets can still be received |
/// | drop the devices, then this | to the stack: the XDP program is detached |
///
/// [`open_devices`](crate::open_devices) does the first three steps. [`attach`](Self::attach) loads and
/// starts.
///
/// For your own XDP program, which calls `bpf_redirect_map` on a map, use [`over_map`](Self::over_map), or
/// [`pinned`](Self::pinned) if the map has a name.
#[derive(Debug)]
pub struct Redirect {
    map: OwnedFd,
    ours: Option<Ours>,
    /// Our program in a chain, instead of `ours`.
    member: Option<ChainMember>,
    metadata: Option<RxMetadataReader>,
    /// In the map only from `start` to `stop`.
    waiting: WaitingSockets,
    /// Only an exchange of the program stops packets of other sockets in the map.
    has_others: AtomicBool,
}

/// Our XDP programs for an interface, of which one is attached. Drivers do not notice an exchange; many
/// restart the interface for the first attachment.
#[derive(Debug)]
struct Ours {
    interface: String,
    index: u32,
    how: Attach,
    kind: sys::Kind,
    /// Queries the driver for metadata.
    metadata_code: Vec<Insn>,
    /// Passes all packets to the stack.
    passing: OwnedFd,
    passing_id: u32,
    attached: OnceLock<XdpLink>,
    /// Locked while a program is attached or exchanged.
    redirecting: Mutex<Redirecting>,
    /// The name for the link, if any.
    pin: Option<PathBuf>,
}

/// Redirects packets of queues with a socket.
#[derive(Debug)]
struct Redirecting {
    program: OwnedFd,
    id: u32,
    /// Whether it is attached.
    runs: bool,
}

#[derive(Debug)]
struct XdpLink {
    link: OwnedFd,
    mode: Attach,
    why: Option<String>,
    pinned: bool,
}

impl Redirect {
    /// Loads an XDP program for an interface without attaching it: [`start`](Self::start) does that.
    ///
    /// It redirects the packets of each queue to the queue's socket, or to the stack if it has none. With
    /// `frags` it accepts packets of several buffers (Linux 5.18); otherwise drivers refuse it where packets
    /// may exceed a page.
    ///
    /// Requires `CAP_BPF` and `CAP_NET_ADMIN`. If an XDP program is attached, the error names it.
    pub fn load(interface: &str, how: Attach, frags: bool) -> Result<Arc<Self>, Error> {
        let link = lookup::look_up(interface)?;
        refuse_beside(&link)?;
        Self::load_as(&link, how, frags, None, None)
    }

    /// [Loads](Self::load) an XDP program whose link has a name in a BPF file system, such as
    /// `/sys/fs/bpf/eth1`.
    ///
    /// The link outlives this process: a later process with this name takes it over, without a detach, for
    /// which drivers would restart the interface. Packets go to the stack from the [`stop`](Self::stop) of
    /// the first process to the [`start`](Self::start) of the second. The second can open a queue when the
    /// first has closed its socket: the kernel has one UMEM per queue.
    ///
    /// One process at a time uses a name. If a second one starts while the first redirects, the first gets no
    /// more packets, and its [`is_detached`](Self::is_detached) is true. `how` must be that of the link, or
    /// [`Attach::Auto`].
    ///
    /// If the process exits or is killed, packets go to the stack. To detach the XDP program, remove the
    /// file: it is detached now, or when the process that uses it ends. A link that was detached, or whose
    /// interface is gone, is replaced.
    pub fn load_pinned(
        interface: &str,
        how: Attach,
        frags: bool,
        path: impl AsRef<Path>,
    ) -> Result<Arc<Self>, Error> {
        let (link, path) = (lookup::look_up(interface)?, path.as_ref());
        let attached = match open_link(path, &link.name, link.index)? {
            None => refuse_beside(&link).map(|()| None)?,
            Some(named) => Some(attached_before(&link.name, how, named, path)?),
        };
        Self::load_as(&link, how, frags, None, Some((path.to_owned(), attached)))
    }

    /// Loads an XDP program into the driver that writes metadata before each packet: arrival time, flow hash,
    /// VLAN tag.
    ///
    /// Requires Linux 6.3 and a driver with metadata (veth, virtio_net, igb, igc, ice, i40e, mlx5 and others;
    /// each has some of the values); the error says what is missing.
    ///
    /// The [reader](Self::rx_metadata) reads a packet's values:
    ///
    /// ```no_run
    /// use pagepool::XdpBuff;
    /// use pagepool_net::Redirect;
    /// let redirect = Redirect::load_with_metadata("eth1", false)?;
    /// let reader = redirect.rx_metadata().expect("it was loaded so");
    /// let on_packet = |packet: &mut XdpBuff| {
    ///     let Some(metadata) = reader.read(packet) else { return };
    ///     println!("hash {:?}, VLAN {:?}", metadata.hash, metadata.vlan.map(|tag| tag.id()));
    /// };
    /// # let _ = on_packet;
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    pub fn load_with_metadata(interface: &str, frags: bool) -> Result<Arc<Self>, Error> {
        let link = lookup::look_up(interface)?;
        refuse_beside(&link)?;
        Self::load_as(&link, Attach::Native, frags, Some(Functions::of_kernel()?), None)
    }

    fn load_as(
        link: &LinkInfo,
        how: Attach,
        frags: bool,
        functions: Option<Functions>,
        pin: Option<(PathBuf, Option<XdpLink>)>,
    ) -> Result<Arc<Self>, Error> {
        let interface = &*link.name;
        let (pin, attached) = pin.unzip();
        let map = socket_map(interface).map_err(|e| refused("bpf(BPF_MAP_CREATE)", e, frags))?;
        let passing = sys::load(&program::pass(), sys::Kind::Xdp { frags });
        let passing = passing.map_err(|e| refused("bpf(BPF_PROG_LOAD)", e, frags))?;
        let passing_id = sys::program_id(passing.as_fd()).unwrap_or(0);
        let mark = random_mark();
        let metadata = functions.as_ref().map(|_| RxMetadataReader::of_program(mark));
        let metadata_code = functions.map_or(Vec::new(), |functions| functions.instructions(mark));
        let code = [&*metadata_code, &program::redirect(map.as_raw_fd())].concat();
        let kind = match metadata {
            None => sys::Kind::Xdp { frags },
            Some(_) => sys::Kind::XdpOf { interface: link.index, frags },
        };
        let redirecting = sys::load(&code, kind).map_err(|source| match metadata {
            None => refused("bpf(BPF_PROG_LOAD)", source, frags),
            Some(_) => no_metadata(interface, source, frags),
        })?;
        let ours = Ours {
            interface: interface.to_owned(),
            index: link.index,
            how,
            kind,
            metadata_code,
            passing,
            passing_id,
            attached: attached.flatten().map_or_else(OnceLock::new, OnceLock::from),
            redirecting: Mutex::new(Redirecting::new(redirecting)),
            pin,
        };
        Ok(Arc::new(Self { ours: Some(ours), metadata, ..Self::over(map) }))
    }

    /// Loads an XDP program that runs in a chain with others (libxdp's dispatcher).
    ///
    /// Lower `priority` numbers run first (xdp-loader's default is 50, xdp-filter's 10), equal ones by name.
    /// The program gets what earlier ones pass, and passes on the rest. If nothing is attached, it begins a
    /// chain, which others can join (`xdp-loader load`), in the place `how`.
    ///
    /// The program joins at the [start](Self::start), and leaves when this is dropped or by
    /// [`leave`](Self::leave), which reports errors. If another process removes it,
    /// [`is_detached`](Self::is_detached) is true, and [`start`](Self::start) and [`steer`](Self::steer)
    /// fail. A killed process leaves it in the chain: it passes all packets, until our next program joins or
    /// `xdp-loader unload` removes it.
    ///
    /// Requires Linux 5.10 with `CONFIG_DEBUG_INFO_BTF` and the BPF JIT; a BPF file system (`/sys/fs/bpf`, or
    /// `LIBXDP_BPFFS`); and, until this is dropped, `CAP_SYS_ADMIN`, `CAP_BPF`, `CAP_NET_ADMIN` and
    /// `CAP_PERFMON`. Takes milliseconds. Call it in the interface's network namespace.
    ///
    /// ```no_run
    /// // It needs root and an interface.
    /// use pagepool_net::{Attach, Redirect};
    /// let redirect = Redirect::load_beside("eth0", Attach::Auto, false, 50)?;
    /// // Open the devices, and then:
    /// redirect.start()?;
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    pub fn load_beside(interface: &str, how: Attach, frags: bool, priority: u32) -> Result<Arc<Self>, Error> {
        let link = lookup::look_up(interface)?;
        let map = socket_map(&link.name).map_err(|error| refused("bpf(BPF_MAP_CREATE)", error, frags))?;
        let code = program::redirect(map.as_raw_fd());
        let slot = ChainSlot::passing(priority, frags);
        // More tools know version 2 than version 3.
        let member = Some(ChainMember::load(ChainForm::Second, &link, how.places(), slot, &code)?);
        Ok(Arc::new(Self { member, ..Self::over(map) }))
    }

    /// [Loads](Self::load) an XDP program and [starts](Self::start) it, for one socket that is opened and
    /// polled at once. For several use `load`, or packets are lost until the last one is open.
    pub fn attach(interface: &str, how: Attach, frags: bool) -> Result<Arc<Self>, Error> {
        let this = Self::load(interface, how, frags)?;
        this.start()?;
        Ok(this)
    }

    /// Attaches an XDP program that passes all packets to the stack, if ours is not attached. For sockets
    /// that only send: most drivers send by zero copy only while an XDP program is attached. Call it in the
    /// interface's network namespace.
    pub fn pass(&self) -> Result<(), Error> {
        match (&self.ours, &self.member) {
            (Some(ours), _) => ours.pass(&ours.lock()).map(drop),
            (None, Some(member)) => member.join(),
            (None, None) => Ok(()),
        }
    }

    /// Redirects packets to the sockets in the map from now on. Attaches the XDP program if necessary: call
    /// it in the interface's network namespace. Into the map of another program it puts the sockets of
    /// [`open_devices`](crate::open_devices).
    pub fn start(&self) -> Result<(), Error> {
        self.pass()?;
        self.waiting.insert(|key, socket| self.set(key, socket))?;
        self.ours.as_ref().map_or(Ok(()), |ours| {
            let mut redirecting = ours.lock();
            ours.exchange(&redirecting, &redirecting.program)?;
            redirecting.runs = true;
            Ok(())
        })?;
        // A socket that was added in between still waits, because the program did not run.
        self.waiting.insert(|key, socket| self.set(key, socket))
    }

    pub(crate) fn is_started(&self) -> bool {
        self.ours.as_ref().is_some_and(|ours| ours.lock().runs)
    }

    /// Redirects only matching packets from now on; all others go to the stack.
    ///
    /// Call it at any time. The running program is exchanged atomically: no packet is lost, and
    /// [`program_id`](Self::program_id) changes. If the kernel refuses the new program, the old rules stay. A
    /// CPU in the middle of a poll may use the old rules until it ends, even after this returns. Any thread;
    /// some system calls.
    ///
    /// Requires what [`load`](Self::load) requires, and, depending on kernel and match, `CAP_PERFMON`. An
    /// error for the map of another program.
    ///
    /// ```no_run
    /// // It needs root and an interface.
    /// use pagepool_net::{Attach, Redirect};
    ///
    /// let redirect = Redirect::load("eth0", Attach::Auto, false)?;
    /// redirect.steer(&"udp dst port 4789".parse()?)?;
    /// // Open the devices, and then:
    /// redirect.start()?;
    /// redirect.steer(&"udp and dst portrange 4789-4790".parse()?)?;
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    pub fn steer(&self, by: &Match) -> Result<(), Error> {
        if let Some(member) = &self.member {
            let program = steer::steer(by, &program::redirect(self.map.as_raw_fd()));
            let loaded = member.load_another(&program).map_err(|source| not_steered(by, source))?;
            return member.exchange(loaded);
        }
        let Some(ours) = &self.ours else {
            let must_be = "left out: the XDP program is not this Redirect's, and selects packets itself";
            return Err(parameter("match", by, must_be));
        };
        let taken = [&*ours.metadata_code, &program::redirect(self.map.as_raw_fd())].concat();
        let program = sys::load(&steer::steer(by, &taken), ours.kind).map_err(|e| not_steered(by, e))?;
        let mut new = Redirecting::new(program);
        let mut redirecting = ours.lock();
        if redirecting.runs {
            ours.exchange(&redirecting, &new.program)?;
            new.runs = true;
        }
        *redirecting = new;
        Ok(())
    }

    /// [Starts](Self::start) several. If one cannot be attached, none has redirected a packet.
    pub fn start_all(all: &[Arc<Self>]) -> Result<(), Error> {
        all.iter().try_for_each(|redirect| redirect.pass())?;
        let started = all.iter().try_for_each(|redirect| redirect.start());
        if started.is_err() {
            Self::stop_all(all);
        }
        started
    }

    /// Passes packets to the stack from now on. When this returns, after a grace period of about 10 ms, all
    /// packets that were redirected before are in the rings and can be received. The XDP program stays
    /// attached, and [`start`](Self::start) redirects again. From the map of another program it removes what
    /// `start` inserted; that program decides where packets go.
    pub fn stop(&self) {
        stop_each(&[self], || ());
    }

    /// [Stops](Self::stop) several interfaces at once, with one grace period for all.
    ///
    /// ```no_run
    /// // It needs root and interfaces.
    /// use pagepool_net::{Attach, Redirect};
    /// let all = ["eth0", "eth1"].map(|name| Redirect::load(name, Attach::Auto, false));
    /// let all = all.into_iter().collect::<Result<Vec<_>, _>>()?;
    /// // Open the devices, and then:
    /// Redirect::start_all(&all)?;
    /// // At the end, before what is in the sockets is received and they are closed:
    /// Redirect::stop_all(&all);
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    pub fn stop_all(all: &[Arc<Self>]) {
        Self::stop_all_then(all, || ());
    }

    /// [Stops](Self::stop) several, then does `work`, such as closing the devices, when their packets are in
    /// the rings. The exchange of the programs may continue during `work`; nothing depends on its grace
    /// period.
    ///
    /// ```no_run
    /// use pagepool_net::{Attach, Redirect};
    /// let all = [Redirect::load("eth0", Attach::Auto, false)?];
    /// // Open the devices, start, and at the end:
    /// Redirect::stop_all_then(&all, || println!("receive the rest, and close the devices"));
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    pub fn stop_all_then<T>(all: &[Arc<Self>], work: impl FnOnce() -> T) -> T {
        stop_each(&all.iter().map(Arc::as_ref).collect::<Vec<_>>(), work)
    }

    /// Leaves the chain that it [joined](Self::load_beside), as dropping it does, and reports errors.
    ///
    /// Fails without the capabilities, if the chain's names are gone from the BPF file system, or if another
    /// process holds the chains' lock for more than 10 s. The program then stays in the chain, and passes all
    /// packets once the devices are closed; the error contains the command that removes it, and dropping this
    /// does not try again. The last program of a chain detaches its dispatcher. [`start`](Self::start) joins
    /// again.
    ///
    /// [Stop](Self::stop) first. Does nothing for an XDP program that is in no chain. Any thread; takes
    /// milliseconds, or up to those 10 s.
    ///
    /// ```
    /// use pagepool_net::{Attach, Redirect};
    /// match Redirect::load_beside("lo", Attach::Generic, false, 50) {
    ///     Ok(redirect) => redirect.leave()?, // it was never in a chain
    ///     Err(error) => println!("not here: {error}"),
    /// }
    /// # Ok::<(), pagepool::Error>(())
    /// ```
    pub fn leave(&self) -> Result<(), Error> {
        self.member.as_ref().map_or(Ok(()), ChainMember::leave)
    }

    /// Uses the map of another XDP program: a `BPF_MAP_TYPE_XSKMAP` with room for the queues. For several
    /// interfaces the program must use other keys: see [`XskParams::map_key`](crate::XskParams::map_key).
    pub fn over_map(map: OwnedFd) -> Arc<Self> {
        Arc::new(Self::over(map))
    }

    fn over(map: OwnedFd) -> Self {
        let (waiting, has_others) = (WaitingSockets::default(), AtomicBool::new(false));
        Self { map, ours: None, member: None, metadata: None, waiting, has_others }
    }

    /// Uses the map of another XDP program by its name in a BPF file system, such as `/sys/fs/bpf/xsks`. An
    /// error if there is none, or if it is no XSKMAP.
    ///
    /// ```
    /// use pagepool_net::Redirect;
    /// let error = Redirect::pinned("/sys/fs/bpf/no such map").unwrap_err();
    /// assert!(error.to_string().contains("/sys/fs/bpf/no such map"), "{error}");
    /// ```
    pub fn pinned(path: impl AsRef<Path>) -> Result<Arc<Self>, Error> {
        open_map(path.as_ref()).map(Self::over_map)
    }

    /// Names the map in a BPF file system, for other processes that insert sockets of other queues: see
    /// [`pinned`](Self::pinned). Name and map stay until the file is removed. The XDP program is detached
    /// with this all the same.
    #[doc(hidden)]
    #[cfg(any(test, feature = "testing"))]
    pub fn pin_map(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        pin(self.map(), path.as_ref())
    }

    /// The reader of the metadata before packets, if [loaded with it](Self::load_with_metadata).
    pub fn rx_metadata(&self) -> Option<RxMetadataReader> {
        self.metadata
    }

    /// The XSKMAP. The keys of our own program are queue numbers.
    pub fn map(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }

    /// Where the attached program runs, and with [`Attach::Auto`] why not in the driver. `None` while none is
    /// attached, and after [`leave`](Self::leave).
    pub fn mode(&self) -> Option<(Attach, Option<String>)> {
        if let Some(member) = &self.member {
            return member.place().map(|place| (Attach::of(place.mode), place.why));
        }
        let attached = self.ours.as_ref().and_then(|ours| ours.attached.get())?;
        Some((attached.mode, attached.why.clone()))
    }

    /// Whether our XDP program was attached and no longer is: it was detached (`bpftool link detach`),
    /// removed from its chain, or its interface was removed. Packets then go to the stack. While redirecting,
    /// also true if another process exchanged the program of its [link](Self::load_pinned). False for the map
    /// of another XDP program. Any thread; a system call.
    ///
    /// ```
    /// use pagepool_net::{Attach, Redirect};
    /// match Redirect::load("lo", Attach::Generic, false) {
    ///     Ok(redirect) => assert!(!redirect.is_detached(), "nothing was attached yet"),
    ///     Err(error) => println!("not here: {error}"),
    /// }
    /// ```
    pub fn is_detached(&self) -> bool {
        self.ours.as_ref().is_some_and(|ours| ours.is_replaced(&ours.lock()))
            || self.member.as_ref().is_some_and(ChainMember::is_gone)
    }

    /// The id of the redirecting XDP program, as in `bpftool prog` and `ip link`.
    pub fn program_id(&self) -> Option<u32> {
        let ours = self.ours.as_ref().map(|ours| ours.lock().id);
        ours.or_else(|| self.member.as_ref().map(ChainMember::id))
    }

    pub(crate) fn passing_id(&self) -> Option<u32> {
        self.ours.as_ref().map(|ours| ours.passing_id)
    }

    /// The key for a socket: the queue's number, unless another program uses other keys.
    pub(in crate::xsk) fn key(&self, queue: u32, chosen: Option<u32>) -> Result<u32, Error> {
        let key = chosen.unwrap_or(queue);
        if (self.ours.is_some() || self.member.is_some()) && key != queue {
            let must_be =
                format!("left out, or {queue}: this Redirect's program uses the queue number as key");
            return Err(parameter("map_key", key, must_be));
        }
        Ok(key)
    }

    /// The interface of our own program: name and number.
    pub(in crate::xsk) fn interface(&self) -> Option<(&str, u32)> {
        let ours = self.ours.as_ref().map(|ours| (&*ours.interface, ours.index));
        ours.or_else(|| self.member.as_ref().map(ChainMember::interface))
    }

    /// Inserts a socket into the map at this key, which for our own program is the queue's number. Never
    /// replaces a socket. For AF_XDP sockets of other libraries, bound to the queue: an
    /// [`XskDevice`](crate::XskDevice) inserts its own. The kernel removes a socket when it is closed.
    pub fn insert(&self, key: u32, socket: BorrowedFd<'_>) -> Result<(), Error> {
        self.has_others.store(true, Ordering::Relaxed);
        self.set(key, socket)
    }

    fn set(&self, key: u32, socket: BorrowedFd<'_>) -> Result<(), Error> {
        sys::set_socket(self.map(), key, socket).map_err(|source| {
            if source.raw_os_error() == Some(errno::EEXIST) {
                let what = format!(
                    "key {key} of the map has a socket already: close that socket, or give each device its \
                     own map_key, which the program must use"
                );
                return Error::Busy { what };
            }
            let must_be = format!(
                "the map must be an XSKMAP with room for key {key}, and the socket an AF_XDP socket with a \
                 receive ring"
            );
            failed("bpf(BPF_MAP_UPDATE_ELEM)", source, must_be)
        })
    }

    /// Inserts a socket at the [`start`](Self::start), or now if [started](Self::is_started): its device must
    /// have buffers then.
    pub(crate) fn insert_at_start(&self, key: u32, socket: BorrowedFd<'_>) -> Result<(), Error> {
        self.waiting.add(key, socket)?;
        if !self.is_started() {
            return Ok(());
        }
        let inserted = self.waiting.insert(|key, socket| self.set(key, socket));
        if inserted.is_err() {
            self.waiting.forget(key);
        }
        inserted
    }

    /// Removes a socket from the map, if it is still at this key. The kernel does so later if a child between
    /// `fork` and `exec` has a descriptor.
    pub(in crate::xsk) fn remove(&self, key: u32, socket: BorrowedFd<'_>) {
        // A waiting or stopped socket is not in the map: to clear its key would put it there for a moment.
        if self.waiting.forget(key) != Some(false) {
            self.clear(key, socket);
        }
    }

    fn clear(&self, key: u32, socket: BorrowedFd<'_>) {
        // A map does not say which socket it has, but setting that socket again succeeds, and another fails.
        if sys::set_socket(self.map(), key, socket).is_ok() {
            // it was there, so an error means that it is gone
            let _ = sys::clear_socket(self.map(), key);
        }
    }
}

/// Stops redirecting, then does `work`. Packets of a queue go to the stack once its socket is not in the map.
/// An exchange of the program takes a grace period, which runs in parallel to that of the sockets. The latter
/// is for CPUs that saw the socket, or ran the program, before: they put their packets into the rings at the
/// end of a poll. If the kernel cannot wait, those few may be lost.
fn stop_each<T>(all: &[&Redirect], work: impl FnOnce() -> T) -> T {
    let stop = |of: &&&Redirect| of.ours.as_ref().is_some_and(Ours::stop);
    let others = |of: &&&Redirect| of.has_others.load(Ordering::Relaxed);
    let exchange = || all.iter().filter(stop).filter(others).count() > 0;
    let removed = all.iter().filter(|of| of.waiting.remove(|key, socket| of.clear(key, socket))).count();
    std::thread::scope(|threads| {
        let mut exchanging = std::thread::Builder::new().spawn_scoped(threads, exchange).ok();
        if removed > 0 {
            GracePeriod::new().wait();
        }
        if exchanging.is_none() || all.iter().any(|of| others(&of)) || removed == 0 {
            let joined = exchanging.take().map(|thread| thread.join().unwrap_or(true));
            if joined.unwrap_or_else(exchange) {
                GracePeriod::new().wait();
            }
        }
        work()
    })
}

impl Redirecting {
    fn new(program: OwnedFd) -> Self {
        let id = sys::program_id(program.as_fd()).unwrap_or(0);
        Self { program, id, runs: false }
    }
}

impl Ours {
    fn lock(&self) -> MutexGuard<'_, Redirecting> {
        self.redirecting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Passes packets to the stack. Returns whether they were redirected before.
    fn stop(&self) -> bool {
        let mut redirecting = self.lock();
        if redirecting.runs {
            // Fails if the interface is gone, or if another process's program runs, which stays.
            let _ = self.exchange(&redirecting, &self.passing);
        }
        std::mem::take(&mut redirecting.runs)
    }

    /// Whether the link is detached, or no longer runs the program that it should redirect with.
    fn is_replaced(&self, locked: &MutexGuard<'_, Redirecting>) -> bool {
        let seen = self.attached.get().and_then(|attached| sys::xdp_link(attached.link.as_fd()).ok());
        seen.is_some_and(|(program, index)| index == 0 || locked.runs && program != locked.id)
    }

    /// Runs this program; attaches the link if there is none. The redirecting program is exchanged only if it
    /// runs: a process that took the link over keeps its own.
    fn exchange(&self, locked: &MutexGuard<'_, Redirecting>, by: &OwnedFd) -> Result<(), Error> {
        let attached = self.pass(locked)?;
        let old = locked.runs.then(|| locked.program.as_fd());
        sys::exchange(attached.link.as_fd(), by.as_fd(), old).map_err(|source| {
            let interface = &self.interface;
            let own = match source.raw_os_error() {
                Some(errno::ENOLINK) => Some(format!("{interface} was removed, or its program detached")),
                Some(errno::EPERM) if self.is_replaced(locked) => Some(format!(
                    "another process replaced the XDP program of {interface}: only one run at a time can use \
                     a pinned link"
                )),
                _ => None,
            };
            let known = format!("the kernel did not exchange the program of {interface}");
            failed_unless(own, "bpf(BPF_LINK_UPDATE)", source, known)
        })
    }

    /// The link, attached now with the passing program if there is none.
    fn pass(&self, _: &MutexGuard<'_, Redirecting>) -> Result<&XdpLink, Error> {
        if self.attached.get().is_none() {
            let mut attached = attach_as(self.passing.as_fd(), &self.interface, self.index, self.how)?;
            if let Some(path) = &self.pin {
                pin(attached.link.as_fd(), path)?;
                attached.pinned = true;
            }
            let _ = self.attached.set(attached); // no other thread does: the lock is held
        }
        Ok(self.attached.get().unwrap_or_else(|| unreachable!("it was set just now")))
    }
}

impl Drop for XdpLink {
    /// Detaches at once: a child between `fork` and `exec` also has the link.
    fn drop(&mut self) {
        if !self.pinned {
            // Before Linux 5.11 closing the last descriptor detaches it.
            let _ = sys::detach(self.link.as_fd());
        }
    }
}

/// Most reads of a link and its interface until they agree.
const LOOKS: usize = 100;

fn socket_map(interface: &str) -> io::Result<OwnedFd> {
    // Extra entries do no harm, and `ethtool -L` may add queues later.
    let queues = lookup::channels(interface).map_or(0, |channels| channels.rx).max(QUEUES);
    sys::create_socket_map(queues)
}

/// What is attached to an interface, except an offloaded program.
fn attached_to(link: &LinkInfo) -> Option<AttachedXdp> {
    link.xdp.iter().copied().find(|there| there.mode != XdpMode::Offloaded)
}

fn refuse_beside(link: &LinkInfo) -> Result<(), Error> {
    attached_to(link).map_or(Ok(()), |there| Err(busy(&link.name, Some(there.id))))
}

/// The attachment of a named link. An error if the interface runs another program, because an interface of
/// another network namespace may have the same number.
fn runs_on(interface: &str, named: BorrowedFd<'_>, path: &Path) -> Result<AttachedXdp, Error> {
    let mut there = None;
    for _ in 0..LOOKS {
        let (before, _) = seen(named, path, interface)?;
        there = attached_to(&lookup::look_up(interface)?);
        if let Some(there) = there.filter(|there| there.id == before) {
            return Ok(there);
        }
        // A process that just ended may have exchanged the program.
        if seen(named, path, interface)?.0 == before {
            break;
        }
    }
    Err(there.map_or_else(|| not_of(path, interface), |there| busy(interface, Some(there.id))))
}

/// Takes a named link that runs our program in the place `how`. An error for another one.
fn attached_before(interface: &str, how: Attach, link: OwnedFd, path: &Path) -> Result<XdpLink, Error> {
    let there = runs_on(interface, link.as_fd(), path)?;
    if sys::is_of_others(there.id) {
        return Err(busy(interface, Some(there.id)));
    }
    let mode = Attach::of(there.mode);
    if how != Attach::Auto && how != mode {
        let path = path.display();
        let must_be = format!(
            "auto, or {mode:?}, the mode of the link {path} of {interface}; for another mode, stop the run \
             that uses the link, and remove the file"
        );
        return Err(parameter("attach", format_args!("{how:?}"), must_be));
    }
    Ok(XdpLink { link, mode, why: None, pinned: true })
}

fn attach_as(program: BorrowedFd<'_>, interface: &str, index: u32, how: Attach) -> Result<XdpLink, Error> {
    let native = match how {
        Attach::Generic => None,
        Attach::Native | Attach::Auto => match sys::attach(program, index, true) {
            Ok(link) => return Ok(XdpLink { link, mode: Attach::Native, why: None, pinned: false }),
            // No second attempt that would hide the reason.
            Err(error) if how == Attach::Native || is_final(error.raw_os_error()) => {
                return Err(not_attached(interface, error, true));
            }
            Err(error) => Some(format!("the driver of {interface} refused it: {error}")),
        },
    };
    match sys::attach(program, index, false) {
        Ok(link) => Ok(XdpLink { link, mode: Attach::Generic, why: native, pinned: false }),
        Err(error) => Err(not_attached(interface, error, false)),
    }
}

fn not_attached(interface: &str, source: io::Error, native: bool) -> Error {
    let call = "bpf(BPF_LINK_CREATE)";
    let remedy = match source.raw_os_error() {
        Some(errno::EBUSY | errno::EEXIST) => {
            return busy(interface, lookup::xdp_program_on(interface));
        }
        Some(errno::EOPNOTSUPP) if native => {
            format!("the driver of {interface} does not support XDP: attach in generic mode")
        }
        Some(errno::ERANGE | errno::EINVAL) if native => format!(
            "the driver of {interface} refuses the program: the MTU, or that of a veth's other end, may be \
             too long for a program without frags, or the kernel is older than 5.9; lower the MTU, or \
             attach in generic mode"
        ),
        Some(errno::EINVAL) => "attaching a program by a BPF link requires Linux 5.9".into(),
        _ => format!("the program could not be attached to {interface}"),
    };
    failed(call, source, remedy)
}

/// The prefix of our programs' names.
const OURS: &str = "pagepool";

/// The error if an XDP program is attached, with its id if known.
fn busy(interface: &str, id: Option<u32>) -> Error {
    let name = id.and_then(sys::program_name);
    let which = id.map_or("an XDP program".into(), |id| format!("XDP program {id}"));
    let named = match name.as_deref() {
        None => String::new(),
        Some(name) if name.starts_with(OURS) => " (another pagepool?)".into(),
        Some(name) => format!(" ({name})"),
    };
    let remedy = beside(interface, name.as_deref());
    Error::Busy { what: format!("{interface} already has {which}{named}. {remedy}") }
}

/// How to work beside an XDP program, or to remove it.
fn beside(interface: &str, name: Option<&str>) -> String {
    let word = shell_word(interface);
    match name {
        Some(dispatcher::NAME) => format!(
            "It runs the programs of libxdp: run beside them (Redirect::load_beside, --beside), or: \
             xdp-loader unload {word} --all"
        ),
        // A BPF link holds it, so ip(8) cannot remove it.
        Some(name) if name.starts_with(OURS) => format!(
            "Stop it, or, if its process is gone, remove its pinned link: rm /sys/fs/bpf/{}, or the path \
             that it was pinned to, or: bpftool link detach id N (`bpftool link` lists it)",
            shell_word(&format!("pagepool-{}", interface.replace('.', ":"))) // the file system allows no dot
        ),
        _ => format!(
            "Stop its owner, or: ip link set dev {word} xdp off (`bpftool link detach` if a BPF link \
             holds it)"
        ),
    }
}

#[cfg(not(loom))]
#[cfg(test)]
mod tests {
    use super::*;
    use crate::veth;

    #[test]
    fn a_program_whose_link_a_child_has_still_is_detached() {
        if let Some(why) = veth::missing() {
            return println!("SKIP links of children: {why}");
        }
        let _veth = veth::Veth::new(1, 1500);
        let redirect = Redirect::attach("near0", Attach::Native, false).unwrap();
        let in_child = redirect.ours.as_ref().unwrap().attached.get().unwrap().link.try_clone().unwrap();
        drop(redirect);
        Redirect::attach("near0", Attach::Native, false).map(drop).expect("nothing is attached");
        drop(in_child);
    }

    #[test]
    fn a_program_that_is_detached_by_force_is_noticed() {
        if let Some(why) = veth::missing() {
            return println!("SKIP forced detach: {why}");
        }
        let _veth = veth::Veth::new(2, 1500);
        let all = ["near0", "near1"].map(|name| Redirect::load(name, Attach::Native, false).unwrap());
        assert!(all.iter().all(|redirect| !redirect.is_detached()), "none is attached yet");
        Redirect::start_all(&all).unwrap();
        assert!(all.iter().all(|redirect| !redirect.is_detached()));
        sys::detach(all[0].ours.as_ref().unwrap().attached.get().unwrap().link.as_fd()).unwrap();
        assert_eq!(all.each_ref().map(|redirect| redirect.is_detached()), [true, false]);
        let index = all[1].ours.as_ref().unwrap().index;
        pagepool_link::Netlink::open().unwrap().delete(index).unwrap();
        assert!(all[1].is_detached(), "with its interface");
    }

    #[test]
    fn beside_the_programs_of_libxdp_there_is_a_way() {
        let remedy = beside("near0", Some("xdp_dispatcher"));
        assert!(remedy.contains("xdp-loader unload near0") && remedy.contains("--beside"), "{remedy}");
        assert!(!beside("near0", Some("other")).contains("libxdp"));
        let of_ours = beside("near0", Some("pagepool_redir"));
        assert!(of_ours.contains("bpftool link detach") && !of_ours.contains("ip link"), "{of_ours}");
    }

    #[test]
    fn another_xdp_program_is_named_with_the_way_to_detach_it() {
        if let Some(why) = veth::missing() {
            return println!("SKIP programs of others: {why}");
        }
        let _veth = veth::Veth::new(1, 1500);
        let name = *b"filter\0\0\0\0\0\0\0\0\0\0";
        let others = sys::load_as(name, &program::pass(), sys::Kind::Xdp { frags: false }).unwrap();
        let id = sys::program_id(others.as_fd()).unwrap();
        let link = sys::attach(others.as_fd(), lookup::look_up("near0").unwrap().index, true).unwrap();
        let refused = Redirect::attach("near0", Attach::Auto, false).map(drop).unwrap_err().to_string();
        assert_eq!(
            refused,
            format!(
                "near0 already has XDP program {id} (filter). Stop its owner, or: ip link set dev near0 xdp \
                 off (`bpftool link detach` if a BPF link holds it)"
            )
        );
        drop(link);
        Redirect::attach("near0", Attach::Auto, false).map(drop).expect("nothing is attached");
    }

    #[test]
    fn a_program_is_no_link() {
        let program = match sys::load(&program::pass(), sys::Kind::Xdp { frags: false }) {
            Ok(program) => program,
            Err(error) => return println!("SKIP a program is no link: {error}"),
        };
        // XDP programs and XDP links have the same number as their type.
        assert_eq!(sys::xdp_link(program.as_fd()).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert!(!sys::is_of_others(sys::program_id(program.as_fd()).unwrap()));
    }

    fn on(interface: &str) -> Option<u32> {
        lookup::xdp_program_on(interface)
    }

    #[test]
    fn nothing_is_redirected_before_the_start_nor_after_the_stop() {
        if let Some(why) = veth::missing() {
            return println!("SKIP order of redirects: {why}");
        }
        let _veth = veth::Veth::new(1, 1500);
        let redirect = Redirect::load("near0", Attach::Auto, false).unwrap();
        assert_eq!((on("near0"), redirect.mode()), (None, None));
        redirect.stop(); // changes nothing
        redirect.pass().unwrap();
        let passing = on("near0");
        assert!(passing != redirect.program_id() && passing == redirect.passing_id());
        assert_eq!(redirect.mode(), Some((Attach::Native, None)));
        redirect.start().unwrap();
        assert_eq!(on("near0"), redirect.program_id());
        redirect.stop();
        assert_eq!(on("near0"), passing);
        redirect.start().expect("a second time");
        drop(redirect);
        assert_eq!(on("near0"), None);
    }

    #[test]
    fn if_one_redirect_is_refused_none_is_attached() {
        if let Some(why) = veth::missing() {
            return println!("SKIP refused redirects: {why}");
        }
        let _veth = veth::Veth::new(2, 1500);
        let all = ["near0", "near1"].map(|name| Redirect::load(name, Attach::Auto, false).unwrap());
        let other = Redirect::attach("near1", Attach::Auto, false).unwrap();
        let refused = Redirect::start_all(&all).unwrap_err().to_string();
        assert!(refused.contains(&format!("already has XDP program {}", on("near1").unwrap())), "{refused}");
        assert_ne!(on("near0"), all[0].program_id());
        drop(other);
        Redirect::start_all(&all).unwrap();
        assert_eq!(["near0", "near1"].map(on), all.each_ref().map(|one| one.program_id()));
    }
}
