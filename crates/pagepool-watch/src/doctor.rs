//! The doctor: watches processes and the machine for some seconds, and finds what is slow, lost or leaking:
//! what was seen, why it costs, how to fix it, how to check the fix.
//!
//! How    An [`Examination`] looks several times. Each source collects evidence from one place; the [`RULES`]
//!        are pure functions of it; the [`DoctorReport`] has what they find. To add a rule, add a row beside
//!        its function in a file of `rules/`, with evidence that shows the fault and evidence that does not,
//!        and its name to the table of `rules.rs`.

mod evidence;
mod examination;
mod report;
mod rule;
mod rules;
mod sources;

pub use examination::{Examination, NoProcess};
pub use report::DoctorReport;
pub use rule::{Cost, Diagnosis, DoctorRule};
pub use rules::RULES;
