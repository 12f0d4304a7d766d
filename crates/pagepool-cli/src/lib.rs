//! The package of the command `pagepool`. It forwards, drops, echoes and generates packets over AF_XDP, shows
//! what other processes publish of their pools, and measures the page pool.
//!
//! `cargo install pagepool-cli --features full` installs it. The library has nothing to call: programs use
//! the crates `pagepool` and `pagepool-net`. It exists because the package's own tests depend on it, to turn
//! the feature on.
//!
//! # Features
//!
//! * `full`: the commands `top`, `man` and `completions`.
