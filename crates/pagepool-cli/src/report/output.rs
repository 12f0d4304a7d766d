//! Prints lines on standard output and messages on standard error.
//!
//! Names  a text may contain names that others chose. Characters that a terminal would obey or not show are
//!        escaped here, for every caller.
//! Screen on a terminal, long lines are folded; only commands to copy wrap. A live block is drawn over the
//!        previous one, and a progress line disappears; other output replaces both. In a pipe there are plain
//!        lines, and no progress.
//! What   standard output may fail at any time: a full disk, a closed pipe, a closed terminal. The first
//!        failed write is recorded, and nothing more is printed there. A run checks [`failed`] and ends in
//!        order; [`exit_status`] then reports the reason and returns the status. A closed pipe is not
//!        reported, and keeps the status of the run: its reader has read what it wanted.
//! Why    `println!` would panic and end the process at once, without restoring the settings of interfaces. A
//!        failure of standard error is ignored: there is no place to report it.

use std::fmt::{Arguments, Display};
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use super::colour::{Colour, paint};
use super::exit_status;
use super::live_line::LiveLine;
use super::terminal::{Terminal, fold, in_line, plain, width};

/// Why standard output could not be written, in the kernel's words: at most once in a process. `None`: the
/// reader closed the pipe.
static FAILURE: OnceLock<Option<String>> = OnceLock::new();

/// The indent of continued lines.
const INDENT: usize = 2;
/// The indent of continued figures beside JSON, which are indented themselves.
const ASIDE: usize = 9;

/// What is drawn on the terminal, and disappears when something else is printed.
static DRAWN: Mutex<Drawn> = Mutex::new(Drawn::nothing());

struct Drawn {
    /// The width of each line.
    widths: Vec<usize>,
    /// A progress line, on standard error and without a line end.
    progress: Option<String>,
}

fn lock_drawn() -> MutexGuard<'static, Drawn> {
    DRAWN.lock().unwrap_or_else(PoisonError::into_inner)
}

pub fn line(text: impl Display) {
    hanging(&text.to_string(), INDENT, None);
}

/// Prints a line, in a colour if given. Where it is folded, the next lines have this indent.
pub fn hanging(text: &str, indent: usize, colour: Option<Colour>) {
    let (terminal, text) = (Terminal::of_output(), plain(text));
    let text = fitted(&text, terminal, indent);
    let text = colour.map_or(text.clone(), |colour| paint(&text, colour, terminal.as_ref()));
    finish_drawing();
    write(format_args!("{text}\n"));
}

/// Prints text as it is: it has its own line ends and width, and every name in it is escaped.
pub fn text(text: &str) {
    finish_drawing();
    write(format_args!("{text}"));
}

/// Shows the current figures: on a terminal over the previous ones, else as lines with an indent.
pub fn live(lines: &[LiveLine]) {
    let Some(terminal) = Terminal::of_output() else {
        let lines: Vec<_> = lines.iter().map(|line| &*line.text).collect();
        return write(format_args!("{}\n", in_line(&plain(&lines.join("\n       ")))));
    };
    let Terminal { columns, rows } = terminal;
    let folded = lines
        .iter()
        .flat_map(|line| fold(&plain(&line.text), columns, 4).into_iter().map(|text| (text, line.colour)));
    let folded: Vec<_> = folded.take(rows.saturating_sub(1)).collect();
    let mut drawn = lock_drawn();
    let mut text = drawn.to_top(columns);
    for (line, colour) in &folded {
        let line = colour.map_or(line.clone(), |colour| paint(line, colour, Some(&terminal)));
        text += &format!("{line}\x1b[K\n");
    }
    text += "\x1b[J"; // what was below
    *drawn = Drawn { widths: folded.iter().map(|(line, _)| width(line)).collect(), progress: None };
    drop(drawn);
    write(format_args!("{text}"));
}

/// Shows the progress of long work, on a terminal only. The line disappears when anything else is printed.
pub fn progress(text: impl Display) {
    let Some(Terminal { columns, .. }) = Terminal::of_errors() else { return };
    let text: String = plain(&text.to_string()).chars().take(columns - 1).collect();
    let mut drawn = lock_drawn();
    // A live block says more.
    if drawn.progress.is_none() && !drawn.widths.is_empty() || drawn.progress.as_ref() == Some(&text) {
        return;
    }
    let mut errors = io::stderr().lock();
    let _ = write!(errors, "\r{text}\x1b[K").and_then(|()| errors.flush()); // a failure does no harm
    *drawn = Drawn { widths: vec![width(&text)], progress: Some(text) };
}

