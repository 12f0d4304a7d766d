//! Lays the C library out under a prefix.
fn main() {}
