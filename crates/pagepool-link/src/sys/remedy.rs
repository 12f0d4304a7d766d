//! Remedies for errors of calls: a missing capability, or what [`pagepool::remedy`] knows of every call.

use std::io;

use super::capability::{self, ADMIN, Capability, NAMESPACE, OTHER_PROGRAMS, PROGRAM, SOCKET};
use super::errno;

/// The capabilities that a call or request requires, if any.
fn required(call: &str) -> Option<&'static [Capability]> {
    Some(match call {
        "unshare" => NAMESPACE,
        "setns" | "bpf(BPF_PROG_GET_FD_BY_ID)" => OTHER_PROGRAMS,
        "socket(AF_XDP)" | "socket(AF_PACKET)" | "setsockopt(PACKET_MR_PROMISC)" => SOCKET,
        "ioctl(SIOCETHTOOL)" | "ioctl(TUNSETIFF)" | "ioctl" => ADMIN,
        "make" | "delete" | "turn on" | "turn off" | "exchange the XDP program" => ADMIN,
        _ if ["add the ", "set the ", "delete the "].iter().any(|verb| call.starts_with(verb)) => ADMIN,
        _ if call.starts_with("bpf(") => PROGRAM,
        _ => return None,
    })
}

/// For bpf(2), which a kernel can lack.
const NO_BPF: &str = "the kernel is built without CONFIG_BPF_SYSCALL, or a seccomp filter blocks bpf";

/// The remedy for an error, if it does not depend on the caller's values.
pub fn remedy(call: &str, error: &io::Error) -> Option<String> {
    if error.raw_os_error() == Some(errno::ENOSYS) && call.starts_with("bpf(") {
        return Some(NO_BPF.into());
    }
    let is_denied = matches!(error.raw_os_error(), Some(errno::EPERM | errno::EACCES));
    let required = required(call).filter(|_| is_denied);
    required.map(capability::remedy).or_else(|| pagepool::remedy(call, error).map(Into::into))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_calls_that_require_a_capability_name_it() {
        let remedy_for = |call, errno| {
            remedy(call, &io::Error::from_raw_os_error(errno)).unwrap_or_else(|| "the caller's".into())
        };
        for (call, name) in [
            ("bpf(BPF_MAP_CREATE)", "CAP_BPF"),
            ("socket(AF_XDP)", "CAP_NET_RAW"),
            ("setns", "CAP_SYS_ADMIN"),
            ("make", "CAP_NET_ADMIN"),
            ("set the MTU", "CAP_NET_ADMIN"),
        ] {
            assert!(remedy_for(call, errno::EPERM).contains(name), "{call}");
            assert!(remedy_for(call, libc::EMFILE).contains("RLIMIT_NOFILE"), "{call}");
            assert!(remedy_for(call, errno::EINVAL) == "the caller's", "{call}");
        }
        for call in ["setsockopt(XDP_UMEM_REG)", "eventfd", "fcntl(F_DUPFD_CLOEXEC)", "socket"] {
            let said = remedy_for(call, errno::EPERM);
            assert!(said.contains("seccomp") && !said.contains("CAP_"), "{said}");
        }
    }
}
