//! Errors of links and namespaces: what failed, the kernel's errno and text, and the remedy.

use std::error::Error;
use std::fmt;
use std::io;
use std::time::Duration;

use pagepool::published::shown;

use crate::shell_word::shell_word;
use crate::sys::errno;
use crate::sys::remedy::remedy;

/// Why a request about links, namespaces or their sockets failed. Its [`source`](Error::source) is the errno.
#[derive(Debug)]
#[non_exhaustive]
pub enum LinkError {
    /// A system call failed.
    Call {
        /// Its name.
        call: &'static str,
        /// What it was called for.
        about: String,
        /// What may help.
        remedy: String,
        /// The errno.
        source: io::Error,
    },
    /// The kernel refused a request over netlink.
    Refused {
        /// The requested setting.
        request: &'static str,
        /// The link, address or route that it is about.
        about: String,
        /// The kernel's text for the error, if any.
        extack: Option<String>,
        /// What may help.
        remedy: String,
        /// The errno.
        source: io::Error,
    },
    /// There is no link of this name in this namespace.
    NoLink {
        /// The name.
        name: String,
        /// The existing names.
        known: Vec<String>,
    },
    /// The kernel's answer does not follow the protocol.
    Malformed {
        /// The part that is malformed.
        what: &'static str,
    },
    /// A limit against endless answers is reached.
    TooMuch {
        /// What exceeds the limit.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
    /// A time limit is over.
    TimedOut {
        /// What did not happen in time.
        what: String,
        /// The time limit.
        limit: Duration,
        /// What may help.
        remedy: &'static str,
    },
    /// A parameter is out of range.
    OutOfRange {
        /// The parameter.
        field: &'static str,
        /// Its value.
        value: String,
        /// The allowed values.
        range: &'static str,
    },
    /// A driver does not change an offload.
    FixedOffload {
        /// The link.
        link: String,
        /// The offload's name in `ethtool -k`.
        offload: &'static str,
        /// The requested state.
        wanted: bool,
    },
    /// A card does not spread flows over queues, or its table cannot be set.
    NoIndirection {
        /// The link.
        link: String,
    },
    /// Another program already spreads the flows of this card.
    FlowsHeld {
        /// The link.
        link: String,
        /// Its process id, if known.
        process: Option<u32>,
    },
    /// The kernel does not list its page pools.
    NoKernelPools {
        /// The errno.
        source: io::Error,
    },
}

impl LinkError {
    /// A failed system call with its errno and the known remedy.
    pub fn call(call: &'static str, about: impl Into<String>, source: io::Error) -> Self {
        let remedy = remedy_of(call, &source);
        Self::Call { call, about: about.into(), remedy, source }
    }

    /// Whether the cause is a missing capability.
    pub fn is_permission(&self) -> bool {
        matches!(self.errno(), Some(errno::EPERM | errno::EACCES))
    }

    /// The kernel's errno, if the kernel refused.
    pub fn errno(&self) -> Option<i32> {
        self.cause()?.raw_os_error()
    }

    fn cause(&self) -> Option<&io::Error> {
        match self {
            Self::Call { source, .. } | Self::Refused { source, .. } | Self::NoKernelPools { source } => {
                Some(source)
            }
            _ => None,
        }
    }
}

/// The remedy for an errno of a call or netlink request.
pub(crate) fn remedy_of(call: &str, error: &io::Error) -> String {
    let known = match (call, error.raw_os_error().unwrap_or(0)) {
        ("make", errno::EEXIST) => "the name is taken; delete the old link, or choose another name",
        ("make", errno::EOPNOTSUPP) => {
            "this kernel does not support it; for veth, load the module (modprobe veth)"
        }
        ("make", errno::ENOMEM | errno::ENOBUFS) => {
            "the kernel is short of memory; try again with fewer queues"
        }
        ("open(/dev/net/tun)", errno::ENOENT | errno::ENODEV | errno::ENXIO) => {
            "load the module (modprobe tun); for a container, also pass the device /dev/net/tun"
        }
        ("ioctl(TUNSETIFF)", errno::EBUSY) => {
            "another program uses this TAP; stop that program, or choose another name"
        }
        ("ioctl(TUNSETIFF)", errno::EINVAL) => {
            "the interface with this name is not a TAP, or was made with multi_queue for one queue, or without \
             it for several; choose another name"
        }
        ("ioctl(TUNSETIFF)", errno::E2BIG) => "a TAP has at most 256 queues; use fewer",
        ("unshare", errno::ENOSPC) => "a limit is reached; raise /proc/sys/user/max_net_namespaces",
        (_, errno::EEXIST) => "it already exists; delete the old one first",
        (_, errno::EOPNOTSUPP) => "this kernel or driver does not support it",
        (_, errno::ENODEV) => "the link was removed, or is in another network namespace",
        (_, errno::EBUSY) => "it is in use; stop the program that uses it",
        (_, errno::ENOMEM | errno::ENOBUFS) => "the kernel is short of memory; free some, and try again",
        (_, errno::EADDRNOTAVAIL) => "no link in this network namespace has that address",
        (_, errno::EINVAL) => "a value is outside the range of the kernel or the driver",
        _ => "see the errno",
    };
    remedy(call, error).unwrap_or_else(|| known.into())
}

/// Escapes what a terminal would obey or not show: names come from other programs.
impl fmt::Display for LinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&shown(&self.text()))
    }
}

