//! The kinds of memory of an arena: the requested kind, and the one used if huge pages are missing.

use std::fmt;

use crate::mem::page::system_page_size;

/// The kind of memory of an arena.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Backing {
    /// Anonymous memory in the system's own pages, 4 KiB on most machines; never huge pages.
    Anonymous4k,
    /// Anonymous memory for which the kernel may use transparent huge pages. Needs no set-up if these fit a
    /// region of 4 MiB.
    #[default]
    TransparentHuge,
    /// hugetlb pages of 2 MiB, from `/proc/sys/vm/nr_hugepages`. `max_bytes` is a multiple of 2 MiB.
    Huge2M,
    /// hugetlb pages of 1 GiB. `max_bytes` is a multiple of 1 GiB, and so is a region.
    Huge1G,
    /// A memfd, mapped shared: a peer process can map the descriptor, at equal offsets. `max_bytes` must be
    /// within the limit on file sizes (`RLIMIT_FSIZE`).
    Memfd {
        /// Uses hugetlb pages of 2 MiB.
        huge: bool,
    },
    /// Memory of the caller; see [`Arena::over_caller_memory`](crate::Arena::over_caller_memory).
    Caller,
}

impl Backing {
    /// log2 of the hugetlb page size, if the kind has one.
    pub(crate) fn huge_shift(self) -> Option<u32> {
        match self {
            Self::Huge2M | Self::Memfd { huge: true } => Some(21),
            Self::Huge1G => Some(30),
            Self::Anonymous4k | Self::TransparentHuge | Self::Memfd { huge: false } | Self::Caller => None,
        }
    }

    /// The fallback if there are no huge pages.
    pub(crate) fn instead(self) -> Self {
        match self {
            Self::Huge2M | Self::Huge1G => Self::TransparentHuge,
            Self::Memfd { .. } => Self::Memfd { huge: false },
            Self::Anonymous4k | Self::TransparentHuge | Self::Caller => Self::Anonymous4k,
        }
    }
}

impl fmt::Display for Backing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Anonymous4k => return write!(f, "{} pages", bytes(system_page_size() as u64)),
            Self::TransparentHuge => "transparent huge pages",
            Self::Huge2M => "2 MiB pages",
            Self::Huge1G => "1 GiB pages",
            Self::Memfd { huge: false } => "memfd",
            Self::Memfd { huge: true } => "memfd of 2 MiB pages",
            Self::Caller => "caller's memory",
        })
    }
}

/// What to do if there are no huge pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnMissingHuge {
    /// Use smaller pages; the description says so, and why.
    #[default]
    Fallback,
    /// Fail: at creation for the first region. Later the arena does not grow.
    Fail,
}

/// Formats a number of bytes: "64 MiB".
pub(crate) fn bytes(n: u64) -> String {
    match n {
        u64::MAX => "unlimited".into(),
        n if n >= 1 << 30 && n % (1 << 30) == 0 => format!("{} GiB", n >> 30),
        n if n >= 1 << 20 && n % (1 << 20) == 0 => format!("{} MiB", n >> 20),
        n if n >= 1 << 10 && n % (1 << 10) == 0 => format!("{} KiB", n >> 10),
        n => format!("{n} bytes"),
    }
}
