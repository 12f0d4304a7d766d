//! The chain of an interface: XDP programs that a dispatcher runs one after another. Changes follow libxdp's
//! protocol (lib/libxdp/protocol.org in xdp-tools), so libxdp's tools can change the chain, too.
//!
//! What   a dispatcher never changes. A change makes a new one, in which each program replaces one function,
//!        and exchanges it for the attached one. The exchange is atomic: the driver sees one program replaced
//!        by another.
//! Names  the programs, and the links that keep them in place, have names in a BPF file system, in a folder
//!        per dispatcher. So the chain outlives all processes.
//! Order  under the protocol's lock: read the chain, make the new dispatcher with its names, exchange, remove
//!        the old names. If another dispatcher was attached in between, discard the new one and start again.

pub(super) mod dispatcher;
mod function_types;
pub(super) mod member;

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use pagepool::Error;
use pagepool_link::{AttachedXdp, LinkError, Netlink, XdpMode, shell_word};

use self::dispatcher::{ChainForm, ChainSlot};
use self::function_types::FunctionTypes;
use super::pin::{c_path, holds_names, pin};
use crate::error::parameter;
use crate::sys::bpf::extension::{self, TypedFunctions};
use crate::sys::bpf::{self as sys, Insn};
use crate::sys::remedy::{failed, failed_unless};
use crate::sys::{capability, errno, file_lock, raised_rights};

/// Attempts to change a chain that others change, too.
const ATTEMPTS: usize = 10;
/// How long another process may hold the lock.
const LOCK_LIMIT: Duration = Duration::from_secs(10);
/// The default BPF file system, and the variable that overrides it, as in libxdp.
const FILE_SYSTEM: &str = "/sys/fs/bpf";
const FILE_SYSTEM_VARIABLE: &str = "LIBXDP_BPFFS";

#[derive(Clone, Debug)]
pub(super) struct ChainedProgram {
    pub(super) program: Arc<OwnedFd>,
    pub(super) id: u32,
    pub(super) slot: ChainSlot,
}

impl ChainedProgram {
    fn new(program: Arc<OwnedFd>, slot: ChainSlot) -> Self {
        let id = sys::program_id((*program).as_fd()).unwrap_or(0);
        Self { program, id, slot }
    }

    pub(super) fn load(code: &[Insn], slot: ChainSlot) -> io::Result<Self> {
        // The kernel checks a program against one function. It may then replace others of that type.
        let model = Dispatcher::load(ChainForm::Second, 0, &[slot])?;
        let types = extension::load_types(&FunctionTypes::new([PROGRAM]).to_bytes())?;
        let functions = [[0, FunctionTypes::number(0)]];
        let typed = TypedFunctions { types: types.as_fd(), functions: &functions };
        let target = (model.program.as_fd(), dispatcher::slot_type(0));
        Ok(Self::new(Arc::new(extension::load_extension(code, typed, target)?), slot))
    }
}

/// Our function's name in `xdp-loader status`.
const PROGRAM: &str = "pagepool_xsk";

#[derive(Debug)]
struct Dispatcher {
    program: OwnedFd,
    id: u32,
}

impl Dispatcher {
    /// Loads a dispatcher with empty slots; one for a device, for this interface.
    fn load(form: ChainForm, interface: u32, slots: &[ChainSlot]) -> io::Result<Self> {
        let types = extension::load_types(&dispatcher::types(form, slots.len()).to_bytes())?;
        let map = extension::create_constant(&dispatcher::configuration(form, slots))?;
        let (code, functions) = dispatcher::program(slots.len(), map.as_raw_fd());
        let typed = TypedFunctions { types: types.as_fd(), functions: &functions };
        let mut name = [0; 16];
        name[..dispatcher::NAME.len()].copy_from_slice(dispatcher::NAME.as_bytes());
        let frags = dispatcher::has_frags(slots);
        let kind = match form.is_bound() {
            true => sys::Kind::XdpOf { interface, frags },
            false => sys::Kind::Xdp { frags },
        };
        let program = extension::load_dispatcher(&code, name, typed, kind)?;
        let id = sys::program_id(program.as_fd())?;
        Ok(Self { program, id })
    }
}

