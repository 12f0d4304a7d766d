//! A line that is shown while a command runs.

use super::colour::Colour;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveLine {
    pub text: String,
    pub colour: Option<Colour>,
}

impl LiveLine {
    /// A line without a colour.
    pub fn plain(text: String) -> Self {
        Self { text, colour: None }
    }

    /// A line about losses.
    pub fn bad(text: String) -> Self {
        Self { text, colour: Some(Colour::Bad) }
    }
}
