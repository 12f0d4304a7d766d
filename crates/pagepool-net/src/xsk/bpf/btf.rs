//! The numbers of the kernel's functions in its own type information (BTF), by which BPF programs call them.
//! Formats are those of Documentation/bpf/btf.rst (v7.3), in the byte order of the machine.

const MAGIC: u16 = 0xeb9f;
/// Bytes of a type without what follows it.
const TYPE: usize = 12;
const KIND_FUNC: u32 = 12;

/// The number of each function, of those that there are. `None` for bytes that are no type information.
pub(super) fn functions<const N: usize>(btf: &[u8], names: [&str; N]) -> Option<[Option<u32>; N]> {
    let magic = btf.get(..2)?;
    if magic != MAGIC.to_ne_bytes() {
        return None;
    }
    let header = word(btf, 4)? as usize;
    let part = |at| -> Option<&[u8]> {
        let start = header.checked_add(word(btf, at)? as usize)?;
        btf.get(start..start.checked_add(word(btf, at + 4)? as usize)?)
    };
    let (types, texts) = (part(8)?, part(16)?);
    let (mut found, mut at) = ([None; N], 0);
    for number in 1.. {
        if at >= types.len() {
            break;
        }
        let info = word(types, at + 4)?;
        let kind = info >> 24 & 0x1f;
        if kind == KIND_FUNC {
            let name = texts.get(word(types, at)? as usize..)?;
            let is = |of: &&str| name.starts_with(of.as_bytes()) && name.get(of.len()) == Some(&0);
            if let Some(place) = names.iter().position(is) {
                found[place] = Some(number);
            }
        }
        at += TYPE + following(kind, info as usize & 0xffff)?;
    }
    Some(found)
}

/// Bytes that follow a type of this kind with so many members.
fn following(kind: u32, members: usize) -> Option<usize> {
    Some(match kind {
        2 | 7..=12 | 16 | 18 => 0, // a pointer, a name, a qualifier, a function, a float
        1 | 14 | 17 => 4,          // an integer, a variable, a tag
        3 => 12,                   // an array
        4 | 5 | 15 | 19 => members * 12, // structures, sections, long enumerations
        6 | 13 => members * 8,     // enumerations, parameters
        _ => return None,          // of a later kernel: what follows it is unknown
    })
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at.checked_add(4)?)?;
    bytes.try_into().ok().map(u32::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An integer, a structure of two members, and the functions `first` and `second`.
    fn some() -> Vec<u8> {
        let texts = b"\0first\0second\0firstly\0";
        let mut types: Vec<u32> = vec![0, 1 << 24, 4, 32];
        types.extend([0, 4 << 24 | 2, 8, 0, 1, 0, 0, 1, 32]);
        types.extend([14, 12 << 24, 1]); // firstly
        types.extend([1, 12 << 24, 1, 7, 12 << 24 | 1, 1]);
        let len = types.len() as u32 * 4;
        let header = [u32::from(MAGIC) | 1 << 16, 24, 0, len, len, texts.len() as u32];
        let words = header.iter().chain(&types).flat_map(|word| word.to_ne_bytes());
        words.chain(texts.iter().copied()).collect()
    }

    #[test]
    fn functions_have_the_number_of_their_type() {
        if cfg!(target_endian = "big") {
            return; // the header is written as words above
        }
        let found = functions(&some(), ["second", "third", "first"]);
        assert_eq!(found, Some([Some(5), None, Some(4)]));
    }

    #[test]
    fn bytes_that_are_cut_or_changed_are_no_panic() {
        let whole = some();
        for len in 0..whole.len() {
            functions(&whole[..len], ["first"]);
        }
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] = 0xff;
            functions(&changed, ["first"]);
        }
        assert_eq!(functions(b"no types at all, but long enough", ["first"]), None);
    }

    #[test]
    fn the_running_kernel_is_read() {
        let Ok(btf) = std::fs::read("/sys/kernel/btf/vmlinux") else {
            return println!("SKIP types of the kernel: CONFIG_DEBUG_INFO_BTF is off");
        };
        let [schedule, none] = functions(&btf, ["schedule", "no_such_function"]).expect("types");
        assert!(schedule.is_some() && none.is_none());
    }
}
