//! The package of the command `pagepool`, which forwards, drops, echoes and generates packets over AF_XDP,
//! shows what other processes publish of their pools, and measures the page pool.
//!
//! `cargo install pagepool-cli --features full` installs it. There is nothing to call here: programs use the
//! crates `pagepool` and `pagepool-net`. The library is what the package's own tests depend on, to turn the
//! feature on.
//!
//! # Features
//!
//! * `full`: the commands `top`, `install`, `man` and `completions`.
