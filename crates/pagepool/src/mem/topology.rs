//! NUMA nodes: which exist, which one a page is on, which one a thread runs on.
//!
//! What   a [`Topology`] is the machine's, or simulated by a test. On a machine of one node, only a
//!        simulated one can test what a pool does with a page of another node.
//! Who    any thread may call anything.
//! Cost   [`Topology::current_node`] is free on a machine of one node, else at most one system call. It is
//!        called once per refill, not per page.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::mem::page::{NodeId, PageIdx};
use crate::sys::call::{self, read_file};

/// The NUMA nodes of the machine, or of a simulated one. Cheap to clone; clones share the simulated current
/// node.
///
/// ```
/// use pagepool::{NodeId, Topology};
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU8, Ordering};
///
/// let here = Arc::new(AtomicU8::new(0));
/// let two = Topology::pretend_halves(2).with_current_node(here.clone());
/// assert_eq!(two.nodes(), [NodeId(0), NodeId(1)]);
/// here.store(1, Ordering::Relaxed); // the thread "migrates"
/// assert_eq!(two.current_node(), NodeId(1));
/// ```
#[derive(Clone, Debug)]
pub struct Topology {
    source: NodeSource,
    current: Option<Arc<AtomicU8>>,
}

#[derive(Clone)]
enum NodeSource {
    /// The nodes that are online, and their distances if the kernel says.
    Machine { nodes: Arc<[NodeId]>, distances: Arc<[Vec<u32>]> },
    /// The kernel has no NUMA calls; why.
    NoCalls(Arc<str>),
    /// Nodes `0..nodes`. A page's node follows from its number and the number of pages.
    Pretend { nodes: u8, node_of: Arc<dyn Fn(PageIdx, u32) -> NodeId + Send + Sync> },
}

impl fmt::Debug for NodeSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Machine { nodes, .. } => f.debug_tuple("Machine").field(nodes).finish(),
            Self::NoCalls(why) => f.debug_tuple("NoCalls").field(why).finish(),
            Self::Pretend { nodes, .. } => {
                f.debug_struct("Pretend").field("nodes", nodes).finish_non_exhaustive()
            }
        }
    }
}

impl Default for Topology {
    fn default() -> Self {
        Self::detect()
    }
}

impl Topology {
    /// Detects the machine's nodes, from `/sys/devices/system/node/online`. A kernel without NUMA calls
    /// counts as one node, and requests for a node are ignored: see [`nodes_ignored`](Self::nodes_ignored).
    pub fn detect() -> Self {
        let online = read_file("/sys/devices/system/node/online");
        Self::from_probe(crate::sys::memory::probe_numa_calls(), online, |node| {
            let file = format!("/sys/devices/system/node/node{}/distance", node.0);
            read_file(&file).unwrap_or_default()
        })
    }

    /// Makes a topology of the system's answers. `distance` returns a node's distances to all nodes online,
    /// in their order.
    pub(crate) fn from_probe(
        calls: io::Result<()>,
        online: io::Result<String>,
        distance: impl Fn(NodeId) -> String,
    ) -> Self {
        if let Err(error) = calls {
            let why = format!("no NUMA calls ({error}): nodes are ignored");
            return Self { source: NodeSource::NoCalls(why.into()), current: None };
        }
        let mut nodes = online.map(|text| parse_list(&text)).unwrap_or_default();
        if nodes.is_empty() {
            nodes.push(NodeId(0));
        }
        let numbers = |text: String| text.split_whitespace().flat_map(str::parse).collect();
        let distances = nodes.iter().map(|&node| numbers(distance(node))).collect();
        Self { source: NodeSource::Machine { nodes: nodes.into(), distances }, current: None }
    }

    /// A machine whose kernel has no NUMA calls (`ENOSYS`), for tests.
    #[doc(hidden)]
    pub fn without_numa_calls() -> Self {
        Self::from_probe(Err(io::ErrorKind::Unsupported.into()), Ok(String::new()), |_| String::new())
    }

    /// A simulated machine with nodes `0..nodes` (at least one), on which `node_of_page` gives a page's
    /// node. A page of a higher order exists only if all its base pages are on one node.
    pub fn pretend(nodes: u8, node_of_page: impl Fn(PageIdx) -> NodeId + Send + Sync + 'static) -> Self {
        Self::pretend_sized(nodes, move |page, _| node_of_page(page))
    }

    /// A simulated machine on which an arena is `nodes` equal stretches, the first on node 0 and so on.
    pub fn pretend_halves(nodes: u8) -> Self {
        Self::pretend_sized(nodes, move |page, pages| {
            let node = u64::from(page.0) * u64::from(nodes) / u64::from(pages.max(1));
            NodeId(node.min(u64::from(nodes.saturating_sub(1))) as u8)
        })
    }

    fn pretend_sized(nodes: u8, node_of: impl Fn(PageIdx, u32) -> NodeId + Send + Sync + 'static) -> Self {
        Self {
            source: NodeSource::Pretend { nodes: nodes.max(1), node_of: Arc::new(node_of) },
            current: None,
        }
    }

    /// Simulates threads too: every thread runs on the node that `here` holds.
    #[must_use]
    pub fn with_current_node(mut self, here: Arc<AtomicU8>) -> Self {
        self.current = Some(here);
        self
    }

    /// The nodes in ascending order; never empty.
    pub fn nodes(&self) -> Vec<NodeId> {
        match &self.source {
            NodeSource::Machine { nodes, .. } => nodes.to_vec(),
            NodeSource::NoCalls(_) => vec![NodeId(0)],
            NodeSource::Pretend { nodes, .. } => (0..*nodes).map(NodeId).collect(),
        }
    }

