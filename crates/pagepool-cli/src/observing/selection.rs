//! The processes or pools that a user names, and a view of them.

use clap::Args;
use pagepool_watch::{EntryView, Observation, PoolView, ProcessView, RunFolder, shown_path};

use super::json;
use super::look::{folder, nobody_publishes};
use super::options::{Looks, Shown};
use crate::report::LiveLine;

#[derive(Args, Clone, Debug)]
pub struct Selection {
    /// The name or PID of a process, or the name of a pool [default: all]
    #[arg(value_name = "PROCESS|POOL")]
    of: Option<String>,
}

/// Makes the lines of a look, for the selected processes.
pub type View = Box<dyn Fn(Looks<'_, Observation>, &[ProcessView]) -> Vec<LiveLine>>;

/// The selected processes.
pub struct Published {
    folder: RunFolder,
    of: Selection,
    view: View,
}

impl Published {
    pub fn new(of: &Selection, view: View) -> Result<Self, String> {
        Ok(Self { folder: folder()?, of: of.clone(), view })
    }
}

impl Shown for Published {
    type Look = Observation;
    const INDENT: usize = 4;

    fn look(&mut self) -> Result<Observation, String> {
        Ok(Observation::at(&self.folder))
    }

    fn lines(&self, looks: Looks<'_, Observation>) -> Vec<LiveLine> {
        match &*self.of.select(looks.now) {
            [] => vec![LiveLine::plain(self.of.not_found(looks.now))],
            selected => (self.view)(looks, selected),
        }
    }

    fn json(&self, look: &Observation) -> serde_json::Value {
        json::look(look, &self.of.select(look))
    }

    /// An error if nothing was found.
    fn check(&self, look: &Observation) -> Result<(), String> {
        match self.of.of.is_some() && self.of.select(look).is_empty() {
            true => Err(self.of.not_found(look)),
            false => Ok(()),
        }
    }

    fn errors(look: &Observation) -> &[String] {
        &look.errors
    }
}

impl Selection {
    /// The processes of that name or PID with all their pools. If there are none: the pools of that name, and
    /// what belongs to them.
    pub fn select(&self, look: &Observation) -> Vec<ProcessView> {
        let Some(of) = &self.of else { return look.processes.clone() };
        let is_it = |process: &&ProcessView| process.name == *of || process.pid.to_string() == *of;
        let processes: Vec<_> = look.processes.iter().filter(is_it).cloned().collect();
        if !processes.is_empty() {
            return processes;
        }
        look.processes.iter().cloned().filter_map(|process| with_pools(process, of)).collect()
    }

    /// The message if nothing was found.
    pub fn not_found(&self, look: &Observation) -> String {
        let folder = shown_path(&look.folder);
        let Some(of) = &self.of else { return nobody_publishes(look) };
        let nothing =
            format!("no process or pool {of} is published in {folder}: `pagepool list` shows those that are");
        [vec![nothing], look.errors.clone()].concat().join("; ")
    }
}

/// A process with only the pools of that name; `None` if it has none.
fn with_pools(mut process: ProcessView, name: &str) -> Option<ProcessView> {
    process.pools.retain(|pool| pool.name == name);
    let pools = &process.pools;
    let belongs = |entry: &EntryView, pool: &PoolView| match &*entry.kind {
        "arena" => entry.id == pool.area_id,
        "domain" => entry.parent == pool.area_id,
        _ => is_below(entry, pool),
    };
    process.entries.retain(|entry| pools.iter().any(|pool| belongs(entry, pool)));
    (!process.pools.is_empty()).then_some(process)
}

/// Whether an entry is shown with a pool. A stack belongs to no pool: it gets packets of all of them.
pub fn is_below(entry: &EntryView, pool: &PoolView) -> bool {
    entry.kind == "stack" || entry.pool_id() == Some(pool.id.into())
}
