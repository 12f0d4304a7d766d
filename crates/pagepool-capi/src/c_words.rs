//! Error texts of the core in the words of C: the fields, constants and functions of the header.
//!
//! Why    the core names parameters and remedies as in Rust. Most are equal in C; these are not.
//! Checks a test reads the texts of the core, and finds those that still have words of Rust alone.

use ::pagepool::Error;

/// Fields that have another name in C.
const FIELDS: &[(&str, &str)] = &[
    ("addr", "memory"),         // of the caller's memory
    ("len_bytes", "max_bytes"), // of the caller's and of a device's
    ("on_busy.ahead", "skip_ahead"),
    ("blocks", "packets"),
];

/// Phrases that are different in C.
const PHRASES: &[(&str, &str)] = &[
    ("set on_missing_huge: Fallback", "set huge_or_fail to 0 (pagepool_open: without PAGEPOOL_HUGE_OR_FAIL)"),
    ("use the backing Huge2M", "use PAGEPOOL_BACKING_HUGE_2M"),
    ("whose pages fit the provider's", "whose pages fit the arena's"),
    ("a node of the provider", "a node of the arena"),
    ("pools have ended and their buffers are returned, or use another registry", "pools have ended"),
    (
        "cow_head adds headroom, add_frag adds data",
        "pagepool_skb_cow_head adds headroom, pagepool_skb_add_buf adds data",
    ),
];

/// The text of an error of the core, in the words of C.
#[cold]
pub(crate) fn of_error(error: Error) -> String {
    in_c(match error {
        Error::Parameter { field, value, must_be } => {
            let field = FIELDS.iter().find(|(rust, _)| *rust == field).map_or(field, |(_, c)| c);
            format!("{field} is {value}, but must be {must_be}")
        }
        other => other.to_string(),
    })
}

/// A text of the core, in the words of C.
#[cold]
pub(crate) fn in_c(text: String) -> String {
    PHRASES.iter().fold(text, |text, (rust, c)| text.replace(rust, c))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use super::*;

    /// Texts of the core that no call from C returns.
    const RUST_ALONE: &[&str] = &[
        "another backing: use Arena::over_caller_memory for the caller's memory", // C has its own way there
        "Keep with defer_capacity 0, because no buffer can wait",                 // C checks that before
        "false in a pool without domains",                                        // and that
    ];

    /// What `Debug` prints for packets.
    const DEBUG: &[&str] = &["SkbOwner(", "SkBuff {{"];

    /// Words that only Rust has.
    const WORDS: &[&str] =
        &["true", "false", "Fallback", "Fail", "Keep", "Skip", "Caller", "Some", "None", "Ok", "Err"];

    fn sources() -> Vec<(PathBuf, String)> {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut folders = ["pagepool/src", "pagepool-skb/src"].map(|src| crates.join(src)).to_vec();
        let mut sources = Vec::new();
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).expect("the core") {
                let path = entry.expect("it is being listed").path();
                match path.is_dir() {
                    true => folders.push(path),
                    false => sources.push((path.clone(), fs::read_to_string(path).expect("text"))),
                }
            }
        }
        sources
    }

    /// The texts between quotes, without comments, tests, and what panics or `Debug` print.
    fn texts(source: &str) -> Vec<String> {
        let tests = ["#[cfg(test)]", "#[cfg(all(test"].iter().filter_map(|mark| source.find(mark)).min();
        let code = &source[..tests.unwrap_or(source.len())];
        let lines = code.lines().map(str::trim).filter(|line| !line.starts_with("//"));
        let joined = lines.collect::<Vec<_>>().join("\n").replace("\\\n", "").replace("\\\"", "'");
        let parts: Vec<&str> = joined.split('"').collect();
        let others =
            ["assert", "expect(", "panic!", "unreachable!", "debug_struct", "debug_tuple", "reason = "];
        let said = parts.chunks(2).filter(|pair| pair.len() == 2).filter(|pair| {
            let statement = pair[0].rsplit([';', '{']).next().unwrap_or_default();
            !others.iter().any(|other| statement.contains(other))
        });
        said.map(|pair| pair[1].to_owned()).collect()
    }

    fn is_rusts(text: &str) -> bool {
        let words = || text.split(|c: char| !c.is_ascii_alphanumeric());
        let camel = |word: &str| {
            let inside = word.get(1..).unwrap_or_default();
            word.starts_with(|c: char| c.is_ascii_uppercase())
                && inside.contains(|c: char| c.is_ascii_uppercase())
                && inside.contains(|c: char| c.is_ascii_lowercase())
        };
        let units = ["KiB", "MiB", "GiB", "TiB", "LimitMEMLOCK"];
        text.contains("::")
            || words().any(|word| WORDS.contains(&word) || camel(word) && !units.contains(&word))
    }

    #[test]
    fn no_text_of_the_core_names_what_rust_alone_has() {
        let mut found = Vec::new();
        let mut seen = 0;
        for (path, source) in sources() {
            let said = texts(&source).into_iter().filter(|text| text.contains(' '));
            let said = said.filter(|text| !DEBUG.iter().any(|of_debug| text.starts_with(of_debug)));
            for text in said.filter(|text| !RUST_ALONE.contains(&text.as_str())) {
                seen += 1;
                let text = in_c(text);
                if is_rusts(&text) {
                    found.push(format!("{}: {text}", path.display()));
                }
            }
        }
        assert!(seen > 80 && found.is_empty(), "{seen} texts: {found:#?}");
    }

    #[test]
    fn what_is_said_otherwise_is_said_in_the_core() {
        let all: Vec<String> = sources().iter().flat_map(|(_, source)| texts(source)).collect();
        for (field, _) in FIELDS {
            assert!(all.iter().any(|text| text == field), "{field}: no error of the core names it");
        }
        let phrases = PHRASES.iter().map(|(phrase, _)| phrase);
        for phrase in phrases.chain(RUST_ALONE) {
            assert!(all.iter().any(|text| text.contains(phrase)), "{phrase}: the core does not say it");
        }
    }
}
