//! The output of `show`: everything known of a process or pools.

use pagepool::{DeferredStats, Stats};
use pagepool_watch::commands::recycled_of;
use pagepool_watch::{EntryView, Observation, PoolMoved, PoolView, ProcessView, shown_path};

use super::look::{ago, has_deferred, percent, places};
use super::options::Looks;
use super::overview::title;
use crate::report::{LiveLine, grouped, holders};

/// The indent of the meaning of a counter.
const MEANING: &str = "      ";

/// Makes the lines, with what each counter means if `explain` is set.
pub fn lines(explain: bool, looks: Looks<'_, Observation>, selected: &[ProcessView]) -> Vec<LiveLine> {
    let Looks { now: look, before, terminal } = looks;
    let columns = terminal.map(|terminal| terminal.columns); // tags are whole if there is room
    let mut details = Details { explain, look, before, lines: Vec::new() };
    for process in selected {
        details.lines.push(title(look, process));
        details.add(format!("  file {}", shown_path(&process.file)));
        for pool in &process.pools {
            details.pool(process, pool);
            let holders = pool.holders.iter().flat_map(|view| holders::lines(view, "    ", columns));
            details.lines.extend(holders.map(LiveLine::plain));
        }
        process.entries.iter().for_each(|entry| details.entry(entry));
    }
    details.lines
}

struct Details<'a> {
    explain: bool,
    look: &'a Observation,
    before: Option<&'a Observation>,
    lines: Vec<LiveLine>,
}

impl Details<'_> {
    fn add(&mut self, text: String) {
        self.lines.push(LiveLine::plain(text));
    }

    fn pool(&mut self, process: &ProcessView, pool: &PoolView) {
        let [owner, made] = owner_and_age(self.look, pool);
        self.add(format!("  {owner}"));
        self.add(format!("    {made}; memory id {}, area {}", pool.mem_id, pool.area_id));
        self.add(format!("    parameters: {}", listed(&pool.params)));
        let (total, size) = (grouped(pool.inflight.total.max(0) as u64), grouped(pool.page_bytes));
        self.add(format!("    {total} pages of {size} bytes: {}", places(&pool.inflight)));
        if let Some(waiting) = process.waiting_for_packets(pool) {
            self.add(format!("    of those out, {} wait for packets", grouped(waiting)));
        }
        let moved = self.before.and_then(|before| PoolMoved::between(before, self.look, process, pool));
        let recycled =
            || Some(format!("    recycled {} % since it was made", percent(recycled_of(&[pool.stats])?)));
        moved.as_ref().map(rates).or_else(recycled).into_iter().for_each(|text| self.add(text));
        self.counters(pool.stats.fields(), Stats::DOCS);
        self.add(format!("    frag_waste {}", grouped(pool.frag_waste)));
        if has_deferred(&pool.deferred) {
            self.add("    deferred queue:".into());
            self.counters(pool.deferred.fields(), DeferredStats::DOCS);
        }
    }

    /// Adds a line for each counter, and its meaning if requested.
    fn counters(&mut self, fields: Vec<(&'static str, u64)>, docs: &[&str]) {
        for ((name, value), meaning) in fields.into_iter().zip(docs) {
            self.add(counter(name, value));
            let meaning = if self.explain { *meaning } else { "" };
            paragraphs(meaning).for_each(|text| self.add(format!("{MEANING}{text}")));
        }
    }

    fn entry(&mut self, entry: &EntryView) {
        let EntryView { kind, id, name, .. } = entry;
        let below = match entry.parent {
            0 => String::new(),
            parent => format!(", of {parent}"),
        };
        self.add(format!("  {kind} {name} (id {id}{below})"));
        if !entry.params.is_empty() {
            self.add(format!("    parameters: {}", listed(&entry.params)));
        }
        let some = entry.counters.iter().filter(|(_, value)| *value > 0);
        some.for_each(|(name, value)| self.add(counter(name, *value)));
    }
}

/// A pool with its owner, and how long it exists.
pub fn owner_and_age(look: &Observation, pool: &PoolView) -> [String; 2] {
    let thread = pool.thread.as_ref().map_or("bound to an unknown thread, or to none".into(), |thread| {
        format!("bound to thread {} (tid {})", thread.name, thread.tid)
    });
    let interface = pool.ifindex.map_or(String::new(), |index| format!(", interface {index}"));
    let ended = pool.detached.map(|at| format!("; ended {} ago, with buffers out", ago(look, at)));
    let (made, ended) = (ago(look, pool.created), ended.unwrap_or_default());
    [format!("pool {} (id {}): {thread}{interface}", pool.name, pool.id), format!("made {made} ago{ended}")]
}

fn counter(name: &str, value: u64) -> String {
    format!("    {name:<28} {:>20}", grouped(value))
}

/// What a pool did since the previous look.
fn rates(moved: &PoolMoved) -> String {
    let rate = |count| grouped(moved.per_second(count) as u64);
    let (allocated, returned) = (rate(moved.allocations()), rate(moved.returned()));
    let (slow, starved) = (rate(moved.slow()), rate(moved.starved()));
    let recycled = moved.recycled().map_or("-".into(), |of| percent(of) + " %");
    format!(
        "    a second: {allocated} allocated, {returned} returned; recycled {recycled}, slow {slow}, starved \
         {starved}"
    )
}

/// The paragraphs of a documentation comment, each as one line.
pub fn paragraphs(docs: &str) -> impl Iterator<Item = String> + '_ {
    let paragraphs = docs.split("\n\n").map(|text| text.split_whitespace().collect::<Vec<_>>().join(" "));
    paragraphs.filter(|text| !text.is_empty())
}

pub fn listed(params: &[(String, String)]) -> String {
    params.iter().map(|(key, value)| format!("{key} {value}")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_meaning_is_a_line_a_paragraph() {
        let docs = " Pages that\n joined.\n\n If it rises: normal.";
        assert_eq!(paragraphs(docs).collect::<Vec<_>>(), ["Pages that joined.", "If it rises: normal."]);
    }
}
