//! The table: a line for each pool, below the totals of all pools.

use pagepool_watch::commands::bytes;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::bar::bar;
use super::theme::TopTheme;
use crate::observing::look::{is_alive, nobody_publishes};
use crate::report::table::{cut, rate};
use crate::report::{Colour, grouped};
use crate::top::app::{Prompt, TopApp};
use crate::top::columns::{COLUMNS, FittedColumn, fit};
use crate::top::rows::{PLACES, RowRates, TopRow};

const BAR_HEAD: &str = "WHERE";

/// Draws all but the last line.
pub fn draw(frame: &mut Frame<'_>, area: Rect, app: &mut TopApp, theme: TopTheme) {
    let mut lines = summary(app, area, theme);
    let room = usize::from(area.height).saturating_sub(lines.len());
    match &app.prompt {
        Some(Prompt::Sort(at)) => lines.extend(sort_menu(*at, room, theme)),
        _ => lines.extend(rows(app, area.width.into(), room, theme)),
    }
    for (line, at) in lines.iter().zip(area.y..area.bottom()) {
        frame.buffer_mut().set_line(area.x, at, line, area.width);
    }
}

/// The totals of live processes, as many lines as fit. The kernel has freed the memory of dead ones.
fn summary(app: &TopApp, area: Rect, theme: TopTheme) -> Vec<Line<'static>> {
    let all: Vec<_> = app.rows.iter().filter(|row| row.pid.is_some() && row.alive).collect();
    let columns = area.width.into();
    let lines =
        [totals(app, columns, theme), rates(&all, theme), pages(&all, columns, theme), legend(&all, theme)];
    let count = match area.height {
        0..8 => 0,
        8..14 => 1,
        14..18 => 3,
        _ => 5,
    };
    lines.into_iter().chain([Line::default()]).take(count).collect()
}

fn totals(app: &TopApp, columns: usize, theme: TopTheme) -> Line<'static> {
    let processes = &app.sampled.now.processes;
    let dead = processes.iter().filter(|process| !is_alive(process)).count();
    let mut spans = vec![Span::styled("pagepool top", theme.heading())];
    let mut add = |text: String, colour| {
        spans.push(Span::raw("  "));
        spans.push(Span::styled(text, theme.judged(colour)));
    };
    add(counted(processes.len(), "process", "processes"), None);
    if dead > 0 {
        add(format!("{dead} DEAD"), Some(Colour::Bad));
    }
    let ours = app.rows.iter().filter(|row| row.pid.is_some()).count();
    add(counted(ours, "pool", "pools"), None);
    match app.rows.len() - ours {
        0 => {}
        kernel => add(format!("{kernel} of the kernel"), None),
    }
    add(format!("every {} s", app.delay.as_secs_f64()), None);
    let order = if app.inverted { ", inverted" } else { "" };
    add(format!("by {}{order}", COLUMNS[app.sort].head), None);
    if app.paused {
        add("PAUSED".into(), Some(Colour::Caution));
    }
    if !app.filter.is_empty() {
        add(format!("only {}", cut(&app.filter, columns / 4)), Some(Colour::Caution));
    }
    Line::from(spans)
}

fn counted(count: usize, one: &str, more: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { more })
}

fn rates(rows: &[&TopRow], theme: TopTheme) -> Line<'static> {
    let sum = |of: fn(&RowRates) -> f64| {
        let rates: Vec<_> = rows.iter().filter_map(|row| row.rates).collect();
        (!rates.is_empty()).then(|| rates.iter().map(of).sum::<f64>())
    };
    let allocated = sum(|rates| rates.allocated);
    let recycled = sum(|rates| rates.recycled.unwrap_or(0.0) * rates.allocated)
        .zip(allocated)
        .filter(|(_, allocated)| *allocated > 0.0)
        .map_or("-".into(), |(weighted, allocated)| format!("{:.2}%", weighted / allocated));
    let (slow, starved) = (sum(|rates| rates.slow), sum(|rates| rates.starved.unwrap_or(0.0)));
    let rare = |figure: Option<f64>, colour| figure.filter(|figure| *figure > 0.0).map(|_| colour);
    let text = |what: &str, figure| format!("{what} {}/s", rate(figure, 6));
    let parts = [
        Span::raw(text("alloc", allocated)),
        Span::raw(text("returned", sum(|rates| rates.returned))),
        Span::raw(format!("recycled {recycled}")),
        Span::styled(text("slow", slow), theme.judged(rare(slow, Colour::Caution))),
        Span::styled(text("starved", starved), theme.judged(rare(starved, Colour::Bad))),
    ];
    Line::from_iter(parts.into_iter().flat_map(|part| [Span::raw("  "), part]).skip(1))
}

fn sums(rows: &[&TopRow]) -> [u64; PLACES.len()] {
    std::array::from_fn(|at| rows.iter().map(|row| row.places[at]).fold(0, u64::saturating_add))
}

fn pages(rows: &[&TopRow], columns: usize, theme: TopTheme) -> Line<'static> {
    let pages = rows.iter().map(|row| row.pages).fold(0, u64::saturating_add);
    let memory = bytes(rows.iter().map(|row| row.bytes).fold(0, u64::saturating_add));
    let head = format!("{} pages, {memory} [", grouped(pages));
    let room = columns.saturating_sub(head.chars().count() + 1);
    let bar = match pages {
        0 => vec![Span::raw(" ".repeat(room))],
        _ => bar(&sums(rows), room, theme),
    };
    Line::from([vec![Span::raw(head)], bar, vec![Span::raw("]")]].concat())
}

