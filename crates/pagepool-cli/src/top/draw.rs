//! Draws the screen: one of three views, and a line of keys.

mod bar;
mod detail;
mod help;
mod table;
pub mod theme;

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use self::theme::TopTheme;
use super::app::{Prompt, TopApp, TopView};
use crate::report::Colour;

const TABLE_KEYS: &[(&str, &str)] = &[
    ("F1", "Help"),
    ("F3", "Search"),
    ("F4", "Filter"),
    ("F6", "Sort"),
    ("Enter", "Details"),
    ("Space", "Pause"),
    ("F10", "Quit"),
];
const PAGE_KEYS: &[(&str, &str)] = &[("Esc", "Back"), ("Up Down PgUp PgDn", "Scroll"), ("Space", "Pause")];

pub fn draw(frame: &mut Frame<'_>, app: &mut TopApp, theme: TopTheme) {
    let whole = frame.area();
    let errors = app.sampled.now.errors.len();
    let last = u16::from(whole.height > 2);
    let bad = u16::from(errors > 0 && whole.height > 8);
    let area = Rect { height: whole.height - last - bad, ..whole };
    match app.view {
        TopView::Table => table::draw(frame, area, app, theme),
        TopView::Detail => {
            let lines = detail::lines(app, area.width.into(), theme);
            page(frame, area, app, lines);
        }
        TopView::Help => page(frame, area, app, help::lines(theme)),
    }
    if bad > 0 {
        let first = &app.sampled.now.errors[0];
        let line = Line::styled(format!("{errors} cannot be read: {first}"), theme.judged(Some(Colour::Bad)));
        frame.buffer_mut().set_line(whole.x, area.bottom(), &line, whole.width);
    }
    if last > 0 {
        last_line(frame, Rect { y: whole.bottom() - 1, height: 1, ..whole }, app, theme);
    }
}

/// Draws the lines that fit, from the scrolled position on.
fn page(frame: &mut Frame<'_>, area: Rect, app: &mut TopApp, lines: Vec<Line<'static>>) {
    app.page = usize::from(area.height).max(1);
    app.scrolled = app.scrolled.min(lines.len().saturating_sub(app.page));
    for (line, at) in lines.iter().skip(app.scrolled).zip(area.y..area.bottom()) {
        frame.buffer_mut().set_line(area.x, at, line, area.width);
    }
}

