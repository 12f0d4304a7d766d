//! The versions of the exported functions, for the linker: `pagepool.map`.
//!
//! What  a node for each release that added functions. The first is that of the soname, `PAGEPOOL_0`; a later
//!       one has the version of its release behind it, `PAGEPOOL_0_0.2.0`, and the node before it as its
//!       parent. So the dynamic linker refuses to start a program that needs a function which an older
//!       library lacks.
//! How   the script is its own record. A function stays in its node; one that no node has gets that of the
//!       version in Cargo.toml. The script of another soname number begins anew.

use std::collections::BTreeSet;

/// Which library a script is for.
#[derive(Clone, Copy)]
pub struct Release<'a> {
    /// The number of its soname.
    pub soname_number: &'a str,
    /// The version of the first release with that soname.
    pub since: &'a str,
    /// Its own version.
    pub version: &'a str,
}

/// This release.
pub const NOW: Release<'_> = Release {
    soname_number: env!("PAGEPOOL_SONAME_NUMBER"),
    since: env!("PAGEPOOL_SONAME_SINCE"),
    version: env!("CARGO_PKG_VERSION"),
};

impl Release<'_> {
    fn first_node(&self) -> String {
        format!("PAGEPOOL_{}", self.soname_number)
    }

    /// The node of what this release adds.
    fn node(&self) -> String {
        let first = self.first_node();
        if self.version == self.since { first } else { format!("{first}_{}", self.version) }
    }
}

struct Node {
    name: String,
    functions: Vec<String>,
}

/// The nodes of a script, oldest first.
fn nodes(script: &str) -> Vec<Node> {
    let mut nodes: Vec<Node> = Vec::new();
    for line in script.lines() {
        match (line.split_once(" {"), nodes.last_mut()) {
            (Some((name, _)), _) => nodes.push(Node { name: name.to_owned(), functions: Vec::new() }),
            (None, Some(node)) if line.trim().starts_with("pagepool_") => {
                node.functions.push(line.trim().trim_end_matches(';').to_owned());
            }
            _ => {}
        }
    }
    nodes
}

/// The functions of a script with their nodes, as `nm -D` writes them.
pub fn versioned(script: &str) -> Vec<String> {
    let functions_of = |node: Node| {
        let Node { name, functions } = node;
        functions.into_iter().map(move |function| format!("{function}@@{name}"))
    };
    let mut all: Vec<String> = nodes(script).into_iter().flat_map(functions_of).collect();
    all.sort_unstable();
    all
}

/// The script of a release that exports `functions`, whose script was `before` until now.
pub fn version_script(before: &str, functions: &BTreeSet<&str>, release: Release<'_>) -> String {
    let mut nodes = nodes(before);
    if nodes.first().is_some_and(|node| node.name != release.first_node()) {
        nodes.clear();
    }
    let mut new = functions.clone();
    for node in &mut nodes {
        node.functions.retain(|function| new.remove(function.as_str()));
    }
    let name = release.node();
    if !new.is_empty() && nodes.last().is_none_or(|node| node.name != name) {
        nodes.push(Node { name, functions: Vec::new() });
    }
    if let Some(newest) = nodes.last_mut() {
        newest.functions.extend(new.into_iter().map(str::to_owned));
        newest.functions.sort_unstable();
    }
    text(&nodes)
}

fn text(nodes: &[Node]) -> String {
    let mut text = String::new();
    let mut parent = String::new();
    for Node { name, functions } in nodes {
        let functions: String = functions.iter().map(|function| format!("        {function};\n")).collect();
        let local = if parent.is_empty() { "    local:\n        *;\n" } else { "" };
        text += &format!("{name} {{\n    global:\n{functions}{local}}}{parent};\n");
        parent = format!(" {name}");
    }
    text
}
