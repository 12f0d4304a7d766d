//! The kernel alone.

pub fn run(_words: &[&str]) -> Result<String, String> {
    Err("not yet".into())
}
