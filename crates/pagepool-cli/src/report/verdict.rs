//! What became of a run: rows for people, fields for programs, and PASS, the reasons why not, or that nothing
//! moved, which is neither.

use std::fmt;
use std::process::ExitCode;

use serde::{Serialize, Serializer};
use serde_json::Value;

use super::colour::Colour;
use super::json::print_json;
use super::number::grouped;
use super::{exit_status, output};

/// Where the notes of rows begin.
const NOTE: usize = 48;
/// In place of PASS.
const NOTHING_MOVED: &str = "No packets moved. Buffers: all returned.";

/// Figures in the order in which they are printed.
#[derive(Debug)]
pub struct Verdict {
    fields: Vec<(&'static str, Value)>,
    /// What people read: lines, and how far each is indented where it goes on.
    lines: Vec<(String, usize)>,
    failures: Vec<String>,
    /// No packets moved: without a failure nothing is proven.
    idle: bool,
    /// What the command ends with, whether or not the run went well.
    status: Option<u8>,
    /// What a good run proves, behind `PASS`.
    proof: String,
}

impl Verdict {
    /// Of a run that went well so far, which proves this.
    pub fn new(proof: impl Into<String>) -> Self {
        Self {
            fields: Vec::new(),
            lines: vec![(String::new(), 0)],
            failures: Vec::new(),
            idle: false,
            status: None,
            proof: proof.into(),
        }
    }

    /// A field of the JSON output.
    pub fn field(&mut self, key: &'static str, value: impl Serialize) {
        self.fields.push((key, serde_json::to_value(value).unwrap_or(Value::Null)));
    }

    /// The same, where there is a value.
    pub fn some_field(&mut self, key: &'static str, value: Option<impl Serialize>) {
        if let Some(value) = value {
            self.field(key, value);
        }
    }

    /// A row: what, how many, and what else there is to say.
    pub fn row(&mut self, what: &str, count: u64, note: &str) {
        self.text_row(what, &grouped(count), note);
    }

    /// A field, and a row of the same count.
    pub fn count(&mut self, key: &'static str, count: u64, what: &str, note: &str) {
        self.field(key, count);
        self.row(what, count, note);
    }

    /// A row whose figure is no count.
    pub fn text_row(&mut self, what: &str, figure: &str, note: &str) {
        let row = format!("{what:<32} {figure:>13}  {note}");
        self.lines.push((row.trim_end().to_owned(), NOTE));
    }

    /// A line of its own.
    pub fn line(&mut self, line: &str) {
        self.lines.push((line.to_owned(), 2));
    }

    /// The same, with an empty one behind it, which folding keeps.
    pub fn paragraph(&mut self, line: &str) {
        self.line(line);
        self.line("");
    }

    /// The run failed if `count` is not 0: so many `what`.
    pub fn fail_count(&mut self, count: u64, what: &str) {
        self.fail_if(count > 0, || format!("{} {what}", grouped(count)));
    }

    /// The run failed if `failed`.
    pub fn fail_if(&mut self, failed: bool, why: impl FnOnce() -> String) {
        if failed {
            self.failures.push(why());
        }
    }

    /// No packets moved. A run without a failure then proves nothing but that buffers were returned.
    pub fn nothing_moved(&mut self) {
        self.idle = true;
    }

    /// The command ends with this status, whether or not the run went well.
    pub fn end_with(&mut self, status: u8) {
        self.status = Some(status);
    }

    /// Whether the run went well.
    pub fn is_ok(&self) -> bool {
        self.failures.is_empty() && !self.idle
    }

    /// Why not, as far as there is more to say than that nothing moved.
    fn failures(&self) -> Vec<String> {
        match (self.failures.is_empty(), self.idle) {
            (true, true) => vec![NOTHING_MOVED.into()],
            _ => self.failures.clone(),
        }
    }

    /// Prints the fields or the rows, and gives the status.
    pub fn print(&self, json: bool) -> ExitCode {
        if json {
            print_json(self);
        } else {
            self.lines.iter().for_each(|(line, indent)| output::hanging(line, *indent, None));
            let (colour, last) = self.last_line();
            output::line("");
            output::hanging(&last, 2, Some(colour));
        }
        self.status()
    }

    /// The status, which says whether the run went well.
    pub fn status(&self) -> ExitCode {
        match self.status {
            Some(status) => status.into(),
            None if self.is_ok() => ExitCode::SUCCESS,
            None if self.failures.is_empty() => exit_status::NOTHING_MOVED.into(),
            None => ExitCode::FAILURE,
        }
    }
}

impl Verdict {
    /// The line below all rows.
    fn last_line(&self) -> (Colour, String) {
        match (self.is_ok(), self.proof.as_str()) {
            (true, "") => (Colour::Good, "PASS".into()),
            (true, proof) => (Colour::Good, format!("PASS: {proof}")),
            (false, _) if self.failures.is_empty() => (Colour::Caution, NOTHING_MOVED.into()),
            (false, _) => (Colour::Bad, format!("FAIL: {}", self.failures.join("; "))),
        }
    }
}

impl Serialize for Verdict {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let verdict = [("ok", self.is_ok().into()), ("failures", self.failures().into())];
        serializer.collect_map(self.fields.iter().chain(&verdict).map(|(key, value)| (key, value)))
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines.iter().try_for_each(|(line, _)| writeln!(f, "{line}"))?;
        write!(f, "\n{}", self.last_line().1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_failure_fails_the_run_in_every_form() {
        let mut verdict = Verdict::new("all is home");
        verdict.field("packets", 5);
        verdict.some_field("gone", None::<u64>);
        verdict.row("packets", 5000, "received");
        let shown = format!("\n{:<32} {:>13}  received\n", "packets", "5,000");
        assert_eq!(verdict.to_string(), format!("{shown}\nPASS: all is home"));
        assert_eq!(serde_json::to_string(&verdict).unwrap(), r#"{"packets":5,"ok":true,"failures":[]}"#);
        verdict.fail_count(0, "pages leaked");
        assert!(verdict.is_ok());
        verdict.fail_count(2, "pages leaked");
        verdict.fail_if(true, || "a link was down".into());
        assert_eq!(verdict.to_string(), format!("{shown}\nFAIL: 2 pages leaked; a link was down"));
        assert_eq!(verdict.print(true), ExitCode::FAILURE);
        verdict.end_with(4);
        assert_eq!(verdict.print(true), ExitCode::from(4));
    }

    #[test]
    fn no_line_has_an_end_of_line_which_folding_would_drop() {
        let mut verdict = Verdict::new("");
        verdict.paragraph("warning: x");
        assert!(verdict.lines.iter().all(|(line, _)| !line.contains('\n')), "{:?}", verdict.lines);
        assert_eq!(verdict.to_string(), "\nwarning: x\n\n\nPASS");
    }

    #[test]
    fn a_run_that_moved_nothing_neither_passes_nor_hides_a_failure() {
        let mut verdict = Verdict::new("all is home");
        verdict.nothing_moved();
        assert_eq!(verdict.to_string(), "\n\nNo packets moved. Buffers: all returned.");
        let json = r#"{"ok":false,"failures":["No packets moved. Buffers: all returned."]}"#;
        assert_eq!(serde_json::to_string(&verdict).unwrap(), json);
        assert_eq!(verdict.print(true), ExitCode::from(exit_status::NOTHING_MOVED));
        verdict.fail_count(2, "pages leaked");
        assert_eq!(verdict.to_string(), "\n\nFAIL: 2 pages leaked");
        assert_eq!(verdict.print(true), ExitCode::FAILURE);
    }
}
