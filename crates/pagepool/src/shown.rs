//! Makes foreign texts safe for a terminal: names of processes, interfaces and files.

use std::borrow::Cow;
use std::path::Path;

/// Whether a terminal shows a character as it is: no control character, no mark that changes the direction of
/// text, nothing invisible.
///
/// ```
/// use pagepool::published::is_shown;
/// assert!(['a', '~', ' ', 'é', '中'].into_iter().all(is_shown));
/// assert!(!['\n', '\u{1b}', '\u{9b}', '\u{202e}', '\u{200b}', '\u{3164}'].into_iter().any(is_shown));
/// ```
pub fn is_shown(c: char) -> bool {
    if c.is_ascii() {
        return !c.is_ascii_control();
    }
    let mut pair = [b'x'; 5]; // behind a letter, where a combining mark is not escaped
    let end = 1 + c.encode_utf8(&mut pair[1..]).len();
    !is_blank(c) && std::str::from_utf8(&pair[..end]).is_ok_and(|pair| pair.escape_debug().nth(1) == Some(c))
}

/// Letters and marks that are drawn as nothing (Unicode's Default_Ignorable_Code_Point in these categories),
/// and the empty Braille pattern.
fn is_blank(c: char) -> bool {
    matches!(
        c,
        '\u{34f}'
            | '\u{115f}'..='\u{1160}'
            | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{2800}'
            | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{ffa0}'
            | '\u{e0100}'..='\u{e01ef}'
    )
}

/// Escapes all that a terminal does not [show](is_shown), ends of lines included: the result is one line.
/// Also escapes a leading mark that would combine with the text before.
///
/// ```
/// use pagepool::published::shown;
/// assert_eq!(shown("eth0"), "eth0");
/// assert_eq!(shown("a\u{1b}[31m\u{202e}b\n"), "a\\u{1b}[31m\\u{202e}b\\n");
/// ```
pub fn shown(text: &str) -> Cow<'_, str> {
    let first = text.chars().next().filter(|c| !c.is_ascii() && is_shown(*c));
    match first.filter(|c| c.escape_debug().next() != Some(*c)) {
        Some(mark) => (escaped(mark).collect::<String>() + &shown(&text[mark.len_utf8()..])).into(),
        None => shown_except(text, |_| false),
    }
}

/// A path, escaped like a [`shown`] text.
///
/// ```
/// use pagepool::published::shown_path;
/// assert_eq!(shown_path("/run/a\nb".as_ref()), "/run/a\\nb");
/// ```
pub fn shown_path(path: &Path) -> String {
    shown(&path.to_string_lossy()).into_owned()
}

/// Escapes a text like [`shown`], except characters for which `stays` is true.
///
/// ```
/// use pagepool::published::shown_except;
/// assert_eq!(shown_except("a\n\tb", |c| c == '\n'), "a\n\\tb");
/// ```
pub fn shown_except(text: &str, stays: impl Fn(char) -> bool) -> Cow<'_, str> {
    if text.chars().all(|c| is_shown(c) || stays(c)) {
        return text.into();
    }
    let mut all = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match is_shown(c) || stays(c) {
            true => all.push(c),
            false => all.extend(escaped(c)),
        }
    }
    all.into()
}

fn escaped(c: char) -> impl Iterator<Item = char> {
    let has_short = matches!(c, '\t' | '\r' | '\n' | '\0');
    let short = has_short.then(|| c.escape_debug());
    let long = (!has_short).then(|| c.escape_unicode());
    short.into_iter().flatten().chain(long.into_iter().flatten())
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
    fn what_is_drawn_as_nothing_or_on_the_text_before_is_escaped() {
        for c in "\u{3164}\u{115f}\u{fe0f}\u{34f}\u{17b4}\u{e0100}\u{2800}".chars() {
            assert_eq!(shown(&format!("a{c}b")), format!("a{}b", c.escape_unicode()));
        }
        assert_eq!(shown("\u{301}a\u{301}"), "\\u{301}a\u{301}");
    }

    #[test]
    fn text_in_any_language_stays() {
        for text in ["", "eth0 ~\"'\\", "für", "e\u{301}", "日本語", "हिन्दी", "שלום", "│█µ…→"]
        {
            assert_eq!(shown(text), text);
        }
    }
}