/// Draws the prompt, or the keys.
fn last_line(frame: &mut Frame<'_>, area: Rect, app: &TopApp, theme: TopTheme) {
    let prompt = match &app.prompt {
        Some(Prompt::Search(text)) => Some(("Search (F3: next, Enter: done): ", text)),
        Some(Prompt::Filter(text)) => Some(("Filter (Enter: done, Esc: none): ", text)),
        _ => None,
    };
    if let Some((head, text)) = prompt {
        let line = Line::from(vec![Span::styled(head, theme.heading()), Span::raw(text.clone())]);
        frame.buffer_mut().set_line(area.x, area.y, &line, area.width);
        let at = area.x.saturating_add(line.width() as u16).min(area.right().saturating_sub(1));
        return frame.set_cursor_position((at, area.y));
    }
    let keys = match (&app.prompt, app.view) {
        (Some(_), _) => &[("Up Down", "Choose"), ("Enter", "Sort"), ("Esc", "Back")][..],
        (None, TopView::Table) => TABLE_KEYS,
        _ => PAGE_KEYS,
    };
    let spans = keys
        .iter()
        .flat_map(|(key, what)| [Span::styled(*key, theme.selected()), Span::raw(format!(" {what}  "))]);
    let mut spans: Vec<_> = spans.collect();
    if app.paused {
        spans.push(Span::styled("PAUSED", theme.judged(Some(Colour::Caution))));
    }
    frame.buffer_mut().set_line(area.x, area.y, &Line::from(spans), area.width);
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::fs;
    use std::path::{Path, PathBuf};
    use std::time::{Duration, Instant, SystemTime};

    use pagepool_link::{KernelPagePool, KernelPoolStats};
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;
    use crate::top::keys::Key;
    use crate::top::row_key::RowKey;
    use crate::top::rows::{KERNEL, PLACES, RowRates, TopRow};
    use crate::top::sampler::Sampled;
    use pagepool_watch::KernelLook;
    use pagepool_watch::Observation;

    fn sampled() -> Sampled {
        let (at, taken, folder) = (SystemTime::now(), Instant::now(), PathBuf::from("/run/pagepool"));
        let now = Observation { at, taken, folder, processes: Vec::new(), errors: Vec::new() };
        Sampled { now, before: None, kernel: None, kernel_before: None }
    }

    fn row(process: &str, pid: u32, id: u32, allocated: f64) -> TopRow {
        let starved = Some(if id == 3 { 2.5 } else { 0.0 });
        let slow = f64::from(id / 3) * 17.0;
        let (returned, recycled) = (allocated, (allocated > 0.0).then_some(100.0 - slow));
        TopRow {
            key: RowKey::Process(format!("/run/{pid}").into(), SystemTime::UNIX_EPOCH, id),
            process: process.into(),
            pid: Some(pid),
            pool: format!("rx{id}"),
            thread: format!("queue {id}"),
            alive: true,
            rates: Some(RowRates { allocated, returned, slow, starved, recycled }),
            pages: 2560,
            bytes: 2560 * 4096,
            out: Some(1024),
            oldest: (id == 2).then(|| Duration::from_millis(125_300)),
            places: [512, 4, 1020, 0, 0, 0, 1000, 24],
        }
    }

    /// A process with three pools, a dead process, and the kernel.
    fn rows() -> Vec<TopRow> {
        let mut dead = row("echo", 77, 1, 0.0);
        (dead.alive, dead.rates, dead.thread) = (false, None, "-".into());
        let mut kernel = row(KERNEL, 0, 18, 512.0);
        (kernel.key, kernel.pid, kernel.pool) = (RowKey::Kernel(18), None, "eth0:18".into());
        kernel.rates =
            kernel.rates.map(|rates| RowRates { slow: 0.0, starved: None, recycled: Some(98.5), ..rates });
        (kernel.out, kernel.places, kernel.thread) = (None, [0; PLACES.len()], "napi 8193".into());
        let drop = |id, allocated| row("drop", 12_345, id, allocated);
        vec![kernel, drop(3, 9_870.4), drop(1, 1_234_567.0), drop(2, 0.5), dead]
    }

    fn app(rows: Vec<TopRow>) -> TopApp {
        let mut app = TopApp::new(sampled(), Duration::from_secs(1), String::new());
        app.set_rows(rows);
        app
    }

    fn drawn(app: &mut TopApp, columns: u16, rows: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(columns, rows)).expect("it is memory");
        let theme = TopTheme { has_colours: true };
        terminal.draw(|frame| draw(frame, app, theme)).expect("it is memory");
        let buffer = terminal.backend().buffer();
        let lines = buffer.content().chunks(columns.into()).map(|line| {
            let line: String = line.iter().map(|cell| cell.symbol()).collect();
            format!("{}\n", line.trim_end())
        });
        lines.collect()
    }

    fn press(app: &mut TopApp, keys: &str) {
        for key in keys.chars() {
            app.press(match key {
                '\n' => Key::Enter,
                '\x1b' => Key::Escape,
                'v' => Key::Down,
                of => Key::Char(of),
            });
        }
    }

    /// Compares with the file of that name; with PAGEPOOL_BLESS=1, writes the file instead.
    fn assert_shown(name: &str, shown: &str) {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/screens/{name}.txt"));
        if std::env::var_os("PAGEPOOL_BLESS").is_some() {
            fs::create_dir_all(file.parent().expect("a folder")).expect("the source is writable");
            return fs::write(file, shown).expect("the source is writable");
        }
        let expected = fs::read_to_string(&file).unwrap_or_default();
        assert!(
            expected == shown,
            "{name} is now\n{shown}\nand was\n{expected}\n\
             PAGEPOOL_BLESS=1 cargo test -p pagepool-cli --lib screens"
        );
    }

    #[test]
    fn screens_are_what_they_were() {
        for (columns, lines) in [(80, 24), (120, 40), (200, 30), (50, 12), (24, 6)] {
            assert_shown(&format!("table-{columns}x{lines}"), &drawn(&mut app(rows()), columns, lines));
        }
        assert_shown("nothing", &drawn(&mut app(Vec::new()), 80, 24));
        let mut helped = app(rows());
        press(&mut helped, "h");
        assert_shown("help-80x50", &drawn(&mut helped, 80, 50));
        let mut sorting = app(rows());
        press(&mut sorting, ".vv");
        assert_shown("sort-80x24", &drawn(&mut sorting, 80, 24));
    }

    #[test]
    fn the_table_that_comes_back_has_the_selection_on_its_row() {
        for view in ["\n", "h"] {
            let mut app = app(rows());
            press(&mut app, "Pvv");
            let selected = app.selected.as_ref().cloned();
            assert!(app.at == 2 && selected == Some(RowKey::Kernel(18)));
            press(&mut app, view);
            let mut moved = rows();
            moved.retain(|row| row.pool != "rx3");
            app.set_rows(moved);
            press(&mut app, "\x1b");
            assert_eq!((app.at, app.selected.as_ref()), (1, selected.as_ref()), "{view:?}");
        }
    }

    #[test]
    fn a_page_scrolls_from_its_end_on_before_it_is_drawn() {
        let mut app = app(rows());
        press(&mut app, "h");
        for key in [Key::End, Key::Down, Key::PageDown, Key::Down] {
            app.press(key);
        }
        assert!(drawn(&mut app, 80, 24).contains("docs/observing.md"), "the last line");
    }

    #[test]
    fn with_kernel_pools_alone_top_says_that_no_process_publishes() {
        let mut app = app(rows().into_iter().filter(|row| row.pid.is_none()).collect());
        let shown = drawn(&mut app, 80, 24);
        assert!(shown.contains("eth0:18") && shown.contains("No process publishes"), "{shown}");
        press(&mut app, "K");
        let hidden = drawn(&mut app, 80, 24);
        assert!(hidden.contains("No process publishes") && hidden.contains("K shows"), "{hidden}");
        press(&mut app, "K\\nope\n");
        assert!(drawn(&mut app, 80, 24).contains("No pool is called nope; Esc shows all."));
    }

    fn kernel_detail(detached_at: Option<Duration>) -> TopApp {
        let mut pool = KernelPagePool::default();
        let mut stats = KernelPoolStats::default();
        (stats.alloc_fast, stats.alloc_slow, stats.recycle_cached) = (1_234_567, 2048, 1_230_000);
        (pool.id, pool.ifindex, pool.napi, pool.stats) = (18, Some(2), Some(8193), Some(stats));
        (pool.inflight, pool.inflight_bytes) = (2048, 8 << 20);
        pool.detached_at = detached_at;
        let (taken, names) = (Instant::now(), HashMap::from([(2, "eth0".to_owned())]));
        let kernel = KernelLook { taken, pools: vec![pool], names, has_stats: true };
        let sampled = Sampled { kernel: Some(kernel), ..sampled() };
        let mut app = TopApp::new(sampled, Duration::from_secs(1), String::new());
        press(&mut app, "\n");
        app
    }

    #[test]
    fn detail_views_are_what_they_were() {
        for (columns, lines) in [(80, 24), (120, 40)] {
            let mut app = kernel_detail(None);
            assert_shown(&format!("detail-{columns}x{lines}"), &drawn(&mut app, columns, lines));
            app.press(Key::End);
            assert_shown(&format!("detail-end-{columns}x{lines}"), &drawn(&mut app, columns, lines));
        }
    }

    #[test]
    fn the_detail_view_fits_every_size() {
        let given_up = || kernel_detail(Some(Duration::ZERO));
        let shown = drawn(&mut given_up(), 120, 40);
        assert!(shown.contains("page pool 18 of the kernel, of eth0") && shown.contains("alloc_fast"));
        assert!(shown.contains("Its driver released it "), "{shown}");
        for (columns, lines) in (1..30).flat_map(|columns| (1..20).map(move |lines| (columns, lines))) {
            let mut app = given_up();
            drawn(&mut app, columns, lines);
            app.press(Key::End);
            drawn(&mut app, columns, lines);
        }
    }

    #[test]
    fn no_size_is_too_small() {
        for columns in 1..30 {
            for lines in 1..20 {
                let mut app = app(rows());
                for keys in ["", "v", "h", "\x1b/rx", "\n.", "\n\\zz", "\n\n"] {
                    press(&mut app, keys);
                    drawn(&mut app, columns, lines);
                }
            }
        }
    }

    fn order(app: &TopApp) -> Vec<String> {
        app.visible().iter().map(|row| format!("{} {}", row.process, row.pool)).collect()
    }

    #[test]
    fn letters_and_menu_sort_and_the_selection_follows_its_row() {
        let mut app = app(rows());
        assert_eq!(order(&app), ["drop rx1", "drop rx2", "drop rx3", "echo rx1", "[kernel] eth0:18"]);
        press(&mut app, "vv");
        let selected = app.selected.as_ref().cloned();
        press(&mut app, "P");
        assert_eq!(order(&app), ["drop rx1", "drop rx3", "[kernel] eth0:18", "drop rx2", "echo rx1"]);
        assert_eq!((app.at, app.selected.as_ref()), (1, selected.as_ref()));
        press(&mut app, "I");
        assert_eq!(order(&app)[0], "echo rx1", "what does not count is least");
        press(&mut app, "T");
        assert_eq!(order(&app)[0], "drop rx2", "the oldest buffer");
        press(&mut app, "S<");
        assert_eq!(super::super::columns::COLUMNS[app.sort].head, "RECYC%");
        press(&mut app, ".vv\n");
        assert_eq!(super::super::columns::COLUMNS[app.sort].head, "STARV/s");
        assert_eq!(order(&app)[0], "drop rx3");
        app.set_rows(rows().into_iter().filter(|row| row.pool != "rx3").collect());
        assert!(
            app.selected.as_ref().is_some() && app.selected.as_ref() != selected.as_ref(),
            "its row is gone"
        );
    }

    #[test]
    fn filter_search_and_kernel_choose_rows() {
        let mut app = app(rows());
        press(&mut app, "\\ECHO|rx3\n");
        assert_eq!(order(&app), ["drop rx3", "echo rx1"]);
        press(&mut app, "\x1b");
        assert_eq!(order(&app).len(), 5, "no filter");
        press(&mut app, "K");
        assert_eq!(order(&app).len(), 4, "without the kernel's");
        press(&mut app, "/echo\n");
        assert_eq!(app.at, 3);
        press(&mut app, "/rx1");
        app.press(Key::F(3));
        assert_eq!(app.at, 0, "the next one, from the beginning again");
        press(&mut app, "\n\\nope\n");
        assert!(drawn(&mut app, 80, 24).contains("No pool is called nope; Esc shows all."));
    }

    #[test]
    fn the_selected_row_is_always_among_those_shown() {
        let many = |count| (0..count).map(|id| row("drop", 1, id, 1.0)).collect::<Vec<_>>();
        let mut app = app(many(100));
        for (key, at) in [(Key::End, 99), (Key::PageUp, 82), (Key::Home, 0), (Key::PageDown, 17)] {
            drawn(&mut app, 80, 24);
            app.press(key);
            assert_eq!(app.at, at, "{key:?}");
            let shown = drawn(&mut app, 80, 24);
            assert!(shown.contains(&format!(" rx{at} ")), "{shown}");
        }
        let looks = |app: &TopApp| app.history.last(&many(51)[50].key, 10).len();
        app.set_rows(many(3));
        app.set_rows(many(100));
        assert_eq!(looks(&app), 2, "a pool that one look missed");
        for _ in 0..17 {
            app.set_rows(many(3));
        }
        app.set_rows(many(100));
        assert_eq!(looks(&app), 1, "a pool that was gone");
        app.set_rows(many(3));
        assert!(drawn(&mut app, 80, 24).contains(" rx2 ") && app.at == 2);
    }
}
