//! Texts of an allocation's stack, and of a call's place outside Rust code.
//!
//! Cost   names come from the program's debug information: up to milliseconds, and memory. A pool takes few
//!        stacks, and none by default. A place is looked up once.

use std::backtrace::Backtrace;
use std::fmt::Write;
use std::panic::Location;
use std::path::Path;

use crate::sys::call::program_place::program_place;
use crate::sys::call::uncancelled::uncancelled;

/// Frames with these names are the pool's own, in Rust.
const OWN: [&str; 4] = ["backtrace", "pagepool::holders::", "pagepool::pool::", "pagepool::sys::"];

/// Frames that may lie between those, if the compiler did not inline them.
const LIBRARY: [&str; 3] = ["core::", "std::", "alloc::"];

/// Our C and C++ headers. Their inline functions are not places of the program.
const HEADERS: [&str; 4] = ["/pagepool.h", "/pagepool.hpp", "/pagepool_skb.h", "/pagepool_skb.hpp"];

/// A running function, or one that is inlined into it.
#[derive(Debug)]
struct Frame<'a> {
    /// Its return address.
    address: usize,
    /// Empty if unknown.
    name: String,
    /// File, line and column; empty without debug information.
    place: &'a str,
}

/// Where an allocation is called.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CallPlace {
    Rust(&'static Location<'static>),
    /// In other code: the call's return address.
    Other(usize),
}

/// The calling thread's stack, one line a frame, beginning with the caller of the pool.
pub(crate) fn stack_text(at: CallPlace) -> String {
    let trace = trace();
    let frames = frames(&trace);
    let callers = match at {
        CallPlace::Other(behind) => callers_behind(&frames, behind),
        CallPlace::Rust(at) => callers_at(&frames, &at.to_string()),
    };
    let folder = std::env::current_dir().unwrap_or_default();
    let mut text = String::new();
    let runs = |frame: &&Frame<'_>| frame.address != 0 && !frame.name.contains("__rust_begin");
    for frame in callers.iter().take_while(runs) {
        let _ = match (&*frame.name, frame.place) {
            ("", "") => writeln!(text, "{}", program_place(frame.address)),
            ("", place) => writeln!(text, "{place}"),
            (name, "") => writeln!(text, "{name}"),
            (name, place) => match Path::new(place).strip_prefix(&folder) {
                Ok(below) => writeln!(text, "{name} at ./{}", below.display()),
                Err(_) => writeln!(text, "{name} at {place}"),
            },
        };
    }
    text
}

/// The place of a call on this thread's stack, by its return address `behind`: file, line and column; or
/// place in the program and function; or only the place in the program.
pub(crate) fn place_text(behind: usize) -> String {
    let trace = trace();
    let frames = frames(&trace);
    let Some(caller) = callers_behind(&frames, behind).first() else { return program_place(behind) };
    match (&*caller.name, caller.place) {
        ("", "") => program_place(caller.address),
        (name, "") => format!("{} in {name}", program_place(caller.address)), // tables cut the beginning
        (_, place) => place.to_owned(),
    }
}

/// The backtrace with addresses. Reads the program's files.
fn trace() -> String {
    uncancelled(|| format!("{:#}", Backtrace::force_capture()))
}

/// Parses a backtrace's text: lines `address - name`, each perhaps followed by `at place`.
fn frames(trace: &str) -> Vec<Frame<'_>> {
    let mut all: Vec<Frame<'_>> = Vec::new();
    for line in trace.lines().map(str::trim) {
        if let Some(place) = line.strip_prefix("at ") {
            all.iter_mut().last().into_iter().for_each(|frame| frame.place = place);
            continue;
        }
        let numbered = line.split_once(": ").and_then(|(_, rest)| rest.trim_start().split_once(" - "));
        let Some((address, name)) = numbered else { continue };
        let address = usize::from_str_radix(address.trim_start_matches("0x"), 16).unwrap_or(0);
        all.push(Frame { address, name: plain(name), place: "" });
    }
    all
}

/// The name without the compiler's hash (`name::h0123456789abcdef` or `crate[0123456789abcdef]::name`), or an
/// empty one.
fn plain(name: &str) -> String {
    let is_hash = |part: &str| (8..=16).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_hexdigit());
    let name = match name.rsplit_once("::h") {
        _ if name == "<unknown>" => "",
        Some((plain, hash)) if is_hash(hash) => plain,
        _ => name,
    };
    let mut parts = name.split('[');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once(']') {
            Some((hash, rest)) if is_hash(hash) => plain.push_str(rest),
            _ => plain.extend(["[", part]),
        }
    }
    plain
}

/// The frames from the Rust call at `place` on.
fn callers_at<'a, 'b>(frames: &'a [Frame<'b>], place: &str) -> &'a [Frame<'b>] {
    let is_there = |frame: &Frame<'_>| {
        let folder = frame.place.strip_suffix(place);
        folder.is_some_and(|folder| folder.is_empty() || folder.ends_with('/'))
    };
    match frames.iter().position(is_there) {
        Some(first) => &frames[first..],
        None => callers(frames), // without debug information
    }
}

