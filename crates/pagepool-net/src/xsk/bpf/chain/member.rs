//! Our program in an interface's chain: it joins, is exchanged, and leaves.
//!
//! A killed process leaves its program behind, which passes all packets to the next one. A living member has
//! an abstract socket, named after the map of its programs, which stays when they are exchanged. A joining
//! member removes our programs without such a socket.

use std::io;
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pagepool::Error;
use pagepool_link::{LinkInfo, XdpMode, shell_word};

use super::dispatcher::{ChainForm, ChainSlot};
use super::{ChainPlace, ChainedProgram, XdpChain, folder, not_loaded};
use crate::error::parameter;
use crate::interface::lookup;
use crate::sys::bpf::{self as sys, Insn, extension};
use crate::sys::remedy::failed;

/// How often a chain that others change is read again.
const LOOKS: usize = 10;

/// A member, from loading on.
#[derive(Debug)]
pub(in crate::xsk::bpf) struct ChainMember {
    interface: String,
    index: u32,
    /// Where a chain may begin, in order of preference.
    places: &'static [XdpMode],
    state: Mutex<MemberState>,
    /// Shows other processes that the member lives.
    _sign: UnixDatagram,
}

#[derive(Debug)]
struct MemberState {
    chain: XdpChain,
    ours: ChainedProgram,
    /// The dispatcher that last ran the program.
    place: Option<ChainPlace>,
    /// Why the driver refused a dispatcher when that was last tried, also before the program left.
    refusal: Option<String>,
    /// Leaving failed, and the caller has the error.
    is_told: bool,
}

impl ChainMember {
    /// Loads a program, which joins later. `begins`: the form of a new chain. An error if the attached
    /// program is no dispatcher.
    pub(in crate::xsk::bpf) fn load(
        begins: ChainForm,
        link: &LinkInfo,
        places: &'static [XdpMode],
        slot: ChainSlot,
        code: &[Insn],
    ) -> Result<Self, Error> {
        let (netlink, folder) = (lookup::netlink()?, folder()?);
        let (interface, index) = (link.name.clone(), link.index);
        let mut chain = XdpChain { netlink, interface, index, folder, begins };
        chain.form()?;
        let ours =
            ChainedProgram::load(code, slot).map_err(|error| not_loaded("bpf(BPF_PROG_LOAD)", error))?;
        let sign = sign(&ours).map_err(|source| {
            let remedy = format!(
                "the abstract socket that marks the XDP program of {} as used could not be created",
                link.name
            );
            failed("bind", source, remedy)
        })?;
        let state = MemberState { chain, ours, place: None, refusal: None, is_told: false };
        Ok(Self {
            interface: link.name.clone(),
            index: link.index,
            places,
            state: Mutex::new(state),
            _sign: sign,
        })
    }

    /// Joins the chain, or begins one, if it has not joined. An error if another process removed the program.
    pub(in crate::xsk::bpf) fn join(&self) -> Result<(), Error> {
        let mut state = self.lock();
        if self.is_removed(&mut state) {
            return Err(self.removed(state.ours.id));
        }
        if state.place.is_some() {
            return Ok(());
        }
        let ours = state.ours.clone();
        // If our own socket is not visible from this network namespace, those of others are not, either.
        let sees_signs = sign(&ours).is_err();
        self.put(&mut state, ours, |program| sees_signs && is_left_behind(program))
    }

    pub(in crate::xsk::bpf) fn load_another(&self, code: &[Insn]) -> io::Result<ChainedProgram> {
        let slot = self.lock().ours.slot;
        ChainedProgram::load(code, slot)
    }

    /// Exchanges the program, in the chain if it has joined.
    pub(in crate::xsk::bpf) fn exchange(&self, new: ChainedProgram) -> Result<(), Error> {
        let mut state = self.lock();
        if state.place.is_some() {
            self.put(&mut state, new.clone(), |_| false)?;
        }
        state.ours = new;
        Ok(())
    }

    /// Leaves the chain, if it has joined; the last program detaches the dispatcher. A missing chain counts
    /// as left. An error says that the program stays, and how to remove it.
    pub(in crate::xsk::bpf) fn leave(&self) -> Result<(), Error> {
        let mut state = self.lock();
        if state.place.is_none() {
            return Ok(());
        }
        let id = state.ours.id;
        let left = state.chain.remove(id).map_err(|error| self.stays(id, error));
        state.is_told = left.is_err();
        if left.is_ok() {
            state.place = None;
        }
        left
    }

