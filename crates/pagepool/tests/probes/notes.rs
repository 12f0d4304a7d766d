//! The notes of an ELF file by which tracers find its probes (`.note.stapsdt`), read without a tool.

/// Where a probe is, and what it passes.
#[derive(Debug)]
pub struct Note {
    pub name: String,
    /// Bytes from the begin of the file to the instruction.
    pub offset: u64,
    pub semaphore: u64,
    /// Size and place of each argument: `-8@%rax`.
    pub args: Vec<String>,
}

/// The notes of a provider. The file is one of this machine's kind, for programs or libraries.
pub fn parse(file: &[u8], provider: &str) -> Vec<Note> {
    assert!(file.starts_with(b"\x7fELF\x02\x01"), "a 64-bit file, lowest byte first");
    let sections = headers(file, [0x28, 0x3a, 0x3c]);
    let names = offset_and_size(sections[usize::from(half(file, 0x3e))]);
    let named = |name: &str| {
        let is = |section: &&&[u8]| text(&file[names.0 + word(section, 0) as usize..]) == name;
        sections.iter().find(is)
    };
    let Some(notes) = named(".note.stapsdt") else { return Vec::new() };
    let base = named(".stapsdt.base").map(|section| long(section, 16));
    let (begin, size) = offset_and_size(notes);
    let mut rest = &file[begin..begin + size];
    let mut found = Vec::new();
    while !rest.is_empty() {
        let [name, desc] = [0, 4].map(|at| word(rest, at).next_multiple_of(4) as usize);
        let (note, after) = rest[12..].split_at(name + desc);
        rest = after;
        let desc = &note[name..];
        assert!(note.starts_with(b"stapsdt\0"));
        let texts: Vec<_> =
            desc[24..].split(|&byte| byte == 0).take(3).map(String::from_utf8_lossy).collect();
        if texts[0] != provider {
            continue;
        }
        assert_eq!(Some(long(desc, 8)), base, "nobody has moved the code since it was linked");
        found.push(Note {
            name: texts[1].clone().into_owned(),
            offset: offset_of(file, long(desc, 0)),
            semaphore: long(desc, 16),
            args: texts[2].split_whitespace().map(str::to_owned).collect(),
        });
    }
    found
}

/// The headers of a table, which the file's header describes at these places.
fn headers(file: &[u8], [table, size, count]: [usize; 3]) -> Vec<&[u8]> {
    let size = usize::from(half(file, size));
    file[long(file, table) as usize..].chunks(size).take(half(file, count).into()).collect()
}

/// Where a section is in the file, and how long.
fn offset_and_size(section: &[u8]) -> (usize, usize) {
    (long(section, 24) as usize, long(section, 32) as usize)
}

/// Where an address is in the file.
fn offset_of(file: &[u8], address: u64) -> u64 {
    let segments = headers(file, [0x20, 0x36, 0x38]);
    let loaded = segments.iter().filter(|segment| word(segment, 0) == 1); // PT_LOAD
    let inside = |segment: &&[u8]| {
        let from_begin = address.checked_sub(long(segment, 16))?;
        (from_begin < long(segment, 32)).then(|| long(segment, 8) + from_begin)
    };
    loaded.copied().find_map(|segment| inside(&segment)).expect("a probe is in a segment")
}

fn text(bytes: &[u8]) -> &str {
    let end = bytes.iter().position(|&byte| byte == 0).expect("a text ends with 0");
    str::from_utf8(&bytes[..end]).expect("ASCII")
}

fn half(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().expect("2 bytes"))
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}
