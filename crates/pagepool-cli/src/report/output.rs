//! Where text goes: lines on standard output, messages on standard error.
//!
//! Names  in a text are others': what a terminal would obey, or not show, is escaped here, whatever says it.
//! Screen on a terminal nothing wraps but commands to be copied: long lines are folded. A live block is
//!        drawn over the one before, and a line of progress vanishes; whatever else is printed takes their
//!        place. In a pipe there are plain lines, and no progress.
//! What   standard output may end at any time: a full disk, a reader that goes, a closed terminal. The first
//!        write that fails is noted, and nothing more is printed there. A run looks at [`failed`] and ends in
//!        order; [`exit_status`] then says why, and makes the status of it. A reader that goes has read what
//!        it wanted: that is said to nobody, and the status is that of the run.
//! Why    `println!` panics instead, which ends the process at once: what was set on an interface would stay
//!        so. That standard error cannot be written is nothing that anybody could be told.

use std::fmt::{Arguments, Display};
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::{Mutex, OnceLock, PoisonError};

use super::colour::{Colour, paint};
use super::exit_status;
use super::live_table::LiveLine;
use super::terminal::{Terminal, fold, in_line, plain, width};

/// Why standard output could not be written: a process has one.
static FAILURE: OnceLock<WriteFailure> = OnceLock::new();

/// Why it could not.
enum WriteFailure {
    /// Its reader went.
    Unread,
    /// The kernel says why.
    Refused(String),
}

/// The indent of a line that goes on.
const INDENT: usize = 2;
/// That of figures beside JSON, which have an indent themselves.
const ASIDE: usize = 9;

/// What is on the terminal and goes when something else is printed.
static DRAWN: Mutex<Drawn> = Mutex::new(Drawn::nothing());

struct Drawn {
    /// Of each line.
    widths: Vec<usize>,
    /// A line of progress, on standard error and without an end of line.
    progress: Option<String>,
}

/// Prints a line.
pub fn line(text: impl Display) {
    hanging(&text.to_string(), INDENT, None);
}

/// Prints a line in its colour, if it has one, which goes on with this indent where it is folded.
pub fn hanging(text: &str, indent: usize, colour: Option<Colour>) {
    let (terminal, text) = (Terminal::of_output(), plain(text));
    let text = match terminal {
        Some(Terminal { columns, .. }) => fold(&text, columns, indent).join("\n"),
        None => in_line(&text),
    };
    let text = colour.map_or(text.clone(), |colour| paint(&text, colour, terminal.as_ref()));
    leave();
    write(format_args!("{text}\n"));
}

/// Prints text that has its ends of lines, is as wide as it shall be, and has no names that were not escaped.
pub fn whole(text: &str) {
    leave();
    write(format_args!("{text}"));
}

/// Prints the figures of now: on a terminal over those before, else as lines with an indent.
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
    let mut drawn = DRAWN.lock().unwrap_or_else(PoisonError::into_inner);
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

/// How far long work is: a line that goes when anything else is printed. Only on a terminal.
pub fn progress(text: impl Display) {
    let Some(Terminal { columns, .. }) = Terminal::of_errors() else { return };
    let text: String = plain(&text.to_string()).chars().take(columns - 1).collect();
    let mut drawn = DRAWN.lock().unwrap_or_else(PoisonError::into_inner);
    // A live block says more.
    if drawn.progress.is_none() && !drawn.widths.is_empty() || drawn.progress.as_ref() == Some(&text) {
        return;
    }
    let mut errors = io::stderr().lock();
    let _ = write!(errors, "\r{text}\x1b[K").and_then(|()| errors.flush()); // it helps only
    *drawn = Drawn { widths: vec![width(&text)], progress: Some(text) };
}

/// The long work is done: its line goes.
pub fn progress_end() {
    let mut drawn = DRAWN.lock().unwrap_or_else(PoisonError::into_inner);
    if drawn.progress.is_some() {
        clear(&drawn);
        *drawn = Drawn::nothing();
    }
}

