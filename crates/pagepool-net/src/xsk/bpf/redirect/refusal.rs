//! Errors of XDP programs that were not loaded, and their remedies.

use std::io;

use pagepool::Error;

use crate::steering::Match;
use crate::sys::remedy::failed;
use crate::sys::{capability, errno};

pub(super) fn no_metadata(interface: &str, source: io::Error, frags: bool) -> Error {
    let remedy = match source.raw_os_error() {
        Some(errno::EINVAL) if frags => format!(
            "this kernel has no metadata for packets of several buffers: a program bound to an interface \
             ({interface}) cannot accept them; use buffers that hold a whole packet"
        ),
        Some(errno::EINVAL | errno::EOPNOTSUPP) => format!(
            "the driver of {interface} does not support metadata, or the kernel is older than Linux 6.3: use \
             Redirect::load"
        ),
        _ => format!("the kernel refused the XDP program that reads metadata of {interface}"),
    };
    failed("bpf(BPF_PROG_LOAD)", source, remedy)
}

pub(super) fn not_steered(by: &Match, source: io::Error) -> Error {
    let call = "bpf(BPF_PROG_LOAD)";
    let remedy = match source.raw_os_error() {
        // Without CAP_PERFMON the verifier guards against speculation, and is stricter about addresses.
        Some(errno::EACCES) => format!(
            "the kernel's verifier refused the program of \"{by}\": {}",
            capability::remedy(capability::SEND_PROGRAM)
        ),
        Some(errno::E2BIG) => {
            format!("the program of \"{by}\" is too large for the kernel's verifier: use fewer parts")
        }
        _ => return refused(call, source, false),
    };
    Error::System { call, remedy, source }
}

pub(super) fn refused(call: &'static str, source: io::Error, frags: bool) -> Error {
    let remedy = match source.raw_os_error() {
        Some(errno::EINVAL) if frags => {
            "a program for packets of several buffers requires Linux 5.18 and CONFIG_XDP_SOCKETS; without \
             frags Linux 5.9 is enough"
        }
        Some(errno::EINVAL) => "it requires Linux 5.9, with CONFIG_XDP_SOCKETS and CONFIG_BPF_SYSCALL",
        _ => "the kernel refused the XDP program",
    };
    failed(call, source, remedy)
}