#[derive(Clone, Debug)]
pub(super) struct ChainPlace {
    /// The id of the dispatcher.
    pub(super) id: u32,
    pub(super) mode: XdpMode,
    /// Why it is not in the driver, if that was tried.
    pub(super) why: Option<String>,
}

#[derive(Debug)]
pub(super) struct XdpChain {
    /// In the interface's network namespace.
    pub(super) netlink: Netlink,
    pub(super) interface: String,
    pub(super) index: u32,
    /// The folder of all chains' names.
    pub(super) folder: PathBuf,
    /// The form of a new chain.
    pub(super) begins: ChainForm,
}

/// The folder of all chains' names, made if missing. An error without a BPF file system.
pub(super) fn folder() -> Result<PathBuf, Error> {
    // A user must not choose where a more privileged program makes and removes files.
    let named = || std::env::var_os(FILE_SYSTEM_VARIABLE).filter(|path| !path.is_empty());
    let root = if raised_rights::are_raised() { None } else { named() };
    let path = root.map_or_else(|| FILE_SYSTEM.into(), PathBuf::from).join("xdp");
    holds_names("the folder of XDP programs", &path)?;
    match make_folder(&path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(not_named("mkdir", &path, error)),
        _ => Ok(path),
    }
}

/// Makes a folder that only its user may read, as libxdp does.
fn make_folder(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().mode(0o700).create(path)
}

impl XdpChain {
    /// The form of the attached dispatcher, if any. An error for another program.
    pub(super) fn form(&mut self) -> Result<Option<ChainForm>, Error> {
        let Some(there) = self.attached()? else { return Ok(None) };
        self.read(&self.open(there)?).map(|(form, _)| Some(form))
    }

    /// Changes the chain. `edit` gets the programs in order, and returns whether to change anything; it may
    /// be called again with others. `places`: those to try if nothing is attached. Returns the dispatcher's
    /// place; `None` if no program is left and nothing attached.
    pub(super) fn change(
        &mut self,
        places: &[XdpMode],
        edit: impl FnMut(&mut Vec<ChainedProgram>) -> bool,
    ) -> Result<Option<ChainPlace>, Error> {
        let lock = self.lock()?;
        self.change_locked(&lock, places, edit)
    }

    /// Removes a program and its names from the chain, if it is there, under one lock.
    pub(super) fn remove(&mut self, id: u32) -> Result<(), Error> {
        let lock = self.lock()?;
        if self.is_other() {
            let _ = self.forget(&lock, id); // an error leaves unused files
            return Ok(());
        }
        let changed = self.change_locked(&lock, &[], |programs| {
            let before = programs.len();
            programs.retain(|program| program.id != id);
            programs.len() != before
        });
        let forgotten = self.forget(&lock, id);
        changed.and(forgotten)
    }

    /// Whether the attached program is known to be no dispatcher.
    fn is_other(&mut self) -> bool {
        let Ok(Some(there)) = self.attached() else { return false };
        let name = sys::program(there.id).ok().and_then(|program| sys::name_of(program.as_fd()));
        name.is_some_and(|name| name != dispatcher::NAME)
    }

    fn change_locked(
        &mut self,
        _: &File,
        places: &[XdpMode],
        mut edit: impl FnMut(&mut Vec<ChainedProgram>) -> bool,
    ) -> Result<Option<ChainPlace>, Error> {
        let mut attempts = 0;
        loop {
            let there = self.attached()?;
            let old = there.map(|there| self.open(there)).transpose()?;
            let read = old.as_ref().map_or(Ok((self.begins, Vec::new())), |old| self.programs(old));
            let (form, mut programs) = read?;
            if !edit(&mut programs) {
                return Ok(there.map(|there| ChainPlace::new(there, None)));
            }
            let places = there.map_or(places.to_vec(), |there| vec![there.mode]);
            attempts += 1;
            match self.put(old.as_ref(), &places, (form, &programs)) {
                Err(_) if attempts < ATTEMPTS && self.attached()? != there => {}
                done => return done,
            }
        }
    }

