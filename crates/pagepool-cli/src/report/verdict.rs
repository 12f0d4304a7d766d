//! The verdict of a run: rows for people, fields for programs, and a last line.
//!
//! Last line  one word for each exit status: PASS (0), FAIL with all reasons (1), that nothing moved (3),
//!            GONE (4). FAIL also says what is gone. Then it says what became of the buffers, and which share
//!            of the packets was lost.

use std::fmt;
use std::process::ExitCode;

use serde::{Serialize, Serializer};
use serde_json::Value;

use super::colour::Colour;
use super::json::print_json;
use super::loss::LossShare;
use super::number::grouped;
use super::{exit_status, output};

/// The column where the notes of rows begin.
const NOTE: usize = 48;
/// What a failed run says if no buffer is missing. Proofs may begin with it.
const RETURNED: &str = "every buffer was returned";

/// Figures, in the order of printing.
#[derive(Debug, Default)]
pub struct Verdict {
    fields: Vec<(&'static str, Value)>,
    /// Lines for people, each with the indent of its continuation.
    lines: Vec<(String, usize)>,
    failures: Vec<String>,
    /// No packets moved: without a failure nothing is proven.
    pub idle: bool,
    /// Which interface was removed, and how.
    pub gone: Option<String>,
    /// Whether a check found no buffer missing.
    pub returned: bool,
    /// Buffers that are not missing, because a back end kept them.
    pub kept: u64,
    /// What the last line says of lost packets.
    loss: Option<String>,
    /// What a good run proves, after `PASS`.
    proof: String,
}

impl Verdict {
    /// A verdict without failures so far. `proof`: what the run proves if that stays so.
    pub fn new(proof: impl Into<String>) -> Self {
        Self { lines: vec![(String::new(), 0)], proof: proof.into(), ..Self::default() }
    }

    pub fn field(&mut self, key: &'static str, value: impl Serialize) {
        self.fields.push((key, serde_json::to_value(value).unwrap_or(Value::Null)));
    }

    /// Adds a field to the JSON output if there is a value.
    pub fn some_field(&mut self, key: &'static str, value: Option<impl Serialize>) {
        if let Some(value) = value {
            self.field(key, value);
        }
    }

    pub fn row(&mut self, what: &str, count: u64, note: &str) {
        self.text_row(what, &grouped(count), note);
    }

    /// Adds a field, and a row with the same count.
    pub fn count(&mut self, key: &'static str, count: u64, what: &str, note: &str) {
        self.field(key, count);
        self.row(what, count, note);
    }

    /// Adds a row whose figure is not a count.
    pub fn text_row(&mut self, what: &str, figure: &str, note: &str) {
        let row = format!("{what:<32} {figure:>13}  {note}");
        self.lines.push((row.trim_end().to_owned(), NOTE));
    }

    pub fn line(&mut self, line: &str) {
        self.lines.push((line.to_owned(), 2));
    }

    /// Adds a line and an empty one.
    pub fn paragraph(&mut self, line: &str) {
        self.line(line);
        self.line("");
    }

    /// Fails the run if `count` is not 0, with the reason `count what`.
    pub fn fail_count(&mut self, count: u64, what: &str) {
        self.fail_if(count > 0, || format!("{} {what}", grouped(count)));
    }

    pub fn fail_if(&mut self, failed: bool, why: impl FnOnce() -> String) {
        if failed {
            self.failures.push(why());
        }
    }

    /// Records the losses, and fails the run if they exceed the limit.
    pub fn loss(&mut self, loss: &LossShare) {
        self.field("loss", loss);
        self.loss = loss.summary();
        self.failures.extend(loss.failure());
    }

    pub fn is_ok(&self) -> bool {
        self.failures.is_empty() && self.gone.is_none() && !self.idle
    }

    /// Why it did not pass.
    fn failures(&self) -> Vec<String> {
        let all: Vec<_> = self.failures.iter().chain(&self.gone).cloned().collect();
        match self.idle && all.is_empty() {
            true => vec![self.nothing_moved()],
            false => all,
        }
    }

    /// Prints the fields or the rows, and returns the status.
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

    pub fn status(&self) -> ExitCode {
        match (&self.gone, self.idle) {
            _ if !self.failures.is_empty() => exit_status::FAILED.into(),
            (Some(_), _) => exit_status::GONE.into(),
            (None, true) => exit_status::NOTHING_MOVED.into(),
            (None, false) => ExitCode::SUCCESS,
        }
    }

    /// The last line in place of PASS.
    fn nothing_moved(&self) -> String {
        format!("No packets moved. Buffers: all returned{}.", self.except_kept())
    }

    fn except_kept(&self) -> String {
        match self.kept {
            0 => String::new(),
            kept => format!(", except {} that a back end kept", grouped(kept)),
        }
    }

