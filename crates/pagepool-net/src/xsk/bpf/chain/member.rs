//! Our program in the chain of an interface: it joins, is exchanged for one of other rules, and leaves.
//!
//! A process that is killed leaves its program behind, which passes all packets to the next one. Each member
//! has an abstract socket while its process lives, named by the map of its programs, which stays when they
//! are exchanged: who joins removes the programs that have none.

use std::io;
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use pagepool::Error;

use super::dispatcher::{ChainForm, ChainSlot};
use super::{ChainPlace, ChainedProgram, XdpChain, folder, not_loaded};
use crate::error::parameter;
use crate::link::{LinkInfo, Netlink, XdpMode, lookup, shell_word};
use crate::sys::bpf::{self as sys, Insn, extension};
use crate::sys::remedy::failed;

/// How often a chain that others change is read again, at most.
const LOOKS: usize = 10;

/// A member of a chain, from its load on.
#[derive(Debug)]
pub(in crate::xsk::bpf) struct ChainMember {
    interface: String,
    index: u32,
    /// Where a chain may begin, in this order.
    places: &'static [XdpMode],
    folder: PathBuf,
    /// The form of a chain that begins here.
    begins: ChainForm,
    /// Where it was in the driver, and where before the stack: a chain that begins anew may be elsewhere.
    native: OnceLock<ChainPlace>,
    generic: OnceLock<ChainPlace>,
    state: Mutex<MemberState>,
    /// Says that this lives, until it has left the chain.
    _sign: UnixDatagram,
}

#[derive(Debug)]
struct MemberState {
    /// In the interface's network namespace.
    netlink: Netlink,
    ours: ChainedProgram,
    /// The dispatcher that runs it, when it was last seen.
    dispatcher: Option<u32>,
    /// Whether that is before the stack.
    is_generic: bool,
    /// Leaving was refused, and whoever asked for it knows.
    is_told: bool,
}

impl ChainMember {
    /// Loads a program, which joins later. An error if what is attached now runs no others. Where nothing is
    /// attached a chain of version 2 begins, which more tools know than version 3.
    pub(in crate::xsk::bpf) fn load(
        link: &LinkInfo,
        places: &'static [XdpMode],
        slot: ChainSlot,
        code: &[Insn],
    ) -> Result<Self, Error> {
        Self::load_for(ChainForm::Second, link, places, slot, code)
    }

    /// The same, with the form of a chain that begins here.
    pub(in crate::xsk::bpf) fn load_for(
        begins: ChainForm,
        link: &LinkInfo,
        places: &'static [XdpMode],
        slot: ChainSlot,
        code: &[Insn],
    ) -> Result<Self, Error> {
        let (mut netlink, folder) = (lookup::netlink()?, folder()?);
        let (interface, index) = (&*link.name, link.index);
        XdpChain { netlink: &mut netlink, interface, index, folder: &folder, begins }.form()?;
        let ours =
            ChainedProgram::load(code, slot).map_err(|error| not_loaded("bpf(BPF_PROG_LOAD)", error))?;
        let sign = sign(&ours).map_err(|source| {
            let remedy = format!(
                "the abstract socket that says that the XDP program of {} is in use was not made",
                link.name
            );
            failed("bind", source, remedy)
        })?;
        let state = MemberState { netlink, ours, dispatcher: None, is_generic: false, is_told: false };
        Ok(Self {
            interface: link.name.clone(),
            index: link.index,
            places,
            folder,
            begins,
            native: OnceLock::new(),
            generic: OnceLock::new(),
            state: Mutex::new(state),
            _sign: sign,
        })
    }

    /// Joins the chain, if it has not; an error if somebody removed it. Where none is, one begins.
    pub(in crate::xsk::bpf) fn join(&self) -> Result<(), Error> {
        let mut state = self.lock();
        if self.is_removed(&mut state) {
            return Err(self.removed(state.ours.id));
        }
        if state.dispatcher.is_some() {
            return Ok(());
        }
        let ours = state.ours.clone();
        // Signs of other network namespaces are not seen, and so ours is not there, either.
        let sees_signs = sign(&ours).is_err();
        self.put(&mut state, ours, |program| sees_signs && is_left_behind(program))
    }

    /// Loads a program of other rules, to be exchanged for this one.
    pub(in crate::xsk::bpf) fn load_another(&self, code: &[Insn]) -> io::Result<ChainedProgram> {
        let slot = self.lock().ours.slot;
        ChainedProgram::load(code, slot)
    }

    /// Exchanges the program for another, in the chain if it is there.
    pub(in crate::xsk::bpf) fn exchange(&self, new: ChainedProgram) -> Result<(), Error> {
        let mut state = self.lock();
        if state.dispatcher.is_some() {
            self.put(&mut state, new.clone(), |_| false)?;
        }
        state.ours = new;
        Ok(())
    }

    /// Leaves the chain, if it has joined; the last one detaches the dispatcher. A chain that is gone is
    /// left. An error says that the program stays, and what removes it.
    pub(in crate::xsk::bpf) fn leave(&self) -> Result<(), Error> {
        let mut state = self.lock();
        if state.dispatcher.is_none() {
            return Ok(());
        }
        let id = state.ours.id;
        let left = self.chain(&mut state.netlink).remove(id).map_err(|error| self.stays(id, error));
        state.is_told = left.is_err();
        if left.is_ok() {
            state.dispatcher = None;
        }
        left
    }

