//! The parameters of an arena, and its description.

use std::fmt;

use crate::error::Error;
use crate::mem::area::REGION_SHIFT;
use crate::mem::arena::backing::{Backing, Commit, OnMissingHuge, bytes};
use crate::mem::page::{MAX_PAGES, NodeId, PAGE_SHIFT, system_page_size};
use crate::mem::topology::Topology;
use crate::sys::memory::Placement;

/// Which node an arena's memory comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum NodePolicy {
    /// Where the process's own policy puts it. The arena asks the kernel for the node of each page.
    #[default]
    Any,
    /// A region goes to the node of the request that makes the arena grow, if it names one, else to that of
    /// its thread; both as a preference.
    Local,
    /// All of it on one node.
    Bind(NodeId),
}

impl fmt::Display for NodePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("any node"),
            Self::Local => f.write_str("local node"),
            Self::Bind(node) => write!(f, "bound to {node}"),
        }
    }
}

/// The parameters of an arena. Checked once, by [`Arena::new`](crate::Arena::new).
#[derive(Clone, Debug)]
pub struct ArenaParams {
    /// Name in descriptions, and of the memfd. Default "arena".
    pub name: String,
    /// Size up to which the arena grows, in bytes, a multiple of 4096 (of the huge page for hugetlb kinds).
    /// Where the [system's page](crate::system_page_size) is larger, the arena has the next multiple of it.
    /// Addresses are reserved at once, memory is not. Default 64 MiB.
    pub max_bytes: u64,
    /// The kind of memory. Default transparent huge pages.
    pub backing: Backing,
    /// What to do when there are no huge pages. Default: take smaller ones and say so.
    pub on_missing_huge: OnMissingHuge,
    /// Which node the memory comes from. Default any.
    pub node: NodePolicy,
    /// The nodes there are. Default those of the machine.
    pub topology: Topology,
    /// Make the kernel give the memory of a region when it is committed, not when it is touched. Default off;
    /// on a machine of several nodes always on, unless the arena is bound to one, because the node of a page
    /// is known only then.
    pub prefault: bool,
    /// Lock the memory (`mlock`); the limit is raised if it may be. Default off.
    pub mlock: bool,
    /// Commit everything at creation, and keep it: for domains that need the arena as it is (an AF_XDP UMEM).
    /// Default off: the first region at creation, the others when pages are requested.
    pub commit_all: bool,
    /// Let a child of `fork` have the memory too. Default off. Without effect on the caller's memory, which
    /// is left as it is.
    pub inherit_on_fork: bool,
}

impl Default for ArenaParams {
    fn default() -> Self {
        Self {
            name: "arena".into(),
            max_bytes: 64 << 20,
            backing: Backing::default(),
            on_missing_huge: OnMissingHuge::default(),
            node: NodePolicy::default(),
            topology: Topology::default(),
            prefault: false,
            mlock: false,
            commit_all: false,
            inherit_on_fork: false,
        }
    }
}

impl ArenaParams {
    pub(crate) fn region_shift(&self) -> u32 {
        if self.backing == Backing::Huge1G { 30 } else { REGION_SHIFT }
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        let unit = 1u64 << self.backing.huge_shift().unwrap_or(PAGE_SHIFT);
        let most = (u64::from(MAX_PAGES - 1) << PAGE_SHIFT) & !(system_page_size() as u64 - 1);
        if self.max_bytes > most {
            return Err(Error::parameter(
                "max_bytes",
                self.max_bytes,
                format!("a multiple of 4096 from 4096 to {most}"),
            ));
        }
        if self.max_bytes == 0 || !self.max_bytes.is_multiple_of(unit) {
            let must_be = format!("a multiple of {} and not 0, for {}", bytes(unit), self.backing);
            return Err(Error::parameter("max_bytes", self.max_bytes, must_be));
        }
        if self.name.is_empty() || self.name.len() > 200 || self.name.contains('\0') {
            let shown = format!("{:?}", self.name.chars().take(20).collect::<String>());
            return Err(Error::parameter("name", shown, "1 to 200 bytes without a zero byte"));
        }
        if let NodePolicy::Bind(node) = self.node {
            let nodes = self.topology.nodes();
            if self.topology.nodes_ignored().is_none() && !nodes.contains(&node) {
                let there: Vec<_> = nodes.iter().map(|n| n.0.to_string()).collect();
                return Err(Error::parameter(
                    "node",
                    node.0,
                    format!("one of the nodes {}", there.join(", ")),
                ));
            }
        }
        Ok(())
    }

    /// Whether the arena must ask the kernel for the node of each committed page.
    pub(crate) fn asks_nodes(&self) -> bool {
        self.topology.is_machine() && self.uniform_node().is_none()
    }

    /// The node of all pages, where they have one in common.
    pub(crate) fn uniform_node(&self) -> Option<NodeId> {
        match (self.topology.only_node(), self.node) {
            (Some(only), _) => Some(only),
            (None, NodePolicy::Bind(node)) => Some(node),
            (None, _) => None,
        }
    }

    /// How a region is committed.
    pub(crate) fn commit_plan(&self) -> Commit {
        let place = match self.node {
            NodePolicy::Bind(node) if self.topology.is_machine() && self.topology.only_node().is_none() => {
                Some((Placement::Bind, node))
            }
            _ => None,
        };
        Commit {
            backing: self.backing,
            on_missing_huge: self.on_missing_huge,
            place,
            // The kernel knows the node of a page only once the page is present.
            prefault: self.prefault || self.asks_nodes(),
            mlock: self.mlock,
            inherit_on_fork: self.inherit_on_fork,
        }
    }
}

/// What the memory of an arena is, and which requests were not available.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Description {
    /// The arena's name.
    pub name: String,
    /// The kind of memory that was requested.
    pub asked: Backing,
    /// The kind that the arena has; of several, the one furthest from the request.
    pub got: Backing,
    /// Why it is another.
    pub why: Option<String>,
    /// The node policy that was requested.
    pub node: NodePolicy,
    /// Requests that were ignored, each with the reason.
    pub ignored: Vec<String>,
    /// Bytes committed.
    pub committed_bytes: u64,
    /// Bytes to which the arena may grow.
    pub max_bytes: u64,
    /// What else one should know.
    pub notes: Vec<String>,
}

impl fmt::Display for Description {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (committed, max) = (bytes(self.committed_bytes), bytes(self.max_bytes));
        write!(f, "{}: {committed} of {max} committed, {}, {}", self.name, self.got, self.node)?;
        if let Some(why) = &self.why {
            write!(f, "; requested {}: {why}", self.asked)?;
        }
        self.ignored.iter().try_for_each(|text| write!(f, "; {text}"))?;
        self.notes.iter().try_for_each(|text| write!(f, "; {text}"))
    }
}
