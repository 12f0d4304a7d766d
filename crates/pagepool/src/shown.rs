//! Texts that others chose, as a terminal may show them: names of processes, interfaces and files.

use std::borrow::Cow;

/// Whether a terminal shows a character as it is: no control character, no mark that changes the direction of
/// the text around it, none that nobody sees.
///
/// ```
/// use pagepool::observe::is_shown;
/// assert!(['a', '~', ' ', 'é', '中'].into_iter().all(is_shown));
/// assert!(!['\n', '\u{1b}', '\u{9b}', '\u{202e}', '\u{61c}', '\u{200b}'].into_iter().any(is_shown));
/// ```
pub fn is_shown(c: char) -> bool {
    if c.is_ascii() {
        return !c.is_ascii_control();
    }
    let mut pair = [b'x'; 5]; // behind a letter, where a combining mark is no reason to escape
    let end = 1 + c.encode_utf8(&mut pair[1..]).len();
    std::str::from_utf8(&pair[..end]).is_ok_and(|pair| pair.escape_debug().nth(1) == Some(c))
}

/// A text with all that a terminal does not [show](is_shown) escaped, ends of lines too: one line.
///
/// ```
/// use pagepool::observe::shown;
/// assert_eq!(shown("eth0"), "eth0");
/// assert_eq!(shown("a\u{1b}[31m\u{202e}b\n"), "a\\u{1b}[31m\\u{202e}b\\n");
/// ```
pub fn shown(text: &str) -> Cow<'_, str> {
    shown_but(text, |_| false)
}

/// The same, but for characters that stay as they are.
///
/// ```
/// use pagepool::observe::shown_but;
/// assert_eq!(shown_but("a\n\tb", |c| c == '\n'), "a\n\\tb");
/// ```
pub fn shown_but(text: &str, stays: impl Fn(char) -> bool) -> Cow<'_, str> {
    if text.chars().all(|c| is_shown(c) || stays(c)) {
        return text.into();
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match is_shown(c) || stays(c) {
            true => escaped.push(c),
            false => escaped.extend(c.escape_debug()),
        }
    }
    escaped.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_control_character_and_no_mark_of_direction_is_shown() {
        let marks = ['\u{61c}', '\u{200e}', '\u{200f}', '\u{feff}', '\u{ad}', '\u{2060}', '\u{e0041}'];
        let ranges = ['\0'..='\u{1f}', '\u{7f}'..='\u{9f}', '\u{2028}'..='\u{202e}', '\u{2066}'..='\u{2069}'];
        for c in ranges.into_iter().flatten().chain(marks) {
            assert!(!is_shown(c), "{c:?}");
            let (text, escaped) = (format!("a{c}b"), format!("a{}b", c.escape_debug()));
            assert_eq!(shown(&text), escaped);
            assert!(escaped.chars().all(is_shown), "{escaped}");
        }
    }

    #[test]
    fn text_in_any_language_stays() {
        for text in ["eth0 ~\"'\\", "für", "e\u{301}", "日本語", "हिन्दी", "שלום", "│█µ…→"]
        {
            assert_eq!(shown(text), text);
        }
    }
}
