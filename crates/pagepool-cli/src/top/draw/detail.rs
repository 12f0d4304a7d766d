//! The detail view of one pool.

use pagepool::{AGE_EDGES, DeferredStats, HoldersView, Stats};
use pagepool_link::KernelPagePool;
use pagepool_watch::commands::bytes;
use pagepool_watch::{EntryView, PoolView, ProcessView};
use ratatui::text::{Line, Span};

use super::bar::bar;
use super::theme::TopTheme;
use crate::observing::details::{listed, owner_and_age, paragraphs};
use crate::observing::look::has_deferred;
use crate::observing::overview::title;
use crate::observing::selection::is_below;
use crate::report::table::{cut, rate};
use crate::report::{Colour, fold, grouped};
use crate::top::app::{OpenedPool, TopApp};
use crate::top::columns::age;
use crate::top::history::{PastLook, sparkline};
use crate::top::row_key::RowKey;
use crate::top::rows::{PLACES, PagePlace, TopRow};

/// From this width on, meanings stand beside counters.
const WIDE: usize = 110;
/// The column of meanings beside counters.
const BESIDE: usize = 58;
/// The column of meanings below counters.
const BELOW: usize = 6;

const MOST_GROUPS: usize = 12;

/// All lines; the screen shows a part.
pub fn lines(app: &TopApp, columns: usize, theme: TopTheme) -> Vec<Line<'static>> {
    let mut page = DetailPage { columns, theme, lines: Vec::new() };
    let Some(key) = &app.selected else { return page.lines };
    match (app.sampled.kernel_pool(key), &app.opened) {
        (Some(pool), _) => page.kernel(app, key, pool),
        (None, Some(opened)) => page.pool(app, key, opened),
        (None, None) => page.add("This page pool of the kernel is gone."),
    }
    page.lines
}

