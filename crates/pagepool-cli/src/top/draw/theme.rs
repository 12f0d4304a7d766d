//! The styles. Colours only repeat what a text says.

use ratatui::style::{Color, Modifier, Style};

use crate::report::Colour;

#[derive(Clone, Copy, Debug)]
pub struct TopTheme {
    pub has_colours: bool,
}

impl TopTheme {
    pub fn colour(self, colour: Color) -> Style {
        if self.has_colours { Style::new().fg(colour) } else { Style::new() }
    }

    /// The colours of the other commands.
    pub fn judged(self, colour: Option<Colour>) -> Style {
        match colour {
            None => Style::new(),
            Some(Colour::Good) => self.colour(Color::Green),
            Some(Colour::Caution) => self.colour(Color::Yellow),
            Some(Colour::Bad) => self.colour(Color::Red).add_modifier(Modifier::BOLD),
        }
    }

    pub fn heading(self) -> Style {
        self.colour(Color::Cyan).add_modifier(Modifier::BOLD)
    }

    pub fn quiet(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    /// The selected row, and the line of heads.
    pub fn selected(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }
}
