//! The doctor: looks at processes and the machine for some seconds, and says what is wrong, by rules.
//!
//! How    [`sources`] collect [`evidence::Evidence`], each from one place; the [`rules`] are pure functions
//!        of it, one row of a table each; [`report`] prints what they find. Adding a rule: a row beside its
//!        function in a file of `rules/`, with evidence that shows it and evidence that does not, and its
//!        name in the table of `rules.rs`.

pub mod evidence;
pub mod report;
pub mod rule;
pub mod rules;
pub mod sources;