/// Removes the progress line.
pub fn progress_end() {
    let mut drawn = lock_drawn();
    if drawn.progress.is_some() {
        clear(&mut drawn);
    }
}

impl Drawn {
    const fn nothing() -> Self {
        Self { widths: Vec::new(), progress: None }
    }

    /// Moves the cursor to the first line.
    fn to_top(&self, columns: usize) -> String {
        // A terminal that became narrower has wrapped the lines.
        let rows: usize = self.widths.iter().map(|width| width.div_ceil(columns).max(1)).sum();
        match (rows, self.progress.is_some()) {
            (0, _) => String::new(),
            (1, true) => "\r".into(),
            (rows, true) => format!("\x1b[{}A\r", rows - 1),
            (rows, false) => format!("\x1b[{rows}A\r"),
        }
    }
}

/// Finishes what is drawn: a live block stays above the next output, a progress line disappears.
pub fn finish_drawing() {
    progress_end();
    *lock_drawn() = Drawn::nothing();
}

/// Removes what is drawn. A live block is drawn again below when its figures are due.
fn clear(drawn: &mut Drawn) {
    if let Some(Terminal { columns, .. }) = Terminal::of_errors().filter(|_| !drawn.widths.is_empty()) {
        let _ = write!(io::stderr(), "{}\x1b[J", drawn.to_top(columns)); // a failure does no harm
    }
    *drawn = Drawn::nothing();
}

/// Prints on standard error why the command cannot do what was asked.
pub fn error(text: impl Display) {
    message("pagepool:", Some(Colour::Bad), text);
}

/// Warns on standard error of what is probably not intended.
pub fn warn(text: impl Display) {
    message("pagepool: warning:", Some(Colour::Caution), text);
}

/// Prints a hint on standard error.
pub fn note(text: impl Display) {
    message("pagepool: note:", None, text);
}

/// Prints lines without a heading on standard error: figures beside JSON.
pub fn beside_json(text: impl Display) {
    print_error_line(&fitted(&plain(&text.to_string()), Terminal::of_errors(), ASIDE));
}

/// A text, folded to a terminal if there is one.
fn fitted(text: &str, terminal: Option<Terminal>, indent: usize) -> String {
    match terminal {
        Some(Terminal { columns, .. }) => fold(text, columns, indent).join("\n"),
        None => in_line(text),
    }
}

fn message(head: &str, colour: Option<Colour>, text: impl Display) {
    let terminal = Terminal::of_errors();
    let mut text = plain(&format!("{head} {text}")).into_owned();
    text = fitted(&text, terminal, INDENT);
    if let Some(colour) = colour {
        text = paint(head, colour, terminal.as_ref()) + text.strip_prefix(head).unwrap_or_default();
    }
    print_error_line(&text);
}

fn print_error_line(text: &str) {
    if Terminal::of_errors().is_some() {
        clear(&mut lock_drawn());
    }
    let _ = writeln!(io::stderr(), "{text}"); // a failure cannot be reported
}

/// Whether a write to standard output has failed.
pub fn failed() -> bool {
    FAILURE.get().is_some()
}

/// Records that standard output could not be written, and why.
pub fn fail(error: &io::Error) {
    let why = (error.kind() != io::ErrorKind::BrokenPipe).then(|| reason(error));
    let _ = FAILURE.set(why); // the first reason counts
}

/// The error in the kernel's words, without the number that Rust adds.
fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    text.split_once(" (os error").map_or(text.clone(), |(text, _)| text.to_owned())
}

/// The exit status of the command: this one, or [`FAILED`](exit_status::FAILED) if its output could not be
/// written.
pub fn exit_status(status: ExitCode) -> ExitCode {
    let Some(Some(why)) = FAILURE.get() else { return status };
    error(format_args!("cannot write results: {why}"));
    exit_status::FAILED.into()
}

fn write(text: Arguments<'_>) {
    if failed() {
        return;
    }
    let mut output = io::stdout().lock();
    if let Err(error) = output.write_fmt(text).and_then(|()| output.flush()) {
        fail(&error);
    }
}
