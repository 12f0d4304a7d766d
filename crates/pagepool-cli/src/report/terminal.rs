//! The terminals that show the output: their size, and folding text to it.

use std::borrow::Cow;
use std::io;

use pagepool_watch::shown_except;

use crate::sys;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terminal {
    pub columns: usize,
    pub rows: usize,
}

impl Terminal {
    /// The terminal of standard output, if there is one whose cursor moves.
    pub fn of_output() -> Option<Self> {
        Self::of(sys::terminal_size(io::stdout()))
    }

    /// The terminal of standard error, if there is one whose cursor moves.
    pub fn of_errors() -> Option<Self> {
        Self::of(sys::terminal_size(io::stderr()))
    }

    fn of(size: Option<(u16, u16)>) -> Option<Self> {
        let is_dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
        let (columns, rows) = size.filter(|_| !is_dumb)?;
        // A serial line does not know its size: assume the usual one.
        let or = |of: u16, usual| if of == 0 { usual } else { of.into() };
        Some(Self { columns: or(columns, 80), rows: or(rows, 24) })
    }
}

/// Stands before a command that users copy. A terminal shows the command on its own line, unfolded; elsewhere
/// a space replaces this. No name has this character: the kernel ends names with it.
pub const OWN_LINE: char = '\0';

/// Escapes what a terminal would obey or not show: a text may contain names that others chose. Line ends
/// stay.
pub fn plain(text: &str) -> Cow<'_, str> {
    shown_except(text, |c| c == '\n' || c == OWN_LINE)
}

/// A text as it is printed without a terminal.
pub fn in_line(text: &str) -> String {
    text.replace(OWN_LINE, " ")
}

/// Folds a text between words, so that no line is longer than the columns; continued lines have this indent.
/// Text between backticks stays together. So does a command after [`OWN_LINE`], up to the end of its line: a
/// narrower terminal wraps it, and still copies it whole.
pub fn fold(text: &str, columns: usize, indent: usize) -> Vec<String> {
    let indent = indent.min(columns * 2 / 3);
    let mut lines = Vec::new();
    for line in text.lines() {
        let mut commands = line.split(OWN_LINE);
        let line = commands.next().unwrap_or_default();
        let mut now = String::new();
        for part in parts(line) {
            let width = width(&now) + width(part.trim_end());
            if width > columns && !now.trim().is_empty() {
                lines.push(now.trim_end().to_owned());
                now = " ".repeat(indent) + part.trim_start();
            } else {
                now += part;
            }
        }
        lines.push(now.trim_end().to_owned());
        lines.extend(commands.map(|command| " ".repeat(indent) + command));
    }
    lines
}

pub fn width(text: &str) -> usize {
    text.chars().count()
}

/// The parts that stay together, each with the spaces after it: words, and text between backticks.
fn parts(line: &str) -> Vec<&str> {
    let (mut parts, mut start, mut quoted, mut is_indent) = (Vec::new(), 0, false, true);
    for (at, of) in line.char_indices() {
        quoted ^= of == '`';
        is_indent &= of == ' ';
        let next = line[at + of.len_utf8()..].chars().next();
        if of == ' ' && next.is_some_and(|next| next != ' ') && !quoted && !is_indent {
            parts.push(&line[start..=at]);
            start = at + 1;
        }
    }
    parts.extend(Some(&line[start..]).filter(|part| !part.is_empty()));
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_control_the_terminal() {
        let said = plain("a\u{1b}[31m\u{202e} is\u{9b} down.\r\n\u{2066}Run:\0x\u{2028}");
        assert_eq!(said, "a\\u{1b}[31m\\u{202e} is\\u{9b} down.\\r\n\\u{2066}Run:\0x\\u{2028}");
        assert_eq!(in_line(&said).lines().nth(1), Some("\\u{2066}Run: x\\u{2028}"));
    }

    #[test]
    fn a_text_is_folded_between_words_and_commands_stay_whole() {
        assert_eq!(fold("  one two", 20, 2), ["  one two"]);
        assert_eq!(fold("one two three", 8, 2), ["one two", "  three"]);
        assert_eq!(fold("a `b c d` e", 8, 2), ["a", "  `b c d`", "  e"]);
        let command = format!("packets have none. Run:{OWN_LINE}ethtool -K y tx off tso off");
        let folded = ["packets have none.", "  Run:", "  ethtool -K y tx off tso off"];
        assert_eq!(fold(&command, 20, 2), folded);
        assert_eq!(fold(&format!("{command}{OWN_LINE}b"), 20, 2)[3..], ["  b"], "two commands");
        let row = ["row      1,000", "            note", "            of it"];
        assert_eq!(fold("row      1,000  note of it", 18, 15), row);
        assert_eq!(
            fold("averyveryverylongword", 8, 2),
            ["averyveryverylongword"],
            "which the terminal wraps"
        );
    }
}
