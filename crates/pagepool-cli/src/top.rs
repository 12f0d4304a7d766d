//! The command `top`: repeatedly samples what processes publish, and shows it until the user quits.
//!
//! Parts  `sampler` samples, `rows` and `history` compute figures, `app` has the state, `draw` draws it,
//!        `screen` is the terminal with its signals. `columns` and `keys` are tables.

mod app;
mod columns;
mod draw;
mod history;
mod keys;
mod output;
mod row_key;
mod rows;
mod sampler;
mod screen;

use std::io;
use std::time::{Duration, Instant};

use pagepool_watch::RunFolder;
use ratatui::crossterm::style::force_color_output;

use self::app::{AfterKey, TopApp};
use self::draw::draw;
use self::draw::theme::TopTheme;
use self::keys::Key;
use self::sampler::Sampler;
use self::screen::Screen;
use crate::report::{Terminal, colour};

/// Runs until the user quits, a signal ends it, or the terminal is closed.
pub fn show(folder: RunFolder, delay: Duration, filter: String) -> Result<(), String> {
    let mut screen = Screen::open()?;
    let theme = TopTheme { has_colours: colour::is_on(Terminal::of_output().as_ref()) };
    force_color_output(theme.has_colours); // crossterm has its own rule
    let (sampler, sampled) = Sampler::new(folder);
    let app = TopApp::new(sampled, delay, filter);
    let shown = TopLoop { app, sampler, theme, looked: Instant::now() }.draw_until_quit(&mut screen);
    let is_ended = screen.is_ended(); // later output errors do not count
    drop(screen);
    shown
        .or_else(|error| if is_ended { Ok(()) } else { Err(error) })
        .map_err(|error| format!("cannot draw on this terminal: {error}"))
}

struct TopLoop {
    app: TopApp,
    sampler: Sampler,
    theme: TopTheme,
    /// When the last look began.
    looked: Instant,
}

impl TopLoop {
    fn draw_until_quit(&mut self, screen: &mut Screen) -> io::Result<()> {
        // The second look comes early, to show rates at once.
        let mut due = self.looked + self.app.delay.min(Duration::from_millis(250));
        while !screen.is_ended() {
            screen.stop_if_asked()?;
            if Instant::now() >= due {
                self.look();
                due = self.looked + self.app.delay;
            }
            screen.draw(|frame| draw(frame, &mut self.app, self.theme))?;
            let keys = screen.wait(due.saturating_duration_since(Instant::now()))?;
            let Some(keys) = keys else { return Ok(()) };
            let delay = self.app.delay;
            if self.press(screen, keys)? {
                return Ok(());
            }
            if self.app.delay != delay {
                due = self.looked + self.app.delay;
            }
        }
        Ok(())
    }

    fn look(&mut self) {
        self.looked = Instant::now();
        if !self.app.paused {
            self.sampler.look(&mut self.app.sampled);
            self.app.refresh();
        }
    }

    /// Returns whether a key or a signal ended the screen.
    fn press(&mut self, screen: &mut Screen, keys: Vec<Key>) -> io::Result<bool> {
        for key in keys {
            if screen.is_ended() {
                return Ok(true);
            }
            match self.app.press(key) {
                AfterKey::Draw => {}
                AfterKey::DrawAnew => screen.clear()?,
                AfterKey::Stop => screen.stop(),
                AfterKey::Quit => return Ok(true),
            }
        }
        Ok(false)
    }
}
