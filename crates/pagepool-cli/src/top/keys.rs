//! The table of keys, which the help shows, and a decoder of the bytes that a terminal sends.
//!
//! Why    crossterm's reader of keys loops forever after the terminal was closed, and a signal does not end
//!        its wait for the rest of a sequence.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    Char(char),
    Ctrl(char),
    Enter,
    Escape,
    Backspace,
    Up,
    Down,
    Left,
    Right,
    PageUp,
    PageDown,
    Home,
    End,
    F(u8),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopAction {
    Help,
    Search,
    Filter,
    SortMenu,
    SortStep,
    Invert,
    ToggleKernel,
    Pause,
    ChangeDelay,
    Open,
    Back,
    Redraw,
    Suspend,
    Quit,
    Move,
}

/// Keys with one action, which may depend on the key; how the help shows them, and what it says of them.
pub type KeyBinding = (&'static [Key], TopAction, &'static str, &'static str);

/// All keys except the letters of columns.
pub const BINDINGS: &[KeyBinding] = &[
    (
        &[Key::Up, Key::Down, Key::PageUp, Key::PageDown, Key::Home, Key::End],
        TopAction::Move,
        "Up Down PgUp PgDn Home End",
        "move the selection",
    ),
    (&[Key::Enter], TopAction::Open, "Enter", "details of the selected pool, counters explained"),
    (&[Key::Escape], TopAction::Back, "Esc", "back; in the table: clear the filter"),
    (&[Key::F(3), Key::Char('/')], TopAction::Search, "F3 /", "search; F3 again: the next one"),
    (
        &[Key::F(4), Key::Char('\\')],
        TopAction::Filter,
        "F4 \\",
        "show only pools with these words, separated by |",
    ),
    (&[Key::F(6), Key::Char('.')], TopAction::SortMenu, "F6 .", "choose the column to sort by"),
    (
        &[Key::Char('<'), Key::Char('>')],
        TopAction::SortStep,
        "< >",
        "sort by the column to the left, to the right",
    ),
    (&[Key::Char('I')], TopAction::Invert, "I", "invert the order"),
    (&[Key::Char('K')], TopAction::ToggleKernel, "K", "hide or show the kernel's page pools"),
    (&[Key::Char(' '), Key::Char('Z')], TopAction::Pause, "Space Z", "pause or resume"),
    (
        &[Key::Char('+'), Key::Char('-')],
        TopAction::ChangeDelay,
        "+ -",
        "longer or shorter time between two looks",
    ),
    (&[Key::Ctrl('l')], TopAction::Redraw, "Ctrl-L", "redraw"),
    (&[Key::Ctrl('z')], TopAction::Suspend, "Ctrl-Z", "suspend; `fg` resumes"),
    (&[Key::F(1), Key::Char('h'), Key::Char('?')], TopAction::Help, "F1 h ?", "this help"),
    (
        &[Key::F(10), Key::Char('q'), Key::Ctrl('c')],
        TopAction::Quit,
        "F10 q",
        "back; in the table: quit (Ctrl-C: quit everywhere)",
    ),
];

pub fn action(key: Key) -> Option<TopAction> {
    BINDINGS.iter().find(|(keys, ..)| keys.contains(&key)).map(|(_, action, ..)| *action)
}

/// Decodes keys, and removes their bytes. An incomplete sequence stays. With `is_all` no more bytes follow: a
/// lone escape byte is the Escape key.
pub fn decode(bytes: &mut Vec<u8>, is_all: bool) -> Vec<Key> {
    let (mut keys, mut at) = (Vec::new(), 0);
    while let Some((key, length)) = first(&bytes[at..], is_all) {
        keys.extend(key);
        at += length;
    }
    bytes.drain(..at);
    keys
}

/// The first key (`None`: unknown), and its length in bytes.
fn first(bytes: &[u8], is_all: bool) -> Option<(Option<Key>, usize)> {
    let (&byte, more) = bytes.split_first()?;
    match byte {
        0x1b => match more {
            [] => is_all.then_some((Some(Key::Escape), 1)),
            [0x1b, ..] => Some((Some(Key::Escape), 1)),
            [b'O', of, ..] => Some((plain_final(*of), 3)),
            // F1 to F5 on the Linux console.
            [b'[', b'[', of, ..] => Some(((b'A'..=b'E').contains(of).then(|| Key::F(of - b'A' + 1)), 4)),
            [b'[', sequence @ ..] if sequence != b"[" => control(sequence, is_all),
            [b'O' | b'[', ..] => is_all.then_some((None, bytes.len())),
            [_, ..] => Some((None, 2)), // with Alt: ignored
        },
        b'\r' | b'\n' => Some((Some(Key::Enter), 1)),
        0x08 | 0x7f => Some((Some(Key::Backspace), 1)),
        1..=26 => Some((Some(Key::Ctrl(char::from(byte - 1 + b'a'))), 1)),
        0x20.. => character(bytes, is_all),
        _ => Some((None, 1)),
    }
}

/// A control sequence after its introducer: parameters and a final byte.
fn control(sequence: &[u8], is_all: bool) -> Option<(Option<Key>, usize)> {
    let Some(end) = sequence.iter().position(|byte| !(0x20..0x40).contains(byte)) else {
        return is_all.then_some((None, sequence.len() + 2));
    };
    let key = match sequence[end] {
        b'~' => numbered(&sequence[..end]),
        of => plain_final(of),
    };
    Some((key, end + 3))
}

fn plain_final(byte: u8) -> Option<Key> {
    Some(match byte {
        b'A' => Key::Up,
        b'B' => Key::Down,
        b'C' => Key::Right,
        b'D' => Key::Left,
        b'H' => Key::Home,
        b'F' => Key::End,
        b'P'..=b'S' => Key::F(byte - b'P' + 1),
        b'M' => Key::Enter, // of the keypad
        _ => return None,
    })
}

/// `5~` and similar; modifiers after a semicolon are ignored.
fn numbered(parameters: &[u8]) -> Option<Key> {
    let number = parameters.split(|byte| *byte == b';').next()?;
    Some(match std::str::from_utf8(number).ok()?.parse::<u8>().ok()? {
        1 | 7 => Key::Home,
        4 | 8 => Key::End,
        5 => Key::PageUp,
        6 => Key::PageDown,
        of @ 11..=15 => Key::F(of - 10),
        of @ 17..=21 => Key::F(of - 11),
        _ => return None,
    })
}

fn character(bytes: &[u8], is_all: bool) -> Option<(Option<Key>, usize)> {
    let length = match bytes[0] {
        0..0x80 => 1,
        0xc0..0xe0 => 2,
        0xe0..0xf0 => 3,
        0xf0.. => 4,
        _ => return Some((None, 1)),
    };
    let Some(bytes) = bytes.get(..length) else { return is_all.then_some((None, bytes.len())) };
    Some(match std::str::from_utf8(bytes) {
        Ok(text) => (text.chars().next().map(Key::Char), length),
        Err(_) => (None, 1),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Vec<Key> {
        let mut bytes = bytes.to_vec();
        let mut keys = decode(&mut bytes, false);
        keys.extend(decode(&mut bytes, true));
        assert!(bytes.is_empty(), "nothing stays");
        keys
    }

    #[test]
    fn keys_of_several_terminals_are_read() {
        assert_eq!(read(b"q\r\x7f\x0c"), [Key::Char('q'), Key::Enter, Key::Backspace, Key::Ctrl('l')]);
        assert_eq!(read(b"\x1b[A\x1bOB\x1b[1;5H"), [Key::Up, Key::Down, Key::Home], "with Ctrl, too");
        assert_eq!(read(b"\x1bOP\x1b[[C\x1b[14~\x1b[17~\x1b[21~"), [1, 3, 4, 6, 10].map(Key::F));
        assert_eq!(read(b"\x1b[5~\x1b[6~\x1b[1~\x1b[4~").len(), 4);
        assert_eq!(read("ä/€".as_bytes()), ['ä', '/', '€'].map(Key::Char));
    }

    #[test]
    fn a_split_escape_sequence_is_one_key_as_is_a_lone_escape() {
        let mut bytes = b"\x1b".to_vec();
        assert_eq!(decode(&mut bytes, false), []);
        bytes.extend(b"[");
        assert_eq!(decode(&mut bytes, false), []);
        bytes.extend(b"5~x");
        assert_eq!(decode(&mut bytes, false), [Key::PageUp, Key::Char('x')]);
        assert_eq!(read(b"\x1b"), [Key::Escape]);
        assert_eq!(read(b"\x1b\x1b[A"), [Key::Escape, Key::Up]);
    }

    #[test]
    fn any_bytes_are_read_to_their_end() {
        for seed in 0..20_000_u32 {
            let word = seed.wrapping_mul(0x9e37_79b9).to_le_bytes();
            let bytes: Vec<u8> = [&b"\x1b["[..], &word, b"\x1b", &word].concat();
            for start in 0..3 {
                read(&bytes[start..]);
            }
        }
    }

    #[test]
    fn no_key_does_two_things() {
        let all: Vec<_> = BINDINGS.iter().flat_map(|(keys, ..)| *keys).collect();
        for (at, key) in all.iter().enumerate() {
            assert!(!all[..at].contains(key), "{key:?}");
        }
    }
}
