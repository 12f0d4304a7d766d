//! Colours of what matters most: the verdict, what was lost, errors and warnings.

use std::sync::OnceLock;

use clap::ColorChoice;

use super::terminal::Terminal;

/// What the user asked for.
static CHOICE: OnceLock<ColorChoice> = OnceLock::new();

/// How good something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colour {
    /// As it should be: green.
    Good,
    /// It may have been meant otherwise: yellow.
    Caution,
    /// It went wrong: red.
    Bad,
}

/// Follows `--color` from here on.
pub fn follow(choice: ColorChoice) {
    let _ = CHOICE.set(choice); // a process is asked once
}

/// What `--color` says among these arguments, before they are read: help and errors have colours, too.
pub fn asked(arguments: impl Iterator<Item = String>) -> ColorChoice {
    let mut before = String::new();
    for argument in arguments {
        let value = argument.strip_prefix("--color=").or((before == "--color").then_some(&*argument));
        if let Some(choice) = value.and_then(|value| value.parse().ok()) {
            return choice;
        }
        before = argument;
    }
    ColorChoice::Auto
}

/// The text in its colour, where it goes to this terminal or to none.
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

/// Whether there are colours, in text that goes to this terminal or to none. `NO_COLOR` that is not empty
/// turns them off (no-color.org).
pub fn is_on(terminal: Option<&Terminal>) -> bool {
    match CHOICE.get() {
        Some(ColorChoice::Always) => true,
        Some(ColorChoice::Never) => false,
        _ => terminal.is_some() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_choice_is_found_among_other_arguments() {
        let read = |text: &str| asked(text.split(' ').map(str::to_owned));
        assert_eq!(read("pagepool --color never drop x"), ColorChoice::Never);
        assert_eq!(read("pagepool drop x --color=always"), ColorChoice::Always);
        assert_eq!(read("pagepool drop --color blue"), ColorChoice::Auto, "an error that clap words");
    }
}
