//! The parameters of an arena, and its description.

use std::fmt;

use crate::error::Error;
use crate::mem::area::REGION_SHIFT;
use crate::mem::arena::backing::{Backing, OnMissingHuge, bytes};
use crate::mem::page::{BasePage, MAX_PAGES, NodeId, PAGE_SIZE, system_page_size};
use crate::mem::topology::Topology;
use crate::sys::memory::Placement;

/// The node that an arena's memory comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum NodePolicy {
    /// The process's own policy. The arena queries the kernel for the node of each page.
    #[default]
    Any,
    /// A region is on the node that the request for it names, else on that of the requesting thread; both as
    /// a preference.
    Local,
    /// All memory is on one node.
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

/// The node of a region's memory, unless the process's own policy chooses it.
pub(crate) type Place = Option<(Placement, NodeId)>;

/// The parameters of an arena. Checked once, by [`Arena::new`](crate::Arena::new).
#[derive(Clone, Debug)]
pub struct ArenaParams {
    /// The name in descriptions, and of the memfd. Default "arena".
    pub name: String,
    /// The size up to which the arena grows, in bytes: a multiple of 4096, of the huge page for hugetlb
    /// kinds. Rounded up to the [system's page](crate::system_page_size) if that is larger. Addresses are
    /// reserved at once, memory is not. Default 64 MiB.
    pub max_bytes: u64,
    /// Bytes of a page of order 0: 2048 or 4096. Default 4096. With 2048, a packet of 1,514 bytes takes half
    /// the memory, if its headroom and tailroom fit in the other 534 bytes. Larger packets require several
    /// pages each, or a pool of a higher order.
    pub page_size: usize,
    /// The kind of memory. Default: transparent huge pages.
    pub backing: Backing,
    /// What to do if there are no huge pages. Default: use smaller ones; the description says so.
    pub on_missing_huge: OnMissingHuge,
    /// The node that the memory comes from. Default: any.
    pub node: NodePolicy,
    /// The nodes that exist. Default: those of the machine.
    pub topology: Topology,
    /// Make the kernel allocate a region's memory when it is committed, not when it is touched. Default off.
    /// Always on if the machine has several nodes and the arena is not bound to one, because a page's node
    /// is known only when the page is present.
    pub prefault: bool,
    /// Lock the memory (`mlock`), and raise the limit if permitted. Default off.
    pub mlock: bool,
    /// Commit everything at creation, and keep it: for domains that need the arena to stay unchanged (an
    /// AF_XDP UMEM). Default off: the first region at creation, the others on demand.
    pub commit_all: bool,
    /// Let a child of `fork` inherit the memory. Default off. No effect on the caller's memory, which is not
    /// changed.
    pub inherit_on_fork: bool,
}

impl Default for ArenaParams {
    fn default() -> Self {
        Self {
            name: "arena".into(),
            max_bytes: 64 << 20,
            page_size: PAGE_SIZE,
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

    /// Checks all that needs no system call, and returns the size of the pages.
    pub(crate) fn check(&self) -> Result<BasePage, Error> {
        let base_page = BasePage::new(self.page_size)
            .ok_or_else(|| Error::parameter("page_size", self.page_size, "2048 or 4096"))?;
        let unit = self.backing.huge_shift().map_or(PAGE_SIZE as u64, |shift| 1 << shift);
        let most = (u64::from(MAX_PAGES - 1) * base_page.bytes()) & !(system_page_size() as u64 - 1);
        let must_be = format!("a multiple of 4096 from 4096 to {most}");
        Error::require(self.max_bytes <= most, "max_bytes", self.max_bytes, must_be)?;
        let is_whole = self.max_bytes > 0 && self.max_bytes.is_multiple_of(unit);
        let must_be = format!("a multiple of {} and not 0, for {}", bytes(unit), self.backing);
        Error::require(is_whole, "max_bytes", self.max_bytes, must_be)?;
        let is_name = (1..=200).contains(&self.name.len()) && !self.name.contains('\0');
        let shown = self.name.chars().take(20).collect::<String>();
        Error::require(is_name, "name", format_args!("{shown:?}"), "1 to 200 bytes without a zero byte")?;
        if let NodePolicy::Bind(node) = self.node {
            let nodes = self.topology.nodes();
            let is_there = self.topology.nodes_ignored().is_some() || nodes.contains(&node);
            let there: Vec<_> = nodes.iter().map(|n| n.0.to_string()).collect();
            let must_be = format!("one of the nodes {}", there.join(", "));
            Error::require(is_there, "node", node.0, must_be)?;
        }
        Ok(base_page)
    }

    /// Whether the arena must query the kernel for the node of each committed page.
    pub(crate) fn queries_nodes(&self) -> bool {
        self.topology.is_machine() && self.uniform_node().is_none()
    }

    /// The node of all pages, if they have one in common.
    pub(crate) fn uniform_node(&self) -> Option<NodeId> {
        match (self.topology.only_node(), self.node) {
            (Some(only), _) => Some(only),
            (None, NodePolicy::Bind(node)) => Some(node),
            (None, _) => None,
        }
    }

    /// Where to put a region that was requested for `node`.
    pub(crate) fn place(&self, node: Option<NodeId>) -> Place {
        let several = self.topology.is_machine() && self.topology.only_node().is_none();
        match self.node {
            NodePolicy::Bind(node) if several => Some((Placement::Bind, node)),
            NodePolicy::Local if several => {
                Some((Placement::Preferred, node.unwrap_or_else(|| self.topology.current_node())))
            }
            _ => None,
        }
    }
}

/// Describes an arena's memory, and which requests were not available.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Description {
    /// The arena's name.
    pub name: String,
    /// The requested kind of memory.
    pub asked: Backing,
    /// The kind that the arena uses; of several, the one furthest from the request.
    pub got: Backing,
    /// Why it is not the requested kind.
    pub why: Option<String>,
    /// The requested node policy.
    pub node: NodePolicy,
    /// Ignored requests, each with the reason.
    pub ignored: Vec<String>,
    /// Committed bytes.
    pub committed_bytes: u64,
    /// The bytes up to which the arena may grow.
    pub max_bytes: u64,
    /// Further notes.
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
