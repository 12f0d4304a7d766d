//! The help, from the tables of keys, columns and places.

use ratatui::text::{Line, Span};

use super::theme::TopTheme;
use crate::top::columns::COLUMNS;
use crate::top::keys::BINDINGS;
use crate::top::rows::PLACES;

/// All lines; the screen shows a part.
pub fn lines(theme: TopTheme) -> Vec<Line<'static>> {
    let heading = |text: &'static str| Line::styled(text, theme.heading());
    let mut lines = vec![heading("Keys")];
    lines.extend(BINDINGS.iter().map(|(.., shown, about)| row(&format!("{shown:<27}"), about)));
    lines.extend([Line::default(), heading("Columns, with the key that sorts by each")]);
    lines.extend(COLUMNS.iter().map(|column| {
        let letter = column.letter.unwrap_or(' ');
        row(&format!("{letter} {:<8}", column.head), column.about)
    }));
    lines.push(row("  WHERE   ", "where its pages are, a letter for each part of them:"));
    let letters = PLACES.iter();
    lines.extend(letters.map(|place| {
        let letter = Span::styled(place.letter.to_string(), theme.colour(place.colour));
        Line::from(vec![Span::raw("            "), letter, Span::raw(format!("  {}", place.about))])
    }));
    lines.extend([
        Line::default(),
        Line::raw("DEAD: killed; its file shows what it held, until `pagepool clean`."),
        Line::raw("Rates are averages between two looks. What to do: docs/observing.md."),
    ]);
    lines
}

fn row(head: &str, about: &str) -> Line<'static> {
    Line::raw(format!("  {head} {about}"))
}