/// The letters of the bar, with the pages of each place.
fn legend(rows: &[&TopRow], theme: TopTheme) -> Line<'static> {
    let places = PLACES.iter().zip(sums(rows)).filter(|(_, pages)| *pages > 0);
    let spans = places.flat_map(|(place, pages)| {
        let letter = Span::styled(place.letter.to_string(), theme.colour(place.colour));
        [letter, Span::raw(format!(" {} {}   ", place.name, grouped(pages)))]
    });
    Line::from(spans.collect::<Vec<_>>())
}

/// The head, and as many rows as fit, the selected one among them.
fn rows(app: &mut TopApp, columns: usize, room: usize, theme: TopTheme) -> Vec<Line<'static>> {
    app.page = room.saturating_sub(1).max(1);
    let (visible, selected) = (app.visible(), app.at);
    if visible.is_empty() {
        return nothing(app);
    }
    let first = app.first.min(visible.len().saturating_sub(app.page));
    let first = first.min(selected).max((selected + 1).saturating_sub(app.page));
    let (fitted, bar) = fit(&visible, columns);
    let mut lines = vec![head(&fitted, columns, bar, app.sort, theme)];
    for (at, row) in visible.iter().enumerate().skip(first).take(app.page) {
        let line = Line::from(cells(row, &fitted, bar, theme));
        let gap = columns.saturating_sub(line.width());
        let mut spans = line.spans;
        spans.push(Span::raw(" ".repeat(gap)));
        let line = Line::from(spans);
        lines.push(if at == selected { line.style(theme.selected()) } else { line });
    }
    app.first = first;
    if app.filter.is_empty() && app.rows.iter().all(|row| row.pid.is_none()) {
        lines.extend([Line::default()].into_iter().chain(nobody(app)));
    }
    lines
}

fn nothing(app: &TopApp) -> Vec<Line<'static>> {
    let shown_by_k = || Line::raw("K shows the kernel's page pools.");
    match (app.rows.is_empty(), app.filter.is_empty()) {
        (true, _) => nobody(app),
        (false, true) => nobody(app).into_iter().chain([shown_by_k()]).collect(),
        (false, false) => vec![Line::raw(format!("No pool is called {}; Esc shows all.", app.filter))],
    }
}

/// Explains how to publish.
fn nobody(app: &TopApp) -> Vec<Line<'static>> {
    let lines = [
        nobody_publishes(&app.sampled.now),
        "Programs publish with pagepool::publish (C: pagepool_publish); the commands of".into(),
        "pagepool do so automatically: try `pagepool demo` in another terminal.".into(),
    ];
    lines.map(Line::from).into()
}

fn head(fitted: &[FittedColumn], columns: usize, bar: usize, sort: usize, theme: TopTheme) -> Line<'static> {
    let heads = fitted.iter().flat_map(|of| {
        let text = COLUMNS[of.at].aligned(COLUMNS[of.at].head, of.width);
        let style = if of.at == sort { theme.heading() } else { Default::default() };
        [Span::styled(text, style), Span::raw(" ")]
    });
    let mut spans: Vec<_> = heads.collect();
    spans.push(Span::raw(format!("{:<bar$}", if bar > 0 { BAR_HEAD } else { "" })));
    let gap = columns.saturating_sub(Line::from(spans.clone()).width());
    spans.push(Span::raw(" ".repeat(gap)));
    Line::from(spans).style(theme.selected())
}

fn cells(row: &TopRow, fitted: &[FittedColumn], room: usize, theme: TopTheme) -> Vec<Span<'static>> {
    let cells = fitted.iter().flat_map(|of| {
        let column = &COLUMNS[of.at];
        let style = theme.judged(judged(row, column.head));
        [Span::styled(column.cell(row, of.width), style), Span::raw(" ")]
    });
    cells.chain(bar(&row.places, room, theme)).collect()
}

fn judged(row: &TopRow, head: &str) -> Option<Colour> {
    let rates = row.rates.unwrap_or_default();
    match head {
        "ALLOC/s" if !row.alive => Some(Colour::Bad),
        "RECYC%" if rates.recycled.is_some_and(|percent| percent < 99.0) => Some(Colour::Caution),
        "SLOW/s" if rates.slow > 0.0 => Some(Colour::Caution),
        "STARV/s" if rates.starved.is_some_and(|starved| starved > 0.0) => Some(Colour::Bad),
        _ => None,
    }
}

fn sort_menu(at: usize, room: usize, theme: TopTheme) -> Vec<Line<'static>> {
    let mut lines = vec![Line::styled("Sort by:", theme.heading())];
    let first = (at + 1).saturating_sub(room.saturating_sub(1));
    for (place, column) in COLUMNS.iter().enumerate().skip(first) {
        let letter = column.letter.map_or(' ', |letter| letter);
        let line = Line::raw(format!("  {letter}  {:<8} {}", column.head, column.about));
        lines.push(if place == at { line.style(theme.selected()) } else { line });
    }
    lines
}
