//! The JSON output.

use serde::Serialize;

/// Prints a value as JSON, for programs.
pub fn print_json(value: &impl Serialize) {
    match serde_json::to_string_pretty(value) {
        Ok(text) => println!("{text}"),
        Err(error) => eprintln!("the results cannot be written as JSON: {error}"),
    }
}
