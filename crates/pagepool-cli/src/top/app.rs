//! The state of the screen, and how keys change it.

use std::time::Duration;

use pagepool_watch::{PoolMoved, PoolView, ProcessView};

use super::columns::COLUMNS;
use super::history::History;
use super::keys::{Key, TopAction, action};
use super::row_key::RowKey;
use super::rows::TopRow;
use super::sampler::Sampled;

/// Milliseconds between looks, chosen by `+` and `-`.
const DELAYS: [u64; 9] = [100, 200, 500, 1000, 2000, 5000, 10_000, 30_000, 60_000];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopView {
    Table,
    Detail,
    Help,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prompt {
    Search(String),
    Filter(String),
    /// The index of a column.
    Sort(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterKey {
    Draw,
    /// Draw as if nothing had been drawn.
    DrawAnew,
    Stop,
    Quit,
}

/// The pool of the detail view, as it last was.
#[derive(Clone, Debug)]
pub struct OpenedPool {
    pub process: ProcessView,
    pub pool: PoolView,
    pub moved: Option<PoolMoved>,
}

pub struct TopApp {
    pub sampled: Sampled,
    pub history: History,
    pub view: TopView,
    pub prompt: Option<Prompt>,
    pub filter: String,
    pub paused: bool,
    pub delay: Duration,
    /// An index into [`COLUMNS`].
    pub sort: usize,
    pub inverted: bool,
    /// Lines scrolled out above, in detail view and help.
    pub scrolled: usize,
    /// Rows scrolled out above; set by drawing.
    pub first: usize,
    /// Lines of a page; set by drawing.
    pub page: usize,
    /// `None` before a pool was opened, and for a kernel pool.
    pub opened: Option<OpenedPool>,
    /// Every row, hidden ones included.
    pub rows: Vec<TopRow>,
    shows_kernel: bool,
    pub selected: Option<RowKey>,
    /// The index of the selected row among the shown ones.
    pub at: usize,
}

impl TopApp {
    pub fn new(sampled: Sampled, delay: Duration, filter: String) -> Self {
        let mut app = Self {
            sampled,
            history: History::default(),
            view: TopView::Table,
            prompt: None,
            filter,
            paused: false,
            delay,
            sort: 1,
            inverted: false,
            scrolled: 0,
            first: 0,
            page: 10,
            opened: None,
            rows: Vec::new(),
            shows_kernel: true,
            selected: None,
            at: 0,
        };
        app.refresh();
        app
    }

    /// Takes over the pools of a new look.
    pub fn refresh(&mut self) {
        self.set_rows(TopRow::all(&self.sampled));
    }

    /// Replaces the rows, and updates history and selection.
    pub fn set_rows(&mut self, rows: Vec<TopRow>) {
        self.rows = rows;
        self.history.add(&self.rows);
        self.keep_selection();
        self.refresh_opened();
    }

    /// The shown rows, in order.
    pub fn visible(&self) -> Vec<&TopRow> {
        let is_shown = |row: &&TopRow| {
            (self.shows_kernel || row.pid.is_some()) && (self.filter.is_empty() || row.matches(&self.filter))
        };
        let mut rows: Vec<_> = self.rows.iter().filter(is_shown).collect();
        let column = &COLUMNS[self.sort];
        rows.sort_by(|a, b| {
            let order = column.order(a, b);
            let order = if self.inverted { order.reverse() } else { order };
            order.then_with(|| name(a).cmp(&name(b))).then_with(|| a.key.cmp(&b.key))
        });
        rows
    }

    /// Whether the opened pool still exists.
    pub fn is_opened_there(&self) -> bool {
        self.selected.as_ref().is_some_and(|key| self.rows.iter().any(|row| row.key == *key))
    }

    pub fn press(&mut self, key: Key) -> AfterKey {
        if key == Key::Ctrl('c') {
            return AfterKey::Quit;
        }
        match self.prompt.take() {
            Some(prompt) => {
                self.type_into(prompt, key);
                AfterKey::Draw
            }
            None => self.perform(key),
        }
    }

    fn perform(&mut self, key: Key) -> AfterKey {
        let Some(action) = action(key) else {
            self.sort_by_letter(key);
            return AfterKey::Draw;
        };
        match action {
            TopAction::Quit if self.view == TopView::Table => return AfterKey::Quit,
            TopAction::Redraw => return AfterKey::DrawAnew,
            TopAction::Suspend => return AfterKey::Stop,
            TopAction::Pause => self.paused = !self.paused,
            TopAction::ChangeDelay if key == Key::Char('+') => self.delay = slower(self.delay),
            TopAction::ChangeDelay => self.delay = faster(self.delay),
            TopAction::Help => self.show(TopView::Help),
            TopAction::Quit => self.show(TopView::Table),
            TopAction::Move => self.move_by(key),
            TopAction::Back if self.view != TopView::Table => self.show(TopView::Table),
            of => self.perform_on_table(of, key),
        }
        AfterKey::Draw
    }

    /// Actions that only the table has.
    fn perform_on_table(&mut self, action: TopAction, key: Key) {
        if self.view != TopView::Table {
            return;
        }
        match action {
            TopAction::Search => self.prompt = Some(Prompt::Search(String::new())),
            TopAction::Filter => self.prompt = Some(Prompt::Filter(self.filter.clone())),
            TopAction::SortMenu => self.prompt = Some(Prompt::Sort(self.sort)),
            TopAction::SortStep => {
                let step = if key == Key::Char('>') { 1 } else { COLUMNS.len() - 1 };
                self.sort_by((self.sort + step) % COLUMNS.len());
            }
            TopAction::Invert => self.inverted = !self.inverted,
            TopAction::ToggleKernel => self.shows_kernel = !self.shows_kernel,
            TopAction::Back => self.filter.clear(),
            TopAction::Open if self.selected.is_some() => {
                self.opened = None;
                self.show(TopView::Detail);
                self.refresh_opened();
            }
            _ => {}
        }
        self.keep_selection();
    }

    fn show(&mut self, view: TopView) {
        (self.view, self.scrolled) = (view, 0);
        self.keep_selection(); // rows moved in another view
    }

    fn sort_by(&mut self, column: usize) {
        (self.sort, self.inverted) = (column, false);
    }

    fn sort_by_letter(&mut self, key: Key) {
        let column = COLUMNS.iter().position(|column| column.letter.map(Key::Char) == Some(key));
        if let Some(column) = column.filter(|_| self.view == TopView::Table) {
            self.sort_by(column);
            self.keep_selection();
        }
    }

    fn type_into(&mut self, prompt: Prompt, key: Key) {
        match prompt {
            Prompt::Sort(at) => self.choose_sort(at, key),
            Prompt::Search(mut text) => match key {
                Key::Enter | Key::Escape => {}
                Key::F(3) | Key::Down => self.search_on(text, 1),
                _ => {
                    edit(&mut text, key);
                    self.search_on(text, 0);
                }
            },
            Prompt::Filter(mut text) => match key {
                Key::Enter => {}
                Key::Escape => self.filter.clear(),
                _ => {
                    edit(&mut text, key);
                    self.filter.clone_from(&text);
                    self.prompt = Some(Prompt::Filter(text));
                }
            },
        }
        self.keep_selection();
    }

    fn choose_sort(&mut self, at: usize, key: Key) {
        let last = COLUMNS.len() - 1;
        match key {
            Key::Enter => self.sort_by(at),
            Key::Escape | Key::Char('q') => {}
            Key::Up => self.prompt = Some(Prompt::Sort(at.saturating_sub(1))),
            Key::Down => self.prompt = Some(Prompt::Sort((at + 1).min(last))),
            Key::Home => self.prompt = Some(Prompt::Sort(0)),
            Key::End => self.prompt = Some(Prompt::Sort(last)),
            _ => self.prompt = Some(Prompt::Sort(at)),
        }
    }

    /// Selects the next row that matches, starting `from` rows after the selected one.
    fn search_on(&mut self, text: String, from: usize) {
        let rows = self.visible();
        let places = (0..rows.len()).map(|at| (self.at + from + at) % rows.len());
        let found = places.into_iter().find(|&at| rows[at].matches(&text));
        if let Some(at) = found {
            self.select(at);
        }
        self.prompt = Some(Prompt::Search(text));
    }

    fn move_by(&mut self, key: Key) {
        let (now, last) = match self.view {
            TopView::Table => (self.at, self.visible().len().saturating_sub(1)),
            _ => (self.scrolled, usize::MAX),
        };
        let then = match key {
            Key::Up => now.saturating_sub(1),
            Key::Down => now.saturating_add(1),
            Key::PageUp => now.saturating_sub(self.page),
            Key::PageDown => now.saturating_add(self.page),
            Key::Home => 0,
            _ => usize::MAX,
        };
        match self.view {
            TopView::Table => self.select(then.min(last)),
            _ => self.scrolled = then, // drawing limits it
        }
    }

    fn select(&mut self, at: usize) {
        let key = self.visible().get(at).map(|row| row.key.clone());
        (self.at, self.selected) = (at, key);
    }

    /// Keeps the selection on its row, or on the row that took its place.
    fn keep_selection(&mut self) {
        let rows = self.visible();
        let place = rows.iter().position(|row| Some(&row.key) == self.selected.as_ref());
        let place = place.unwrap_or(self.at.min(rows.len().saturating_sub(1)));
        // An opened pool stays selected even if it is gone.
        if self.view == TopView::Table || self.selected.is_none() {
            self.select(place);
        }
    }

    fn refresh_opened(&mut self) {
        let key = self.selected.as_ref().filter(|_| self.view == TopView::Detail);
        let found = key.and_then(|key| self.sampled.pool(key));
        if let Some((process, pool)) = found {
            let before = self.sampled.before.as_ref();
            let moved =
                before.and_then(|before| PoolMoved::between(before, &self.sampled.now, process, pool));
            self.opened = Some(OpenedPool { process: process.clone(), pool: pool.clone(), moved });
        }
    }
}

/// The order of otherwise equal rows: kernel pools last.
fn name(row: &TopRow) -> (bool, &str, Option<u32>) {
    (row.pid.is_none(), &row.process, row.pid)
}

fn edit(text: &mut String, key: Key) {
    match key {
        Key::Char(of) => text.push(of),
        Key::Backspace => drop(text.pop()),
        Key::Ctrl('u') => text.clear(),
        _ => {}
    }
}

fn slower(delay: Duration) -> Duration {
    DELAYS.into_iter().map(Duration::from_millis).find(|&of| of > delay).unwrap_or(delay)
}

fn faster(delay: Duration) -> Duration {
    DELAYS.into_iter().rev().map(Duration::from_millis).find(|&of| of < delay).unwrap_or(delay)
}
