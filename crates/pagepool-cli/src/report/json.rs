//! The JSON output.

use serde::Serialize;

use super::output;

/// Prints a value as JSON, for programs.
pub fn print_json(value: &impl Serialize) {
    match serde_json::to_string_pretty(value) {
        Ok(text) => output::line(text),
        Err(error) => output::error(format_args!("the results cannot be written as JSON: {error}")),
    }
}
