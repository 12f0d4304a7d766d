//! What the commands that observe other processes show: `list`, `show`, `top`, `clean`, `export`.

pub mod details;
pub mod json;
pub mod look;
pub mod metrics_server;
pub mod metrics_text;
pub mod options;
pub mod overview;
pub mod selection;