    /// The same error, with what becomes of packets, and what removes the program.
    fn stays(&self, id: u32, error: Error) -> Error {
        let now = lookup::name_of(self.index);
        let interface = if now.is_empty() { &self.interface } else { &now };
        let word = shell_word(interface);
        let then = format!(
            "the XDP program with id {id} stays in the chain of {interface}, and passes all packets: \
             `xdp-loader unload {word} --id {id}` removes it, and `ip link set dev {word} xdp off` all \
             programs"
        );
        match error {
            Error::System { call, remedy, source } => {
                Error::System { call, remedy: format!("{remedy}; {then}"), source }
            }
            Error::Busy { what } => Error::Busy { what: format!("{what}; {then}") },
            other => Error::Busy { what: format!("{other}; {then}") },
        }
    }

    /// The form of the chain that is there.
    #[cfg(any(test, feature = "testing"))]
    pub(in crate::xsk::bpf) fn form(&self) -> Result<Option<ChainForm>, Error> {
        self.chain(&mut self.lock().netlink).form()
    }

    /// The interface's name and number.
    pub(in crate::xsk::bpf) fn interface(&self) -> (&str, u32) {
        (&self.interface, self.index)
    }

    /// The id of the program.
    pub(in crate::xsk::bpf) fn id(&self) -> u32 {
        self.lock().ours.id
    }

    /// Where the dispatcher runs, from joining the chain until leaving it.
    pub(in crate::xsk::bpf) fn place(&self) -> Option<&ChainPlace> {
        let state = self.lock();
        state.dispatcher?;
        if state.is_generic { self.generic.get() } else { self.native.get() }
    }

    /// Whether it joined and is not in the chain any more.
    pub(in crate::xsk::bpf) fn is_gone(&self) -> bool {
        self.is_removed(&mut self.lock())
    }

    fn is_removed(&self, state: &mut MemberState) -> bool {
        let Some(seen) = state.dispatcher else { return false };
        for _ in 0..LOOKS {
            let MemberState { netlink, ours, .. } = &mut *state;
            let there = match self.chain(netlink).attached() {
                Ok(Some(there)) => there,
                Ok(None) => return true,
                Err(_) => return false, // nobody knows: the next look may tell
            };
            if there.id == seen || self.chain(netlink).program_ids(there.id).any(|id| id == ours.id) {
                state.dispatcher = Some(there.id);
                return false;
            }
            // Others may have exchanged it just now, and removed its names.
            let again = self.chain(&mut state.netlink).attached();
            if matches!(again, Ok(Some(again)) if again.id == there.id) {
                break;
            }
        }
        true
    }

    fn lock(&self) -> MutexGuard<'_, MemberState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn chain<'a>(&'a self, netlink: &'a mut Netlink) -> XdpChain<'a> {
        let Self { interface, index, folder, begins, .. } = self;
        XdpChain { netlink, interface, index: *index, folder, begins: *begins }
    }

    /// Puts a program into the chain in place of the one that was ours, behind those of its priority whose
    /// names are not greater, as libxdp does. Leaves out others as `drops` says.
    fn put(
        &self,
        state: &mut MemberState,
        new: ChainedProgram,
        drops: impl Fn(&ChainedProgram) -> bool,
    ) -> Result<(), Error> {
        let (old, joined) = (state.ours.id, state.dispatcher.is_some());
        let mut is_there = true;
        let changed = self.chain(&mut state.netlink).change(self.places, |programs| {
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
            state.dispatcher = Some(place.id);
            state.is_generic = place.generic;
            let known = if place.generic { &self.generic } else { &self.native };
            let _ = known.set(place); // the first one says why it is there
            state.is_told = false;
        }
        Ok(())
    }

    /// Somebody removed the program, who does not want it there again.
    fn removed(&self, id: u32) -> Error {
        let must_be = format!(
            "one whose chain has the XDP program with id {id} still: it was removed (`xdp-loader unload`, or \
             with the interface); load it anew"
        );
        parameter("interface", &self.interface, must_be)
    }
}

impl Drop for ChainMember {
    /// Leaves the chain, unless that was refused before.
    fn drop(&mut self) {
        if !self.lock().is_told {
            let _ = self.leave(); // `leave` tells who asks
        }
    }
}

/// What comes first in a chain.
fn order(program: &ChainedProgram) -> (u32, Option<String>) {
    (program.slot.priority, sys::name_of((*program.program).as_fd()))
}

/// An abstract socket that lives as long as the process of a program does, in the network namespace of its
/// interface.
fn sign(program: &ChainedProgram) -> io::Result<UnixDatagram> {
    let map = extension::first_map((*program.program).as_fd())?.unwrap_or(0);
    let name = SocketAddr::from_abstract_name(format!("pagepool-xdp-{map}"))?;
    UnixDatagram::bind_addr(&name)
}

/// Whether a program of ours has no process any more.
fn is_left_behind(program: &ChainedProgram) -> bool {
    sys::name_of((*program.program).as_fd()).is_some_and(|name| sys::is_ours(&name)) && sign(program).is_ok()
}