    /// What is attached now, except an offloaded program.
    pub(super) fn attached(&mut self) -> Result<Option<AttachedXdp>, Error> {
        let link = self.netlink.link_at(self.index).map_err(|error| self.refused(error))?;
        Ok(link.and_then(|link| link.xdp.into_iter().find(|there| there.mode != XdpMode::Offloaded)))
    }

    /// The ids of a dispatcher's programs, if it has names.
    pub(super) fn program_ids(&self, dispatcher: u32) -> impl Iterator<Item = u32> {
        let folder = self.folder_of(dispatcher);
        let opened = (0..dispatcher::MOST).map_while(move |slot| open_pinned(&folder, slot).ok());
        opened.filter_map(|program| sys::program_id(program.as_fd()).ok())
    }

    /// Removes the names of dispatchers that ran this program and are not attached: those of a removed
    /// interface, or detached outside the protocol.
    fn forget(&mut self, _: &File, program: u32) -> Result<(), Error> {
        let there = self.attached()?.map(|there| there.id);
        let prefix = format!("dispatch-{}-", self.index);
        let entries = fs::read_dir(&self.folder).map_err(|error| not_named("open", &self.folder, error))?;
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let ids = names.filter_map(|name| name.strip_prefix(&prefix)?.parse().ok());
        for id in ids.filter(|&id| Some(id) != there) {
            if self.program_ids(id).any(|it| it == program) {
                let folder = self.folder_of(id);
                remove_names(&folder).map_err(|error| not_named("unlink", &folder, error))?;
            }
        }
        Ok(())
    }

    fn lock(&self) -> Result<File, Error> {
        let lock = File::open(&self.folder).and_then(|folder| {
            file_lock::lock(folder.as_fd(), LOCK_LIMIT)?;
            Ok(folder)
        });
        lock.map_err(|source| {
            let path = self.folder.display();
            let remedy = match source.kind() {
                io::ErrorKind::TimedOut => format!(
                    "another process has locked {path} for more than {} s: see `fuser -v {path}`",
                    LOCK_LIMIT.as_secs()
                ),
                _ => format!("{path} must be a folder that this user may open and lock"),
            };
            failed("flock", source, remedy)
        })
    }

    /// Opens the attached dispatcher. An error for another program.
    fn open(&self, there: AttachedXdp) -> Result<Dispatcher, Error> {
        let program = sys::program(there.id).map_err(|error| self.not_read(error))?;
        match sys::name_of(program.as_fd()) {
            Some(name) if name == dispatcher::NAME => Ok(Dispatcher { program, id: there.id }),
            name => {
                let named = name.map_or(String::new(), |name| format!(" ({name})"));
                let (id, interface) = (there.id, &self.interface);
                let what = format!(
                    "the XDP program with id {id} is attached to {interface}{named}, and cannot run others, \
                     because it is not a libxdp dispatcher: detach it, or pass the XSKMAP that it redirects \
                     to"
                );
                Err(Error::Busy { what })
            }
        }
    }

    fn read(&self, old: &Dispatcher) -> Result<(ChainForm, Vec<ChainSlot>), Error> {
        let read = extension::only_value(old.program.as_fd(), dispatcher::LONGEST);
        let read = read.map_err(|error| self.not_read(error))?;
        read.as_deref().and_then(dispatcher::read).ok_or_else(|| {
            let interface = &self.interface;
            let other = read.as_deref().and_then(dispatcher::version);
            let other = other.map_or("unknown".into(), |other| other.to_string());
            let what = format!(
                "the dispatcher of {interface} has version {other} of libxdp's protocol, but only 2 and 3 \
                 are supported (xdp-tools 1.3 to 1.6): remove its programs (`xdp-loader unload {} --all`), \
                 or pass the XSKMAP of one of them",
                shell_word(interface)
            );
            Error::Busy { what }
        })
    }

    fn programs(&self, old: &Dispatcher) -> Result<(ChainForm, Vec<ChainedProgram>), Error> {
        let (form, slots) = self.read(old)?;
        let folder = self.folder_of(old.id);
        let open = |(slot, how): (usize, ChainSlot)| {
            let program =
                open_pinned(&folder, slot).map_err(|error| not_named("bpf(BPF_OBJ_GET)", &folder, error))?;
            Ok(ChainedProgram::new(Arc::new(program), how))
        };
        let programs: Result<_, _> = slots.into_iter().enumerate().map(open).collect();
        programs.map(|programs| (form, programs))
    }

