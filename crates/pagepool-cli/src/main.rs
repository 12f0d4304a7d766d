//! The pagepool command.
fn main() {}