/// The frames behind those of the pool, by their names.
fn callers<'a, 'b>(frames: &'a [Frame<'b>]) -> &'a [Frame<'b>] {
    let is = |names: &[&str], frame: &Frame<'_>| names.iter().any(|name| frame.name.contains(name));
    let others = |frame: &Frame<'_>| !is(&OWN, frame) && !is(&LIBRARY, frame);
    let first = frames.iter().position(others).unwrap_or(frames.len());
    let own = frames[..first].iter().rposition(|frame| is(&OWN, frame));
    &frames[own.map_or(0, |last| last + 1)..]
}

/// The frames from the one with this return address on. Skips frames of our headers.
fn callers_behind<'a, 'b>(frames: &'a [Frame<'b>], address: usize) -> &'a [Frame<'b>] {
    let first = frames.iter().position(|frame| frame.address == address).unwrap_or(frames.len());
    let of_header = frames[first..].iter().take_while(|frame| is_of_header(frame)).count();
    &frames[first + of_header..]
}

/// Whether a function is from our headers: by its file, or without debug information by a name that programs
/// do not use. A program's own C++ function may have our types in its name.
fn is_of_header(frame: &Frame<'_>) -> bool {
    if let Some(file) = frame.place.split(':').next().filter(|file| !file.is_empty()) {
        return HEADERS.iter().any(|header| file.ends_with(header));
    }
    let name = frame.name.split('.').next().unwrap_or_default(); // compilers append suffixes
    // _ZN12pagepool_cpp..., also of a constant method (K), or inside a function (_ZZN).
    let scope = name.strip_prefix("_Z").map(|mangled| mangled.trim_start_matches(['Z', 'N', 'K']));
    name.starts_with("pagepool_") && name.ends_with('_')
        || scope.is_some_and(|scope| scope.starts_with("12pagepool_cpp"))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const TRACE: &str = "   0:     0x55d0c0de1000 - std::backtrace_rs::trace::h0123456789abcdef\n        \
                         at /rustc/lib.rs:1:2\n   \
                         1:     0x55d0c0de1000 - pagepool::sys::call::uncancelled::uncancelled\n   \
                         2:     0x55d0c0de1100 - core::option::Option<T>::or_else\n   \
                         3:     0x55d0c0de1200 - pagepool::pool::refill::alloc\n             \
                         at /src/pool/refill.rs:3:4\n   \
                         4:     0x55d0c0de2000 - pagepool_alloc_page_\n             \
                         at /usr/include/pagepool.h:9:9\n   \
                         5:     0x55d0c0de2000 - receive\n             at /src/app.c:5:6\n   \
                         6:     0x55d0c0de3000 - <unknown>\n   7:     0x55d0c0de4000 - main\n";

    #[test]
    fn a_stack_begins_with_who_called_the_pool() {
        let frames = frames(TRACE);
        let names =
            |frames: &[Frame<'_>]| frames.iter().map(|frame| &*frame.name).collect::<Vec<_>>().join(" ");
        assert_eq!(names(callers(&frames)), "pagepool_alloc_page_ receive  main");
        assert_eq!(names(callers_at(&frames, "src/app.c:5:6")), "receive  main");
        assert_eq!(names(callers_at(&frames, "c/app.c:5:6")), names(callers(&frames)), "another file");
        assert_eq!(names(callers_behind(&frames, 0x55d0_c0de_2000)), "receive  main");
        assert_eq!(names(callers_behind(&frames, 0x55d0_c0de_3000)), " main");
        assert_eq!(names(callers_behind(&frames, 1)), "");
        assert_eq!((frames[5].place, &*frames[0].name), ("/src/app.c:5:6", "std::backtrace_rs::trace"));
        assert!(super::frames("disabled backtrace").is_empty());
    }

    #[test]
    fn a_function_of_the_program_may_have_our_types() {
        let is =
            |name: &str, place: &'static str| is_of_header(&Frame { address: 1, name: name.into(), place });
        assert!(is("pagepool_alloc_page_", "") && is("_ZN12pagepool_cpp5batchILm8EE4fillEP8pagepool", ""));
        assert!(is("_ZNK12pagepool_cpp10unique_buf4dataEv", "") && is("f", "/usr/include/pagepool.hpp:9:9"));
        let of_program = "_ZL4leakRN12pagepool_cpp5batchILm1EEEP8pagepool";
        assert!(!is(of_program, "") && !is(of_program, "/src/app.cc:3:1") && !is("pagepool_mine", ""));
    }

    #[test]
    fn names_are_as_in_the_source() {
        assert_eq!(
            plain("<std[e28293b1aa0f68bd]::backtrace::Backtrace>::create"),
            "<std::backtrace::Backtrace>::create"
        );
        assert_eq!(plain("app::receive::h0123456789abcdef"), "app::receive");
        assert_eq!(plain("<[u8; 4] as app::hold::hers>::all"), "<[u8; 4] as app::hold::hers>::all");
        assert_eq!(plain("<unknown>"), "");
    }

    #[test]
    fn functions_of_headers_are_known_by_file_or_name() {
        let of = |name: &str, place| is_of_header(&Frame { address: 0, name: name.to_owned(), place });
        assert!(of("", "/opt/include/pagepool.hpp:3:1") && of("pagepool_take_.part.0", ""));
        assert!(of("_ZN12pagepool_cpp5batchILm8EE4fillEP8pagepool", ""));
        assert!(!of("receive", "/src/app.c:1:1") && !of("pagepool_user", "") && !of("", ""));
    }
}