    fn folder_of(&self, dispatcher: u32) -> PathBuf {
        self.folder.join(format!("dispatch-{}-{dispatcher}", self.index))
    }

    fn put(
        &mut self,
        old: Option<&Dispatcher>,
        places: &[XdpMode],
        (form, programs): (ChainForm, &[ChainedProgram]),
    ) -> Result<Option<ChainPlace>, Error> {
        let new = match programs {
            [] => None,
            _ => Some(self.make(form, programs)?),
        };
        let placed = self.place(old, places, new.as_ref());
        // Remove the names of the unattached one. An error leaves unused files.
        if let Some(id) = if placed.is_ok() { old } else { new.as_ref() }.map(|of| of.id) {
            let _ = remove_names(&self.folder_of(id));
        }
        placed
    }

    fn place(
        &mut self,
        old: Option<&Dispatcher>,
        places: &[XdpMode],
        new: Option<&Dispatcher>,
    ) -> Result<Option<ChainPlace>, Error> {
        let mut why = None;
        for (at, &mode) in places.iter().enumerate() {
            let (old, fd) = (old.map(|old| old.program.as_fd()), new.map(|new| new.program.as_fd()));
            match self.netlink.exchange_xdp(self.index, mode == XdpMode::Generic, old, fd) {
                Ok(()) => return Ok(new.map(|new| ChainPlace::new(AttachedXdp { id: new.id, mode }, why))),
                Err(error) if at + 1 < places.len() && !is_final(error.errno()) => {
                    why = Some(format!("the driver of {} refused it: {error}", self.interface));
                }
                Err(error) => return Err(self.refused(error)),
            }
        }
        Ok(None)
    }

    fn make(&self, form: ChainForm, programs: &[ChainedProgram]) -> Result<Dispatcher, Error> {
        if programs.len() > dispatcher::MOST {
            let (interface, most) = (&self.interface, dispatcher::MOST);
            let what = format!(
                "{interface} has {most} XDP programs, the limit of libxdp's protocol: remove one \
                 (`xdp-loader unload {} --id ID`)",
                shell_word(interface)
            );
            return Err(Error::Busy { what });
        }
        let slots: Vec<_> = programs.iter().map(|program| program.slot).collect();
        let new = Dispatcher::load(form, self.index, &slots);
        let new = new.map_err(|error| not_loaded("bpf(BPF_PROG_LOAD)", error))?;
        let folder = self.folder_of(new.id);
        let named = make_folder(&folder).map_err(|error| not_named("mkdir", &folder, error)).and_then(|()| {
            programs.iter().enumerate().try_for_each(|(slot, program)| name(&new, slot, program, &folder))
        });
        named.inspect_err(|_| {
            let _ = remove_names(&folder); // an error leaves unused files
        })?;
        Ok(new)
    }

    fn not_read(&self, source: io::Error) -> Error {
        let known = format!("the dispatcher of {} could not be read: was it just detached?", self.interface);
        failed("bpf(BPF_PROG_GET_FD_BY_ID)", source, known)
    }

    fn refused(&self, error: LinkError) -> Error {
        let Some(number) = error.errno() else {
            return parameter("interface", &self.interface, error.to_string());
        };
        let (interface, source) = (&self.interface, io::Error::from_raw_os_error(number));
        let remedy = match number {
            errno::EPERM => capability::remedy(capability::PROGRAM),
            errno::EOPNOTSUPP => {
                format!("the driver of {interface} does not support XDP: attach in generic mode")
            }
            errno::EBUSY | errno::EEXIST => format!(
                "another XDP program was attached to {interface}, perhaps by a BPF link, which excludes \
                 others: see `ip link show {}` and `bpftool link`",
                shell_word(interface)
            ),
            _ => format!(
                "{error}. If the MTU of {interface}, or of a veth's other end, exceeds a page, each of its \
                 programs must accept packets of several buffers"
            ),
        };
        Error::System { call: "netlink", remedy, source }
    }
}