    fn last_line(&self) -> (Colour, String) {
        let all_returned = format!("{RETURNED}{}", self.except_kept());
        let proof = match self.proof.strip_prefix(RETURNED) {
            Some(rest) => format!("{all_returned}{rest}"),
            None => self.proof.clone(),
        };
        let returned = self.returned.then_some(&*all_returned);
        let (colour, word, parts) = match (&self.gone, self.idle) {
            _ if !self.failures.is_empty() => {
                let why = self.failures.iter().chain(&self.gone).map(String::as_str);
                (Colour::Bad, "FAIL", why.chain(returned).collect::<Vec<_>>())
            }
            (Some(gone), _) => (Colour::Caution, "GONE", vec![&**gone, &*proof]),
            (None, true) => {
                let lost = self.loss.as_ref().map_or_else(String::new, |loss| format!(" {loss}."));
                return (Colour::Caution, self.nothing_moved() + &lost);
            }
            (None, false) => (Colour::Good, "PASS", vec![&*proof]),
        };
        let parts = parts.into_iter().chain(self.loss.as_deref()).filter(|part| !part.is_empty());
        let parts = parts.collect::<Vec<_>>().join("; ");
        (colour, if parts.is_empty() { word.to_owned() } else { format!("{word}: {parts}") })
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
    use crate::report::loss::LossLimit;

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
        verdict.returned = true;
        assert_eq!(
            verdict.to_string(),
            format!("{shown}\nFAIL: 2 pages leaked; a link was down; every buffer was returned")
        );
    }

    #[test]
    fn buffers_and_lost_packets_are_in_every_last_line() {
        let lost = "25.0 % of 8 packets were lost (transmit 25.0 %)";
        let verdict = |max_loss| {
            let mut verdict = Verdict::new("every buffer was returned");
            verdict.loss(&LossShare::new(8, [("transmit", 2)], LossLimit { max_loss: Some(max_loss) }));
            verdict.returned = true;
            verdict
        };
        let last = |verdict: &Verdict| verdict.to_string().lines().last().unwrap_or_default().to_owned();
        let well = verdict(25.0);
        assert_eq!(last(&well), format!("PASS: every buffer was returned; {lost}"));
        assert_eq!((well.is_ok(), well.status()), (true, ExitCode::SUCCESS));
        let much = verdict(24.9);
        let why = "more packets were lost than --max-loss 24.9 allows";
        assert_eq!(last(&much), format!("FAIL: {why}; every buffer was returned; {lost}"));
        assert_eq!((much.is_ok(), much.status()), (false, ExitCode::FAILURE));
        let mut gone = verdict(100.0);
        gone.gone = Some("x:0 was removed".into());
        assert_eq!(last(&gone), format!("GONE: x:0 was removed; every buffer was returned; {lost}"));
        assert_eq!((gone.is_ok(), gone.status()), (false, exit_status::GONE.into()));
        assert_eq!(gone.failures(), ["x:0 was removed"]);
        gone.idle = true;
        assert_eq!(gone.status(), exit_status::GONE.into());
        gone.fail_count(1, "buffers were not returned");
        let failed = "FAIL: 1 buffers were not returned; x:0 was removed; every buffer was returned; ";
        assert_eq!(last(&gone), format!("{failed}{lost}"), "one word, and all reasons");
        assert_eq!(gone.failures(), ["1 buffers were not returned", "x:0 was removed"]);
        assert_eq!(gone.status(), ExitCode::FAILURE);
    }

    #[test]
    fn what_a_back_end_kept_is_an_exception_in_every_last_line() {
        let last = |change: fn(&mut Verdict)| {
            let mut verdict = Verdict::new("every buffer was returned, and more");
            (verdict.kept, verdict.returned) = (1024, true);
            change(&mut verdict);
            verdict.to_string().lines().last().unwrap_or_default().to_owned()
        };
        let kept = ", except 1,024 that a back end kept";
        assert_eq!(last(|_| {}), format!("PASS: every buffer was returned{kept}, and more"));
        assert_eq!(last(|of| of.fail_count(1, "x")), format!("FAIL: 1 x; every buffer was returned{kept}"));
        assert_eq!(last(|of| of.idle = true), format!("No packets moved. Buffers: all returned{kept}."));
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
        verdict.idle = true;
        assert_eq!(verdict.to_string(), "\n\nNo packets moved. Buffers: all returned.");
        let json = r#"{"ok":false,"failures":["No packets moved. Buffers: all returned."]}"#;
        assert_eq!(serde_json::to_string(&verdict).unwrap(), json);
        assert_eq!(verdict.print(true), ExitCode::from(exit_status::NOTHING_MOVED));
        verdict.fail_count(2, "pages leaked");
        assert_eq!(verdict.to_string(), "\n\nFAIL: 2 pages leaked");
        assert_eq!(verdict.print(true), ExitCode::FAILURE);
    }
}
