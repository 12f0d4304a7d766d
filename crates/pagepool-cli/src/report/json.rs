//! The JSON output.

use std::fmt::Write;

use pagepool_watch::is_shown;
use serde::Serialize;
use serde_json::{Map, Value};

use super::output;

pub fn print_json(value: &impl Serialize) {
    match serde_json::to_string_pretty(value) {
        Ok(text) => output::line(escaped(&text)),
        Err(error) => output::error(format_args!("the results cannot be written as JSON: {error}")),
    }
}

/// Prints a value as one line, written at once.
pub fn print_json_line(value: &impl Serialize) {
    match serde_json::to_string(value) {
        Ok(text) => output::text(&(escaped(&text) + "\n")),
        Err(error) => output::error(format_args!("a line cannot be written as JSON: {error}")),
    }
}

/// Counts or other values as a JSON object.
pub fn object<V: Into<Value>>(fields: impl IntoIterator<Item = (&'static str, V)>) -> Map<String, Value> {
    fields.into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect()
}

/// Escapes characters that a terminal would obey or not show, as `\u` and four digits. JSON has them only in
/// strings.
fn escaped(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        match is_shown(c) || c == '\n' {
            true => text.push(c),
            false => c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| {
                let _ = write!(text, "\\u{unit:04x}"); // cannot fail
            }),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_strings_escape_control_characters_and_keep_their_value() {
        let name = "a\u{1b}[31m\u{7f}\u{9b}\u{202e}\u{2028}\u{e0041}é\n";
        let text = escaped(&serde_json::to_string(name).unwrap());
        assert!(text.chars().all(is_shown), "{text:?}");
        assert_eq!(serde_json::from_str::<String>(&text).unwrap(), name);
        assert!(text.contains(r"\u202e") && text.contains(r"\udb40\udc41"), "{text}");
    }
}