impl ChainPlace {
    fn new(there: AttachedXdp, why: Option<String>) -> Self {
        Self { id: there.id, mode: there.mode, why }
    }

    /// The place with the last refusal of the driver: in a chain that is there already, none is tried.
    fn explained(mut self, refusal: &mut Option<String>) -> Self {
        *refusal = self.why.take().or(refusal.take());
        self.why = refusal.clone().filter(|_| self.mode == XdpMode::Generic);
        self
    }
}

/// Whether another place for the program would be refused, too.
pub(super) fn is_final(errno: Option<i32>) -> bool {
    matches!(errno, Some(errno::EBUSY | errno::EEXIST | errno::EPERM))
}

/// The names of a program and its link.
fn names(folder: &Path, slot: usize) -> [PathBuf; 2] {
    ["prog", "link"].map(|what| folder.join(format!("prog{slot}-{what}")))
}

fn open_pinned(folder: &Path, slot: usize) -> io::Result<OwnedFd> {
    let [program, _] = names(folder, slot);
    c_path(&program).and_then(|path| sys::pinned(&path))
}

/// Puts a program into a slot, and names the program and its link.
fn name(of: &Dispatcher, slot: usize, program: &ChainedProgram, folder: &Path) -> Result<(), Error> {
    let target = (of.program.as_fd(), dispatcher::slot_type(slot));
    let link = extension::replace_function((*program.program).as_fd(), target);
    let link = link.map_err(|source| not_placed(program.id, source))?;
    let [program_name, link_name] = names(folder, slot);
    pin((*program.program).as_fd(), &program_name)?;
    pin(link.as_fd(), &link_name)
}

fn remove_names(folder: &Path) -> io::Result<()> {
    for slot in 0..dispatcher::MOST {
        let [program, link] = names(folder, slot);
        // The program first: no reader may find a program without its link.
        if fs::remove_file(program).and_then(|()| fs::remove_file(link)).is_err() {
            break;
        }
    }
    fs::remove_dir(folder)
}

fn not_named(call: &'static str, path: &Path, source: io::Error) -> Error {
    let remedy = format!(
        "{} must be a folder of a BPF file system with the programs of a dispatcher, owned by this user; if \
         the dispatcher is in another BPF file system, set {FILE_SYSTEM_VARIABLE} to that one",
        path.display()
    );
    failed(call, source, remedy)
}

fn not_placed(id: u32, source: io::Error) -> Error {
    if source.raw_os_error() == Some(errno::EPERM) {
        return not_loaded("bpf(BPF_LINK_CREATE)", source);
    }
    let remedy = format!(
        "the XDP program with id {id} does not fit pagepool's dispatchers: remove it from the chain \
         (`xdp-loader unload` of its interface with `--id {id}`); or the kernel is older than Linux 5.10"
    );
    failed("bpf(BPF_LINK_CREATE)", source, remedy)
}

pub(super) fn not_loaded(call: &'static str, source: io::Error) -> Error {
    let own = (source.raw_os_error() == Some(errno::EPERM)).then(|| {
        format!(
            "{}. Or this kernel has no extensions (freplace): then use the map of another program",
            capability::remedy(capability::SEND_PROGRAM)
        )
    });
    let known = "running beside other programs requires Linux 5.10 with CONFIG_DEBUG_INFO_BTF, and the BPF \
                 JIT (`sysctl net.core.bpf_jit_enable=1`)";
    failed_unless(own, call, source, known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_told_wherever_the_chain_is_generic() {
        let mut refusal = None;
        let mut why = |mode, why: Option<&str>| {
            let place = ChainPlace::new(AttachedXdp { id: 1, mode }, why.map(Into::into));
            place.explained(&mut refusal).why
        };
        assert_eq!(why(XdpMode::Generic, None), None);
        assert_eq!(why(XdpMode::Generic, Some("first")).as_deref(), Some("first"));
        assert_eq!(why(XdpMode::Native, None), None);
        assert_eq!(why(XdpMode::Generic, None).as_deref(), Some("first"), "also after it left");
        assert_eq!(why(XdpMode::Generic, Some("last")).as_deref(), Some("last"));
    }
}
