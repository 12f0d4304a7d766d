//! Quotes names chosen by others in shell commands. Interface names may contain all bytes except blanks, `/`
//! and `:`; names of `ip netns` all except `/`.

/// A name as one word of a command for any POSIX shell, without bytes that a terminal would obey.
///
/// ```
/// use pagepool_link::shell_word;
/// assert_eq!((shell_word("eth0"), shell_word("a;b")), ("eth0".into(), "'a;b'".into()));
/// assert_eq!(shell_word("a\u{1b}"), r#""$(printf 'a\033')""#);
/// ```
pub fn shell_word(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._@-/:".contains(c);
    let octal = |byte: &u8| match char::from(*byte) {
        c if is_plain(c) => c.into(),
        _ => format!("\\{byte:03o}"),
    };
    match name {
        _ if !name.is_empty() && name.chars().all(is_plain) => name.into(),
        _ if name.chars().all(|c| matches!(c, ' '..='~')) => format!("'{}'", name.replace('\'', r"'\''")),
        // The shell writes bytes that a terminal would obey, or not show.
        _ => format!("\"$(printf '{}')\"", name.as_bytes().iter().map(octal).collect::<String>()),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_shell_reads_a_name_as_it_is_and_runs_nothing_of_it() {
        for plain in ["eth0", "veth-1.100", "a@b_c", "-n", "/bin/a:b"] {
            assert_eq!(shell_word(plain), plain);
        }
        assert_eq!(shell_word("a;reboot;#"), "'a;reboot;#'");
        for name in
            ["a;reboot;#", "", "it's", "$(id)`id`", "%s\\n\"", "\u{1b}[2J", "a\u{2028}b\u{202e}'", "é"]
        {
            let word = shell_word(name);
            assert!(word.chars().all(|c| matches!(c, ' '..='~')), "{word}");
            let read = Command::new("sh").args(["-c", &format!("printf %s {word}")]).output().unwrap();
            assert_eq!(String::from_utf8(read.stdout).unwrap(), name, "{word}");
        }
    }
}
