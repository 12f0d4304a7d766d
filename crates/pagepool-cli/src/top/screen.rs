//! The terminal while the screen is shown, and its input: keys, signals, its end.
//!
//! Modes  Raw mode, the alternate screen, no cursor. Restored when [`Screen`] is dropped, before a panic is
//!        printed, and during a stop. SIGINT, SIGTERM, SIGQUIT, SIGHUP and SIGXCPU end the loop in order,
//!        even if the terminal takes no output (see `output`). Other deadly signals (SIGKILL, SIGUSR1,
//!        SIGSEGV) leave the modes set; `reset` fixes that.
//! Stop   SIGTSTP, and the key Ctrl-Z: restores the modes, stops, and sets them again. SIGCONT alone (after a
//!        SIGSTOP) sets them again, too: the shell changed them.

use std::fs::File;
use std::io::{self, IsTerminal, Read, stdout};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ratatui::backend::{Backend, CrosstermBackend};
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::layout::Rect;
use ratatui::{Frame, Terminal as RatatuiTerminal, TerminalOptions, Viewport};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGWINCH, SIGXCPU};
use signal_hook::{flag, low_level::pipe};

use super::keys::{Key, decode};
use super::output::ScreenOutput;
use crate::report::Terminal;
use crate::sys::{self, PollFd, PollFlags, screen as screen_calls};

/// The wait for the rest of a key's bytes.
const REST_OF_KEY: Duration = Duration::from_millis(50);

/// Whether our modes are set. A second restore would move the cursor to where it was before the screen, over
/// later output.
static IS_ENTERED: AtomicBool = AtomicBool::new(false);

type TopTerminal = RatatuiTerminal<CrosstermBackend<ScreenOutput>>;

/// The most columns and rows drawn: more than the largest displays show. They take 60 MiB: each cell takes
/// memory, and any process can set the size of a terminal.
const MOST: Rect = Rect::new(0, 0, 1000, 500);

/// Flags set by signals, and the socket that wakes a wait.
struct ScreenSignals {
    end: Arc<AtomicBool>,
    stop: Arc<AtomicBool>,
    enter: Arc<AtomicBool>,
    wakes: UnixStream,
}

/// Dropping it restores the terminal.
pub struct Screen {
    terminal: TopTerminal,
    /// The part of the terminal that is drawn.
    area: Rect,
    signals: ScreenSignals,
    keyboard: File,
    /// Bytes of an incomplete key.
    partial: Vec<u8>,
    /// Whether the modes were restored for a stop.
    has_left: bool,
}

impl Screen {
    /// Takes over the terminal.
    pub fn open() -> Result<Self, String> {
        let refused = |error: io::Error| format!("cannot use this terminal: {error}");
        check_output()?;
        let keyboard = keyboard().map_err(refused)?;
        let signals = ScreenSignals::listen().map_err(refused)?;
        restore_before_panics();
        let backend = CrosstermBackend::new(ScreenOutput::open(signals.end.clone()));
        let area = drawn_area(&backend).map_err(refused)?;
        let options = TerminalOptions { viewport: Viewport::Fixed(area) };
        let terminal = RatatuiTerminal::with_options(backend, options).map_err(refused)?;
        let mut screen = Self { terminal, area, signals, keyboard, partial: Vec::new(), has_left: false };
        screen.enter().map_err(refused)?;
        Ok(screen)
    }

    pub fn is_ended(&self) -> bool {
        self.signals.end.load(Ordering::Relaxed)
    }

    /// Stops the process if a signal asked for it, and takes over the terminal after a stop.
    pub fn stop_if_asked(&mut self) -> io::Result<()> {
        if self.signals.stop.swap(false, Ordering::Relaxed) {
            self.stop();
        }
        if !self.signals.enter.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        match self.has_left {
            true => self.enter()?,
            false => disable_raw_mode().and_then(|()| enable_raw_mode())?, // the shell changed them
        }
        self.has_left = false;
        self.clear()
    }

    /// Restores the modes, and stops the process group until another process continues it.
    pub fn stop(&mut self) {
        restore();
        self.has_left = true;
        screen_calls::stop_group();
        self.signals.enter.store(true, Ordering::Relaxed); // also if the kernel did not stop it
    }

