//! Colours for the verdict, losses, errors and warnings.

use super::terminal::Terminal;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colour {
    /// As intended: green.
    Good,
    /// Perhaps not intended: yellow.
    Caution,
    /// It failed: red.
    Bad,
}

/// Paints the text in its colour, if [`is_on`] for this terminal.
pub fn paint(text: &str, colour: Colour, terminal: Option<&Terminal>) -> String {
    let number = match colour {
        Colour::Good => 32,
        Colour::Caution => 33,
        Colour::Bad => 31,
    };
    match is_on(terminal) {
        true => format!("\x1b[{number}m{text}\x1b[0m"),
        false => text.to_owned(),
    }
}

/// Whether text is painted that goes to this terminal, or to a file or pipe (`None`). `NO_COLOR`
/// (no-color.org) turns colours off; `CLICOLOR_FORCE` turns them on for files and pipes, too. A
/// variable that is empty or 0 does nothing.
pub fn is_on(terminal: Option<&Terminal>) -> bool {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty() && value != "0");
    !is_set("NO_COLOR") && (terminal.is_some() || is_set("CLICOLOR_FORCE"))
}