type NamedFigure<'a> = (&'a str, fn(&PastLook) -> f64);
type Counters = Vec<(&'static str, u64)>;

struct DetailPage {
    columns: usize,
    theme: TopTheme,
    lines: Vec<Line<'static>>,
}

impl DetailPage {
    fn add(&mut self, text: impl AsRef<str>) {
        self.folded(text.as_ref(), None);
    }

    fn folded(&mut self, text: &str, colour: Option<Colour>) {
        let style = self.theme.judged(colour);
        self.lines.extend(fold(text, self.columns, 4).into_iter().map(|line| Line::styled(line, style)));
    }

    fn heading(&mut self, text: impl Into<String>) {
        self.lines.push(Line::default());
        self.lines.push(Line::styled(text.into(), self.theme.heading()));
    }

    fn pool(&mut self, app: &TopApp, key: &RowKey, opened: &OpenedPool) {
        let OpenedPool { process, pool, moved } = opened;
        let look = &app.sampled.now;
        let title = title(look, process);
        self.folded(&title.text, title.colour);
        if !app.is_opened_there() {
            self.folded("ENDED: these are its last figures.", Some(Colour::Bad));
        }
        self.add(owner_and_age(look, pool).join("; "));
        self.history(&app.history.last(key, self.columns), "buffers out");
        if let Some(row) = app.rows.iter().find(|row| row.key == *key) {
            self.places(row, pool);
        }
        self.holders(pool.holders.as_ref());
        self.heading("Counters: total, per second, and what they mean");
        let moved = moved.as_ref().map(|moved| (moved.stats.fields(), moved.over.as_secs_f64()));
        self.counters(pool.stats.fields(), moved, Stats::DOCS);
        if has_deferred(&pool.deferred) {
            self.heading("Deferred queue");
            self.counters(pool.deferred.fields(), None, DeferredStats::DOCS);
        }
        self.heading("Parameters");
        self.add(listed(&pool.params));
        self.below(app, process, pool);
    }

    fn kernel(&mut self, app: &TopApp, key: &RowKey, pool: &KernelPagePool) {
        let interface = app.sampled.kernel.as_ref().and_then(|kernel| kernel.interface(pool));
        let interface = interface.unwrap_or("an interface that was removed");
        let napi = pool.napi.map_or(String::new(), |napi| format!(", napi {napi}"));
        let (pages, memory) = (grouped(pool.inflight), bytes(pool.inflight_bytes));
        self.add(format!(
            "page pool {} of the kernel, of {interface}{napi}: {pages} pages, {memory}",
            pool.id
        ));
        if let Some(time) = pool.detached_for() {
            self.add(format!(
                "Its driver released it {} ago, and waits for these pages (detach-time).",
                age(time)
            ));
        }
        self.history(&app.history.last(key, self.columns), "pages");
        let Some(stats) = pool.stats else {
            return self.add("This kernel has no counters: it was built without CONFIG_PAGE_POOL_STATS.");
        };
        self.heading("Counters: total, per second, and what they mean in a pool of pagepool");
        let moved = app.sampled.kernel_moved(pool);
        let moved = moved.map(|(moved, over)| (moved.fields(), over.as_secs_f64()));
        let docs = stats.fields().iter().map(|(name, _)| doc_of(name)).collect::<Vec<_>>();
        self.counters(stats.fields(), moved, &docs);
    }

    /// A sparkline for each figure.
    fn history(&mut self, looks: &[PastLook], out: &str) {
        self.heading("The last looks, the latest on the right");
        let figures: [NamedFigure<'_>; 5] = [
            ("allocated/s", |(rates, _)| rates.allocated),
            ("returned/s", |(rates, _)| rates.returned),
            ("slow/s", |(rates, _)| rates.slow),
            ("starved/s", |(rates, _)| rates.starved.unwrap_or(0.0)),
            (out, |(_, out)| *out as f64),
        ];
        for (name, figure) in figures {
            let figures: Vec<_> = looks.iter().map(figure).collect();
            let now = rate(figures.last().copied(), 9);
            let most = rate(figures.iter().copied().reduce(f64::max), 9);
            let head = format!("{name:<12}{now:>9}  most {most:>9}  ");
            let room = self.columns.saturating_sub(head.chars().count());
            let shown = &figures[figures.len().saturating_sub(room)..];
            let bars = format!("{:>room$}", sparkline(shown));
            self.lines.push(Line::from(vec![
                Span::raw(head),
                Span::styled(bars, self.theme.judged(Some(Colour::Good))),
            ]));
        }
    }

    /// A line for each place, and the bar.
    fn places(&mut self, row: &TopRow, pool: &PoolView) {
        let (pages, size) = (grouped(row.pages), grouped(pool.page_bytes));
        self.heading(format!("Where its {pages} pages of {size} bytes are ({})", bytes(row.bytes)));
        let total: u64 = row.places.iter().fold(0, |sum, &pages| sum.saturating_add(pages));
        for (PagePlace { letter, name, about, .. }, pages) in PLACES.iter().zip(row.places) {
            let percent = if total == 0 { 0.0 } else { pages as f64 * 100.0 / total as f64 };
            let text = format!("{letter} {name:<9}{:>11} {percent:>5.1} %  ", grouped(pages));
            let room = self.columns.saturating_sub(text.chars().count());
            let about = Span::styled(cut(about, room), self.theme.quiet());
            self.lines.push(Line::from(vec![Span::raw(text), about]));
        }
        self.lines.push(Line::from(bar(&row.places, self.columns, self.theme)));
    }

    fn holders(&mut self, holders: Option<&HoldersView>) {
        let Some(holders) = holders else {
            self.heading("Who holds what: not recorded");
            return self.add("Set `holders` in the pool's parameters (PoolParams::holders) to see it here.");
        };
        self.heading(format!("Who holds what: {} pages", grouped(holders.held)));
        let younger = AGE_EDGES.iter().map(|&edge| format!("below {}", age(edge)));
        let older = format!("older than {}", age(AGE_EDGES[AGE_EDGES.len() - 1]));
        let ages = younger.chain([older]).zip(holders.ages).filter(|(_, pages)| *pages > 0);
        let ages: Vec<_> = ages.map(|(age, pages)| format!("{age}: {}", grouped(pages))).collect();
        if !ages.is_empty() {
            self.add(format!("ages: {}", ages.join(", ")));
        }
        holders.groups.iter().take(MOST_GROUPS).for_each(|group| self.add(group.to_string()));
        let more = holders.more_groups + holders.groups.len().saturating_sub(MOST_GROUPS) as u64;
        if more > 0 {
            self.add(format!("and {} more groups: `pagepool show` lists them", grouped(more)));
        }
    }

    /// Each counter with its rate and meaning; if one rises and that is not normal, also its remedy. `moved`:
    /// what the counters grew by in how many seconds.
    fn counters(&mut self, fields: Counters, moved: Option<(Counters, f64)>, docs: &[&str]) {
        for (at, ((name, value), doc)) in fields.into_iter().zip(docs).enumerate() {
            let moved = moved.as_ref().and_then(|(all, seconds)| Some((all.get(at)?.1, *seconds)));
            let each_second = moved.filter(|(_, seconds)| *seconds > 0.0);
            let each_second = each_second.map(|(moved, seconds)| moved as f64 / seconds);
            let head = format!("{name:<24} {:>18} {:>9}/s", grouped(value), rate(each_second, 9));
            let doc = paragraphs(doc).collect::<Vec<_>>().join(" ");
            let (what, remedy) = doc.split_once("If it rises: ").unwrap_or((&doc, ""));
            let is_rising = moved.is_some_and(|(moved, _)| moved > 0) && !remedy.starts_with("normal");
            let remedy = is_rising.then(|| format!("It rises: {remedy}"));
            self.counter(head, what.trim_end(), remedy.as_deref());
        }
    }

    fn counter(&mut self, head: String, what: &str, remedy: Option<&str>) {
        let indent = if self.columns >= WIDE { BESIDE } else { BELOW };
        let room = self.columns.saturating_sub(indent).max(20);
        let colour = self.theme.judged(remedy.map(|_| Colour::Caution));
        let texts = [(Some(what), self.theme.quiet()), (remedy, colour)];
        let mut meaning: Vec<_> = texts
            .into_iter()
            .filter_map(|(text, style)| Some((text?, style)))
            .flat_map(|(text, style)| fold(text, room, 0).into_iter().map(move |line| (line, style)))
            .collect();
        let mut first = vec![Span::styled(head.clone(), colour)];
        if self.columns >= WIDE && !meaning.is_empty() {
            let (text, style) = meaning.remove(0);
            first.push(Span::raw(" ".repeat(BESIDE.saturating_sub(head.chars().count()))));
            first.push(Span::styled(text, style));
        }
        self.lines.push(Line::from(first));
        for (text, style) in meaning {
            self.lines.push(Line::from(vec![Span::raw(" ".repeat(indent)), Span::styled(text, style)]));
        }
    }

    /// The sockets, NICs and ports of the pool, and the stacks of its process.
    fn below(&mut self, app: &TopApp, process: &ProcessView, pool: &PoolView) {
        let before = app.sampled.before.as_ref().and_then(|before| before.process(process));
        for entry in process.entries.iter().filter(|entry| is_below(entry, pool)) {
            self.heading(format!("{} {}", entry.kind, entry.name));
            if !entry.params.is_empty() {
                self.add(listed(&entry.params));
            }
            let same = |of: &&EntryView| (&of.kind, of.id) == (&entry.kind, entry.id);
            let earlier = before.and_then(|before| before.entries.iter().find(same));
            for (name, value) in entry.counters.iter().filter(|(_, value)| *value > 0) {
                let was = earlier.and_then(|entry| entry.counters.iter().find(|(of, _)| of == name));
                let more = was.and_then(|(_, was)| value.checked_sub(*was)).filter(|more| *more > 0);
                let more = more.map_or(String::new(), |more| format!("  +{}", grouped(more)));
                self.add(format!("{name:<24} {:>18}{more}", grouped(*value)));
            }
        }
    }
}

/// The documentation of pagepool's counter of this name.
fn doc_of(name: &str) -> &'static str {
    let at = Stats::NAMES.iter().position(|of| *of == name);
    at.map_or("", |at| Stats::DOCS[at])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(write: impl FnOnce(&mut DetailPage)) -> Vec<String> {
        let theme = TopTheme { has_colours: false };
        let mut page = DetailPage { columns: 60, theme, lines: Vec::new() };
        write(&mut page);
        let spans = |line: &Line<'_>| line.spans.iter().map(|span| &*span.content).collect();
        page.lines.iter().map(spans).collect()
    }

    #[test]
    fn holders_show_ages_and_their_absence_shows_how_to_record_them() {
        let without = text(|page| page.holders(None)).join(" ");
        assert!(without.contains("not recorded") && without.contains("PoolParams::holders"), "{without}");
        let mut holders = HoldersView::default();
        (holders.held, holders.ages[2], holders.ages[7]) = (1_005, 5, 1_000);
        let lines = text(|page| page.holders(Some(&holders)));
        assert_eq!(lines, ["", "Who holds what: 1,005 pages", "ages: below 1s: 5, older than 60m00s: 1,000"]);
    }

    #[test]
    fn a_counter_that_rises_without_need_says_what_to_do() {
        const DOCS: &str = "Times of it. Others, too. If it rises: raise `it`.";
        let lines = |moved, doc| {
            text(|page| page.counters(vec![("it", 20)], Some((vec![("it", moved)], 2.0)), &[doc]))
        };
        let head = format!("{:<24} {:>18} {:>9}/s", "it", 20, 5);
        assert_eq!(
            lines(10, DOCS),
            [&*head, "      Times of it. Others, too.", "      It rises: raise `it`."]
        );
        assert_eq!(lines(0, DOCS).len(), 2, "it does not");
        assert_eq!(lines(10, "Times of it. If it rises: normal, if sent.").len(), 2, "it is normal");
    }
}