    fn enter(&mut self) -> io::Result<()> {
        IS_ENTERED.store(true, Ordering::Relaxed);
        enable_raw_mode()?;
        execute!(self.terminal.backend_mut(), EnterAlternateScreen, Hide)
    }

    /// Draws on the terminal, whose size may have changed.
    pub fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        if drawn_area(self.terminal.backend())? != self.area {
            self.clear()?;
        }
        self.terminal.draw(draw).map(drop)
    }

    /// Redraws everything at the next draw. ratatui's own `clear` queries the cursor's position, whose reply
    /// would arrive among the keys.
    pub fn clear(&mut self) -> io::Result<()> {
        self.area = drawn_area(self.terminal.backend())?;
        self.terminal.resize(self.area)
    }

    /// Waits for keys or a signal, at most `time`. Returns the keys; `None` if the terminal was closed.
    pub fn wait(&mut self, time: Duration) -> io::Result<Option<Vec<Key>>> {
        let time = if self.partial.is_empty() { time } else { time.min(REST_OF_KEY) };
        let mut files =
            [PollFd::new(&self.keyboard, PollFlags::IN), PollFd::new(&self.signals.wakes, PollFlags::IN)];
        sys::wait_for_any(&mut files, time)?;
        let [keys, wakes] = files.map(|file| file.revents());
        if wakes.contains(PollFlags::IN) {
            let mut bytes = [0; 64];
            while matches!((&self.signals.wakes).read(&mut bytes), Ok(1..)) {}
        }
        if keys.intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL) {
            return Ok(None);
        }
        let has_more = keys.contains(PollFlags::IN);
        if has_more {
            let mut bytes = [0; 1024];
            match self.keyboard.read(&mut bytes)? {
                0 => return Ok(None),
                length => self.partial.extend(&bytes[..length]),
            }
        }
        Ok(Some(decode(&mut self.partial, !has_more)))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

impl ScreenSignals {
    fn listen() -> io::Result<Self> {
        let (wakes, sender) = UnixStream::pair()?;
        wakes.set_nonblocking(true)?;
        let [end, stop, enter] = std::array::from_fn(|_| Arc::<AtomicBool>::default());
        let ends = [SIGINT, SIGTERM, SIGQUIT, SIGHUP, SIGXCPU].map(|signal| (signal, &end));
        for (signal, flag) in ends.into_iter().chain([(SIGTSTP, &stop), (SIGCONT, &enter)]) {
            if signal != SIGHUP || !sys::is_ignored(SIGHUP) {
                flag::register(signal, flag.clone())?;
                pipe::register(signal, sender.try_clone()?)?;
            }
        }
        pipe::register(SIGWINCH, sender)?;
        Ok(Self { end, stop, enter, wakes })
    }
}

fn drawn_area(backend: &CrosstermBackend<ScreenOutput>) -> io::Result<Rect> {
    Ok(MOST.intersection(Rect::from(((0, 0).into(), backend.size()?))))
}

/// Fails if the terminal cannot show the screen; the error names an alternative.
fn check_output() -> Result<(), String> {
    let instead = "`pagepool list --watch` prints lines, and `pagepool list --watch --json` objects";
    if !stdout().is_terminal() {
        return Err(format!("`pagepool top` requires a terminal on standard output: {instead}"));
    }
    match Terminal::of_output() {
        Some(_) => Ok(()),
        None => Err(format!("`pagepool top` moves the cursor, which TERM=dumb (or none) cannot: {instead}")),
    }
}

/// Standard input if it is a terminal, else the controlling terminal.
fn keyboard() -> io::Result<File> {
    let input = io::stdin();
    match input.is_terminal() {
        true => input.as_fd().try_clone_to_owned().map(File::from),
        false => File::open("/dev/tty"),
    }
}

/// Undoes [`Screen::enter`], once; modes first, because users type when the screen goes. If the terminal
/// takes no output, the screen stays.
fn restore() {
    if !IS_ENTERED.swap(false, Ordering::Relaxed) {
        return;
    }
    let _ = disable_raw_mode();
    let mut output = ScreenOutput::open(Arc::new(AtomicBool::new(true)));
    let _ = execute!(output, Show, LeaveAlternateScreen);
}

fn restore_before_panics() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        restore();
        before(panic);
    }));
}