impl Drawn {
    const fn nothing() -> Self {
        Self { widths: Vec::new(), progress: None }
    }

    /// What moves the cursor to its first line.
    fn to_top(&self, columns: usize) -> String {
        // A terminal that became narrower has wrapped them.
        let rows: usize = self.widths.iter().map(|width| width.div_ceil(columns).max(1)).sum();
        match (rows, self.progress.is_some()) {
            (0, _) => String::new(),
            (1, true) => "\r".into(),
            (rows, true) => format!("\x1b[{}A\r", rows - 1),
            (rows, false) => format!("\x1b[{rows}A\r"),
        }
    }
}

/// Leaves what is drawn: a live block stays above what comes, a line of progress goes.
pub fn leave() {
    let mut drawn = DRAWN.lock().unwrap_or_else(PoisonError::into_inner);
    if drawn.progress.is_some() {
        clear(&drawn);
    }
    *drawn = Drawn::nothing();
}

/// Takes what is drawn away; a live block is drawn again below when its figures are due.
fn clear(drawn: &Drawn) {
    if let Some(Terminal { columns, .. }) = Terminal::of_errors().filter(|_| !drawn.widths.is_empty()) {
        let _ = write!(io::stderr(), "{}\x1b[J", drawn.to_top(columns)); // it is out of the way, or not
    }
}

/// Says on standard error why the command does not do what it was asked to.
pub fn error(text: impl Display) {
    message("pagepool:", Some(Colour::Bad), text);
}

/// Says on standard error what goes otherwise than it was probably meant.
pub fn warn(text: impl Display) {
    message("pagepool: warning:", Some(Colour::Caution), text);
}

/// Says on standard error what is good to know.
pub fn note(text: impl Display) {
    message("pagepool: note:", None, text);
}

/// Prints lines on standard error that are no message: figures beside JSON.
pub fn aside(text: impl Display) {
    let text = text.to_string();
    match Terminal::of_errors() {
        Some(Terminal { columns, .. }) => say(&fold(&plain(&text), columns, ASIDE).join("\n")),
        None => say(&in_line(&plain(&text))),
    }
}

fn message(head: &str, colour: Option<Colour>, text: impl Display) {
    let terminal = Terminal::of_errors();
    let mut text = plain(&format!("{head} {text}")).into_owned();
    text = match terminal {
        Some(Terminal { columns, .. }) => fold(&text, columns, INDENT).join("\n"),
        None => in_line(&text),
    };
    if let Some(colour) = colour {
        text = paint(head, colour, terminal.as_ref()) + text.strip_prefix(head).unwrap_or_default();
    }
    say(&text);
}

fn say(text: &str) {
    if Terminal::of_errors().is_some() {
        let mut drawn = DRAWN.lock().unwrap_or_else(PoisonError::into_inner);
        clear(&drawn);
        *drawn = Drawn::nothing();
    }
    let _ = writeln!(io::stderr(), "{text}"); // there is nobody else to tell
}

/// Whether standard output could not be written.
pub fn failed() -> bool {
    FAILURE.get().is_some()
}

/// Standard output could not be written, for this reason.
pub fn fail(error: &io::Error) {
    let why = match error.kind() {
        io::ErrorKind::BrokenPipe => WriteFailure::Unread,
        _ => WriteFailure::Refused(said(error)),
    };
    let _ = FAILURE.set(why); // the first reason counts
}

/// What the kernel says, without the number that Rust adds.
fn said(error: &io::Error) -> String {
    let text = error.to_string();
    text.split_once(" (os error").map_or(text.clone(), |(text, _)| text.to_owned())
}

/// The status that a command ends with: this one, unless it could not print what it had to.
pub fn exit_status(status: ExitCode) -> ExitCode {
    let Some(WriteFailure::Refused(why)) = FAILURE.get() else { return status };
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
