//! Entries that C publishes beside its pools.

// UNSAFETY: reads a C caller's arrays and texts by address.
#![expect(unsafe_code)]

use std::ffi::c_char;

use ::pagepool::check_entry;

use crate::args::out::array;
use crate::args::sized::{Sized0, text};
use crate::error::CallResult;
use crate::handles::opaque::PoolHandle;

/// An entry that the program publishes beside its pools: a socket, a port, or anything else. Start from
/// PAGEPOOL_ENTRY_PARAMS_INIT, or from zeroes with `size` set. All texts are copied.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct EntryParamsC {
    /// sizeof(struct pagepool_entry_params): fields can be added at the end.
    pub size: usize,
    /// The kind, up to 16 bytes; any word except "pool". Required. Buffers that a "socket" or "nic" counts as
    /// `in_rx` wait for packets, and do not count as held by the program.
    pub kind: *const c_char,
    /// The program's own number, to distinguish entries of one kind.
    pub id: u64,
    /// The pool of the entry. NULL means none.
    pub pool: *mut PoolHandle,
    /// The name, of which 64 bytes are shown. NULL means "".
    pub name: *const c_char,
    /// Fixed properties: lines of `key=value`, of which 688 bytes are shown. "ifindex=N" names the interface.
    /// NULL means none.
    pub params: *const c_char,
    /// The names of the counters, which begin at 0: at most 256 names, and 4096 bytes with a terminating byte
    /// for each. A socket has `in_rx`, buffers that wait for packets; `in_tx`, buffers that are being sent;
    /// `rx_packets`, `tx_packets`.
    pub counters: *const *const c_char,
    /// Number of `counters`.
    pub n_counters: usize,
}

// SAFETY: plain integers and pointers, of which zeroes are values.
unsafe impl Sized0 for EntryParamsC {
    const LEAST: usize = std::mem::offset_of!(Self, n_counters) + size_of::<usize>();
}

pub(crate) struct EntryTexts {
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) params: Vec<(String, String)>,
    pub(crate) counters: Vec<String>,
}

impl EntryParamsC {
    /// Reads the texts, and refuses an entry that cannot be shown.
    ///
    /// # Safety
    /// The texts are NULL or end with a zero byte, and `counters` is readable for `n_counters` texts.
    pub(crate) unsafe fn texts(&self) -> CallResult<EntryTexts> {
        // SAFETY: the caller's contract.
        let read = |at| unsafe { text(at, "") };
        // SAFETY: the caller's contract.
        let names = unsafe { array(self.counters, self.n_counters) }?;
        let counters: Vec<String> = names.iter().map(|&at| read(at)).collect();
        let kind = read(self.kind);
        check_entry(&kind, &counters.iter().map(|name| &**name).collect::<Vec<_>>())?;
        let line = |line: &str| {
            let (key, value) = line.split_once('=').unwrap_or((line, ""));
            (key.to_owned(), value.to_owned())
        };
        let params = read(self.params).lines().map(line).collect();
        Ok(EntryTexts { kind, name: read(self.name), params, counters })
    }
}