    /// Adds what happens to packets, and how to remove the program.
    fn stays(&self, id: u32, error: Error) -> Error {
        let now = lookup::name_of(self.index);
        let interface = if now.is_empty() { &self.interface } else { &now };
        let word = shell_word(interface);
        let then = format!(
            "the XDP program with id {id} stays in the chain of {interface}, and passes all packets: \
             `xdp-loader unload {word} --id {id}` removes it, and `ip link set dev {word} xdp off` removes \
             all programs"
        );
        match error {
            Error::System { call, remedy, source } => {
                Error::System { call, remedy: format!("{remedy}; {then}"), source }
            }
            Error::Busy { what } => Error::Busy { what: format!("{what}; {then}") },
            other => Error::Busy { what: format!("{other}; {then}") },
        }
    }

    #[cfg(any(test, feature = "testing"))]
    pub(in crate::xsk::bpf) fn form(&self) -> Result<Option<ChainForm>, Error> {
        self.lock().chain.form()
    }

    pub(in crate::xsk::bpf) fn interface(&self) -> (&str, u32) {
        (&self.interface, self.index)
    }

    pub(in crate::xsk::bpf) fn id(&self) -> u32 {
        self.lock().ours.id
    }

    /// Where the dispatcher runs, while the program is in the chain.
    pub(in crate::xsk::bpf) fn place(&self) -> Option<ChainPlace> {
        self.lock().place.clone()
    }

    /// Whether another process removed the program from the chain.
    pub(in crate::xsk::bpf) fn is_gone(&self) -> bool {
        self.is_removed(&mut self.lock())
    }

    fn is_removed(&self, state: &mut MemberState) -> bool {
        let MemberState { chain, ours, place: Some(place), .. } = state else { return false };
        for _ in 0..LOOKS {
            let there = match chain.attached() {
                Ok(Some(there)) => there,
                Ok(None) => return true,
                Err(_) => return false, // unknown: the next call may know
            };
            if there.id == place.id || chain.program_ids(there.id).any(|id| id == ours.id) {
                place.id = there.id;
                return false;
            }
            // Another process may just have exchanged the dispatcher and removed the names.
            let again = chain.attached();
            if matches!(again, Ok(Some(again)) if again.id == there.id) {
                break;
            }
        }
        true
    }

    fn lock(&self) -> MutexGuard<'_, MemberState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a program into the chain instead of our old one: like libxdp, behind those of its priority whose
    /// names are not greater. Omits programs that `drops` selects.
    fn put(
        &self,
        state: &mut MemberState,
        new: ChainedProgram,
        drops: impl Fn(&ChainedProgram) -> bool,
    ) -> Result<(), Error> {
        let (old, joined) = (state.ours.id, state.place.is_some());
        let mut is_there = true;
        let changed = state.chain.change(self.places, |programs| {
            is_there = !joined || programs.iter().any(|program| program.id == old);
            if is_there {
                programs.retain(|program| program.id != old && !drops(program));
                let at = programs.partition_point(|program| order(program) <= order(&new));
                programs.insert(at, new.clone());
            }
            is_there
        })?;
        if !is_there {
            return Err(self.removed(old));
        }
        if let Some(place) = changed {
            state.place = Some(place.explained(&mut state.refusal));
            state.is_told = false;
        }
        Ok(())
    }

    /// The error if another process removed the program, which is not put back.
    fn removed(&self, id: u32) -> Error {
        let must_be = format!(
            "one whose chain still has the XDP program with id {id}: it was removed (by `xdp-loader unload`, \
             or with the interface); load it again"
        );
        parameter("interface", &self.interface, must_be)
    }
}

impl Drop for ChainMember {
    fn drop(&mut self) {
        if !self.lock().is_told {
            let _ = self.leave(); // callers of `leave` get its error
        }
    }
}

fn order(program: &ChainedProgram) -> (u32, Option<String>) {
    (program.slot.priority, sys::name_of((*program.program).as_fd()))
}

/// The abstract socket of a program's living process, in the interface's network namespace.
fn sign(program: &ChainedProgram) -> io::Result<UnixDatagram> {
    let map = extension::first_map((*program.program).as_fd())?.unwrap_or(0);
    let name = SocketAddr::from_abstract_name(format!("pagepool-xdp-{map}"))?;
    UnixDatagram::bind_addr(&name)
}

/// Whether a program is ours, and its process is gone.
fn is_left_behind(program: &ChainedProgram) -> bool {
    sys::name_of((*program.program).as_fd()).is_some_and(|name| sys::is_ours(&name)) && sign(program).is_ok()
}
