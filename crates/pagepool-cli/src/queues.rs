//! The queues of a run: their names, the packets that they lost, and their figures as JSON lines.

pub mod json_lines;
pub mod losses;
pub mod published_run;
pub(crate) mod queue_figures;
pub mod queue_name;
