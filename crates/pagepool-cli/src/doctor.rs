//! The doctor: watches processes and the machine for some seconds, and reports what is wrong.
//!
//! How    Each of the [`sources`] collects [`evidence::Evidence`] from one place; the [`rules`] are pure
//!        functions of it; [`report`] prints what they find. To add a rule, add a row beside its function in
//!        a file of `rules/`, with evidence that shows the fault and evidence that does not, and its name to
//!        the table of `rules.rs`.

pub mod evidence;
pub mod report;
pub mod rule;
pub mod rules;
pub mod sources;
