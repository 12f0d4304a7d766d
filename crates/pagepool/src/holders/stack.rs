//! The stack of an allocation, as text.
//!
//! Cost   names are looked up in the program's debug information: up to milliseconds, and memory. So a pool
//!        takes few of its allocations' stacks, and none unless it was asked to.

use std::backtrace::Backtrace;
use std::fmt::Write;

use crate::sys::call::uncancelled::uncancelled;

/// Frames of these are how the pool came here.
const OWN: [&str; 4] = ["backtrace", "pagepool::holders::", "pagepool::pool::", "pagepool_capi::"];

/// The stack of the calling thread, a line a frame, from who called the pool.
pub(crate) fn stack_text() -> String {
    frames(&uncancelled(|| Backtrace::force_capture().to_string())) // which reads the files of the program
}

/// The frames of a backtrace's text, a line each.
fn frames(trace: &str) -> String {
    let mut all: Vec<(String, &str)> = Vec::new();
    for line in trace.lines().map(str::trim) {
        match (line.strip_prefix("at "), line.split_once(": ")) {
            (Some(place), _) => all.iter_mut().last().into_iter().for_each(|frame| frame.1 = place),
            (None, Some((_, name))) => all.push((name.to_owned(), "")),
            _ => {}
        }
    }
    let is_own = |frame: &&(String, &str)| OWN.iter().any(|own| frame.0.contains(own));
    let mut text = String::new();
    for (name, place) in all.iter().skip_while(is_own).take_while(|frame| !frame.0.contains("__rust_begin")) {
        let _ = match *place {
            "" => writeln!(text, "{name}"),
            place => writeln!(text, "{name} at {place}"),
        };
    }
    text
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_stack_begins_with_who_called_the_pool() {
        let trace = "   0: std::backtrace_rs::trace\n             at /rustc/lib.rs:1:2\n   \
                     1: pagepool::pool::refill::alloc\n             at src/pool/refill.rs:3:4\n   \
                     2: app::receive\n             at ./src/main.rs:5:6\n   3: main\n   \
                     4: std::sys::__rust_begin_short_backtrace\n   5: start\n";
        assert_eq!(frames(trace), "app::receive at ./src/main.rs:5:6\nmain\n");
        assert_eq!(frames("disabled backtrace"), "");
    }
}