    /// The node that the calling thread runs on.
    pub fn current_node(&self) -> NodeId {
        if let Some(here) = &self.current {
            return NodeId(here.load(Ordering::Relaxed));
        }
        match &self.source {
            NodeSource::Machine { nodes, .. } if nodes.len() > 1 => NodeId(call::current_node()),
            NodeSource::Machine { nodes, .. } => nodes[0],
            NodeSource::NoCalls(_) | NodeSource::Pretend { .. } => NodeId(0),
        }
    }

    /// Why requests for a node are ignored; `None` if they are not.
    pub fn nodes_ignored(&self) -> Option<&str> {
        match &self.source {
            NodeSource::NoCalls(why) => Some(why),
            NodeSource::Machine { .. } | NodeSource::Pretend { .. } => None,
        }
    }

    /// The other nodes, nearest first; of equally near ones, the lower first. In a simulated machine the
    /// nodes are in a row.
    pub(crate) fn others_by_distance(&self, node: NodeId) -> Vec<NodeId> {
        let nodes = self.nodes();
        let place = |of: NodeId| nodes.iter().position(|&known| known == of);
        let far = |other: NodeId| match &self.source {
            NodeSource::Machine { distances, .. } => {
                place(node).zip(place(other)).and_then(|(from, to)| distances.get(from)?.get(to).copied())
            }
            NodeSource::NoCalls(_) => None,
            NodeSource::Pretend { .. } => Some(u32::from(node.0.abs_diff(other.0))),
        };
        let mut others: Vec<NodeId> = nodes.iter().copied().filter(|&other| other != node).collect();
        others.sort_by_key(|&other| far(other).unwrap_or(u32::MAX));
        others
    }

    /// Whether these are the machine's nodes: memory can be bound to them, and the kernel knows a page's
    /// node.
    pub(crate) fn is_machine(&self) -> bool {
        matches!(self.source, NodeSource::Machine { .. })
    }

    /// The node, if there is only one.
    pub(crate) fn only_node(&self) -> Option<NodeId> {
        match self.nodes()[..] {
            [node] => Some(node),
            _ => None,
        }
    }

    /// The simulated node of each page in an area of `pages` pages; `None` if nodes are not simulated.
    pub(crate) fn pretended(&self, pages: u32) -> Option<impl Fn(PageIdx) -> NodeId> {
        let NodeSource::Pretend { nodes, node_of } = &self.source else { return None };
        Some(move |page| NodeId(node_of(page, pages).0.min(nodes - 1)))
    }
}

/// Parses a list in the kernel's format, "0-1,3"; skips what does not fit a [`NodeId`].
fn parse_list(text: &str) -> Vec<NodeId> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse::<u8>().ok()?..=last.parse::<u8>().ok()?)
    };
    text.trim().split(',').filter_map(range).flatten().map(NodeId).collect()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn unknown(_: NodeId) -> String {
        String::new()
    }

    #[test]
    fn the_nearest_of_the_other_nodes_comes_first() {
        let others =
            |t: &Topology, node| t.others_by_distance(NodeId(node)).iter().map(|n| n.0).collect::<Vec<_>>();
        let far = |node: NodeId| ["10 32 21\n", "32 10 16\n", "21 16 10\n"][node.0 as usize / 2].to_owned();
        let machine = Topology::from_probe(Ok(()), Ok("0,2,4\n".into()), far);
        assert_eq!((others(&machine, 0), others(&machine, 2)), (vec![4, 2], vec![4, 0]));
        assert_eq!(others(&machine, 7), [0, 2, 4], "a node that is not there is as far from all");
        let silent = Topology::from_probe(Ok(()), Ok("0-2\n".into()), unknown);
        assert_eq!(others(&silent, 2), [0, 1]);
        assert_eq!(others(&Topology::pretend_halves(4), 2), [1, 3, 0]);
    }

    #[test]
    fn lists_as_the_kernel_writes_them() {
        let nodes = |text| parse_list(text).into_iter().map(|n| n.0).collect::<Vec<_>>();
        assert_eq!(nodes("0\n"), [0]);
        assert_eq!(nodes("0-2,5\n"), [0, 1, 2, 5]);
        assert_eq!(nodes(""), []);
        assert_eq!(nodes("0,999,x-"), [0]);
    }

    #[test]
    fn a_kernel_without_numa_calls_ignores_nodes_and_says_so() {
        let none = Topology::from_probe(Err(io::Error::from_raw_os_error(38)), Ok("0-3".into()), unknown);
        assert_eq!(none.nodes(), [NodeId(0)]);
        assert!(none.nodes_ignored().unwrap().contains("nodes are ignored"), "{none:?}");
        assert_eq!(none.current_node(), NodeId(0));
    }

    #[test]
    fn a_machine_that_does_not_list_its_nodes_has_one() {
        let one = Topology::from_probe(Ok(()), Err(io::ErrorKind::NotFound.into()), unknown);
        assert_eq!(one.only_node(), Some(NodeId(0)));
        let three = Topology::from_probe(Ok(()), Ok("0,2-3\n".into()), unknown);
        assert_eq!(three.nodes(), [NodeId(0), NodeId(2), NodeId(3)]);
        assert_eq!(three.only_node(), None);
    }

    #[test]
    fn stretches_and_interleaving() {
        let node = |t: &Topology, page| t.pretended(64).unwrap()(PageIdx(page)).0;
        let halves = Topology::pretend_halves(2);
        assert_eq!([0, 31, 32, 63].map(|p| node(&halves, p)), [0, 0, 1, 1]);
        let wild = Topology::pretend(2, |_| NodeId(9));
        assert_eq!(node(&wild, 0), 1, "a node that does not exist becomes the last one");
    }
}
