//! A screen of a terminal as a picture: SVG, for the documents.

use std::fmt::Write;

use vt100::{Cell, Color, Screen};

/// Pixels of a character, and of the frame around all.
const WIDTH: usize = 8;
const HEIGHT: usize = 17;
const FRAME: usize = 8;
const TEXT: &str = "#d4d4d4";
const BACKGROUND: &str = "#1e1e1e";
/// The colours of a terminal, dark ones first, in the order of their numbers.
const PALETTE: [&str; 16] = [
    "#1e1e1e", "#e06c6c", "#7ec77e", "#d7ba5e", "#6ca6e8", "#c78be0", "#56c2c2", "#d4d4d4", "#808080",
    "#ff8f8f", "#a6e3a1", "#ffe08a", "#9cc9ff", "#e2b0f5", "#8be8e8", "#ffffff",
];

/// How a character looks.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Look {
    text: &'static str,
    background: &'static str,
    bold: bool,
    dim: bool,
}

impl Look {
    fn of(cell: &Cell) -> Self {
        let (mut text, mut background) = (colour(cell.fgcolor(), TEXT), colour(cell.bgcolor(), BACKGROUND));
        if cell.inverse() {
            std::mem::swap(&mut text, &mut background);
        }
        Self { text, background, bold: cell.bold(), dim: cell.dim() }
    }
}

fn colour(of: Color, default: &'static str) -> &'static str {
    match of {
        Color::Idx(number) => PALETTE.get(usize::from(number)).copied().unwrap_or(default),
        _ => default,
    }
}

/// The screen, drawn. What it says is text in the picture, too: a row is a line of `text` elements.
pub fn svg(screen: &Screen, title: &str) -> String {
    let (rows, columns) = screen.size();
    let (rows, columns) = (usize::from(rows.get()), usize::from(columns.get()));
    let (width, height) = (columns * WIDTH + 2 * FRAME, rows * HEIGHT + 2 * FRAME);
    let size = format!("width=\"{width}\" height=\"{height}\"");
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" {size} viewBox=\"0 0 {width} {height}\" \
         font-family=\"monospace\" font-size=\"13\">\n<title>{}</title>\n\
         <rect {size} rx=\"6\" fill=\"{BACKGROUND}\"/>\n",
        escaped(title)
    );
    for row in 0..rows {
        for (column, look, text) in runs(screen, row, columns) {
            add_run(&mut svg, (row, column), look, &text);
        }
    }
    svg + "</svg>\n"
}

/// Characters of one row that look the same, with the column of the first.
fn runs(screen: &Screen, row: usize, columns: usize) -> Vec<(usize, Look, String)> {
    let mut runs: Vec<(usize, Look, String)> = Vec::new();
    for column in 0..columns {
        let at = |of: usize| u16::try_from(of).expect("a screen is small");
        let cell = screen.cell(at(row), at(column)).expect("it is on the screen");
        let (look, text) = (Look::of(cell), if cell.has_contents() { cell.contents() } else { " " });
        match runs.last_mut() {
            Some((_, of, run)) if *of == look => run.push_str(text),
            _ => runs.push((column, look, text.to_owned())),
        }
    }
    runs
}

fn add_run(svg: &mut String, (row, column): (usize, usize), look: Look, text: &str) {
    let (x, y) = (FRAME + column * WIDTH, FRAME + row * HEIGHT);
    let pixels = |text: &str| text.chars().count() * WIDTH;
    if look.background != BACKGROUND {
        let (width, fill) = (pixels(text), look.background);
        let _ = writeln!(
            svg,
            "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{HEIGHT}\" fill=\"{fill}\"/>"
        );
    }
    let shown = text.trim();
    if shown.is_empty() {
        return;
    }
    let x = x + pixels(&text[..text.len() - text.trim_start().len()]);
    let bold = if look.bold { " font-weight=\"bold\"" } else { "" };
    let dim = if look.dim { " opacity=\"0.7\"" } else { "" };
    let _ = writeln!(
        svg,
        "<text x=\"{x}\" y=\"{}\" fill=\"{}\"{bold}{dim} textLength=\"{}\" xml:space=\"preserve\">{}</text>",
        y + HEIGHT - 4,
        look.text,
        pixels(shown),
        escaped(shown)
    );
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
