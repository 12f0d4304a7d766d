//! The lists in ARCHITECTURE.md: a block for each crate, lowest layer first.
//!
//! A block is fenced as `text`, and its first line is `crates/NAME/src`. Each further line is a `folder/` or
//! the stem of a file; the files of the folder, with commas; what it is. Two or more spaces part the three. A
//! nested folder is `skb/` in the list of its parent, which covers all of it, or has a line of its own,
//! `packet/skb/`. Behind the block, or in it, stand the exceptions: `upwards: a -> b: reason` and `circle: a,
//! b: reason`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;

use super::source::{Crate, is_root, workspace};

#[derive(Default)]
pub struct Plan {
    /// Top-level folders and files, lowest first.
    layers: Vec<String>,
    /// Files, and folders with a slash of which everything is covered.
    listed: BTreeSet<String>,
    pub upwards: Vec<Upwards>,
    pub circles: Vec<BTreeSet<String>>,
}

/// An import upwards that has a reason: of files or folders.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Upwards {
    from: String,
    to: String,
}

impl Upwards {
    pub fn allows(&self, from: &str, to: &str) -> bool {
        let within = |path: &str, whole: &str| {
            path.strip_prefix(whole).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        within(from, &self.from) && within(to, &self.to)
    }
}

impl fmt::Display for Upwards {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{} -> {}", self.from, self.to)
    }
}

fn architecture() -> String {
    fs::read_to_string(workspace().join("ARCHITECTURE.md")).expect("a document of the workspace")
}

/// The crate whose list begins here.
fn named_crate(line: &str) -> Option<&str> {
    line.trim().strip_prefix("crates/").and_then(|rest| rest.strip_suffix("/src"))
}

/// Writes the files of each folder anew, into the line that the folder has.
pub fn write_files(crates: &[Crate]) {
    let (text, plans) = (architecture(), Plan::read());
    let mut current = None;
    let lines = text.lines().map(|line| {
        if let Some(name) = named_crate(line) {
            current = crates.iter().find(|krate| krate.name == name);
        }
        current = current.filter(|_| line.trim() != "```");
        current.map_or(line.to_owned(), |krate| with_files(line, krate, &plans[&krate.name]))
    });
    let now: Vec<String> = lines.collect();
    fs::write(workspace().join("ARCHITECTURE.md"), now.join("\n") + "\n").expect("it is writable");
}

/// The line of a folder, with the files that are there; any other line as it is.
fn with_files(line: &str, krate: &Crate, plan: &Plan) -> String {
    let Some((folder, rest)) = line.split_once("/  ") else { return line.to_owned() };
    let gap = rest.len() - rest.trim_start().len();
    let Some((old, about)) = rest.trim_start().split_once("  ") else { return line.to_owned() };
    let there: BTreeSet<&str> = krate.sources.iter().map(|source| &*source.path).collect();
    let gone = plan.missing(&there);
    let listed = old.split(", ").filter(|file| !gone.contains(&format!("{folder}/{file}")));
    let new = there.iter().filter(|path| !plan.covers(path)).filter_map(|path| path.strip_prefix(folder));
    let new = new.filter_map(|path| path.strip_prefix('/')).filter(|file| !file.contains('/'));
    let files: Vec<&str> = listed.chain(new).collect::<BTreeSet<_>>().into_iter().collect();
    let files = if files.len() == old.split(", ").count() && gone.is_empty() {
        old.to_owned()
    } else {
        files.join(", ")
    };
    let width = old.len() + about.len() - about.trim_start().len();
    format!("{folder}/  {:gap$}{files:width$}  {}", "", about.trim_start())
}

impl Plan {
    /// The plans of all crates that have one.
    pub fn read() -> BTreeMap<String, Self> {
        let text = architecture();
        let mut plans = BTreeMap::new();
        let (mut current, mut in_block) = (String::new(), false);
        let mut before = "";
        for line in text.lines() {
            if let (Some(name), true) = (named_crate(line), before.trim() == "```text") {
                (current, in_block) = (name.to_owned(), true);
                plans.insert(current.clone(), Self::default());
            } else if let Some(plan) = plans.get_mut(&current) {
                in_block &= line.trim() != "```";
                let exception = plan.read_exception(line);
                if in_block && !exception {
                    plan.read_line(line);
                }
            }
            before = line;
        }
        plans
    }

    fn read_line(&mut self, line: &str) {
        let mut columns = line.trim().split("  ").map(str::trim).filter(|column| !column.is_empty());
        let Some(first) = columns.next() else { return };
        let top = first.split('/').next().unwrap_or(first);
        if !is_root(top) && !self.layers.iter().any(|layer| layer == top) {
            self.layers.push(top.to_owned());
        }
        let Some(folder) = first.strip_suffix('/') else {
            self.listed.insert(first.to_owned());
            return;
        };
        // The file beside a folder is the folder's own.
        self.listed.insert(folder.to_owned());
        for file in columns.next().unwrap_or("").split(',').map(str::trim).filter(|file| !file.is_empty()) {
            self.listed.insert(format!("{folder}/{file}"));
        }
    }

    /// Whether a line names an exception.
    fn read_exception(&mut self, line: &str) -> bool {
        let line = line.trim().trim_start_matches(['*', '-', ' ', '`']);
        let clean = |path: &str| path.trim().trim_matches('`').trim_end_matches('/').to_owned();
        if let Some((names, _)) = line.strip_prefix("upwards: ").and_then(|rest| rest.split_once(": ")) {
            let (from, to) = names.split_once("->").unwrap_or_else(|| panic!("ARCHITECTURE.md: {line}"));
            self.upwards.push(Upwards { from: clean(from), to: clean(to) });
            return true;
        }
        if let Some((names, _)) = line.strip_prefix("circle: ").and_then(|rest| rest.split_once(": ")) {
            self.circles.push(names.split(',').map(clean).collect());
            return true;
        }
        false
    }

    /// Whether a file is listed, by itself or with its folder.
    pub fn covers(&self, path: &str) -> bool {
        let mut above = path;
        let folder = std::iter::from_fn(|| {
            above = above.rsplit_once('/')?.0;
            Some(format!("{above}/"))
        });
        let mut folders = folder.collect::<Vec<_>>().into_iter();
        self.listed.contains(path)
            || self.listed.contains(&format!("{path}/"))
            || folders.any(|folder| self.listed.contains(&folder))
    }

    /// What is listed and does not exist.
    pub fn missing(&self, there: &BTreeSet<&str>) -> Vec<String> {
        let exists = |path: &&String| {
            let is_folder = |folder: &str| there.iter().any(|file| file.starts_with(&format!("{folder}/")));
            match path.strip_suffix('/') {
                Some(folder) => is_folder(folder),
                None => there.contains(&***path) || is_folder(path) && !path.contains('.'),
            }
        };
        self.listed.iter().filter(|path| !exists(path)).cloned().collect()
    }

    /// The place of a file's top-level folder; the root stands above all, and so does what is not listed.
    pub fn layer(&self, path: &str) -> usize {
        let top = path.split('/').next().unwrap_or(path);
        self.layers.iter().position(|layer| layer == top).unwrap_or(usize::MAX)
    }
}