impl LinkError {
    fn text(&self) -> String {
        match self {
            Self::Call { call, about, remedy, .. } => format!("{call} failed: {about}; {remedy}"),
            Self::Refused { request, about, extack, remedy, .. } => {
                let said = extack.as_ref().map(|text| format!(", saying \"{text}\"")).unwrap_or_default();
                format!("the kernel refused to {request} {about}{said}; {remedy}")
            }
            Self::NoLink { name, known } => {
                let known = known.join(", ");
                format!("no interface {name:?} in this network namespace; its interfaces are {known}")
            }
            Self::Malformed { what } => format!("the kernel's answer is malformed: {what}; please report it"),
            Self::TooMuch { what, limit } => format!("more than {limit} {what}; please report it"),
            Self::TimedOut { what, limit, remedy } => format!("{what} took longer than {limit:?}; {remedy}"),
            Self::OutOfRange { field, value, range } => format!("{field} is {value}, but must be {range}"),
            Self::FixedOffload { link, offload, wanted } => {
                let (wanted, kept) = if *wanted { ("on", "off") } else { ("off", "on") };
                format!(
                    "{offload} of {link:?} stays {kept}; use an interface whose driver can turn it {wanted}"
                )
            }
            Self::NoIndirection { link } => format!(
                "{link:?} has no indirection table (RSS), as `ethtool -x {}` shows: use all of its queues, \
                 or a card that has one",
                shell_word(link)
            ),
            Self::FlowsHeld { link, process } => {
                let by = process.map_or("another process".into(), |number| format!("process {number}"));
                format!(
                    "{by} spreads the flows of {link:?} over its own queues: stop it first (`ss -xap` shows \
                     the owner of `@pagepool-flows-of-...`)"
                )
            }
            Self::NoKernelPools { .. } => String::from(
                "this kernel does not list its page pools: that requires Linux 6.8 or later with \
                 CONFIG_PAGE_POOL",
            ),
        }
    }
}

impl Error for LinkError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.cause().map(|cause| cause as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_missing_capability_is_named() {
        let denied = || io::Error::from_raw_os_error(errno::EPERM);
        for (call, capability) in [
            ("unshare", "CAP_SYS_ADMIN"),
            ("setns", "CAP_SYS_ADMIN"),
            ("socket(AF_PACKET)", "CAP_NET_RAW"),
            ("bpf(BPF_PROG_LOAD)", "CAP_BPF"),
            ("ioctl(SIOCETHTOOL)", "CAP_NET_ADMIN"),
        ] {
            let error = LinkError::call(call, "something", denied());
            assert!(error.is_permission() && error.to_string().contains(capability), "{error}");
            assert!(error.to_string().starts_with(&format!("{call} failed: something; ")), "{error}");
        }
    }

    #[test]
    fn limits_and_ranges_are_named() {
        let late =
            LinkError::TimedOut { what: "a link".into(), limit: Duration::from_secs(2), remedy: "try again" };
        assert_eq!(late.to_string(), "a link took longer than 2s; try again");
        let many = LinkError::TooMuch { what: "answers", limit: 3 };
        assert_eq!(many.to_string(), "more than 3 answers; please report it");
        assert_eq!((many.errno(), many.is_permission(), many.source().is_none()), (None, false, true));
    }
}
