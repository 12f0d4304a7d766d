//! The numbers by which BPF programs call kernel functions, from the kernel's BTF (type information). Formats
//! are those of Documentation/bpf/btf.rst (v7.3), in the machine's byte order.

const MAGIC: u16 = 0xeb9f;
/// Bytes of a type, without data.
const TYPE: usize = 12;
const KIND_FUNC: u32 = 12;
/// The last known kind: long enumerations.
const NEWEST: u32 = 19;

/// Said of bytes that are no BTF.
const NONE: &str = "has no BTF";

/// The number of each function that the BTF has, or what is wrong with the file.
pub(super) fn functions<const N: usize>(btf: &[u8], names: [&str; N]) -> Result<[Option<u32>; N], String> {
    let (types, texts) = parts(btf).ok_or(NONE)?;
    let (mut found, mut at) = ([None; N], 0);
    for number in 1.. {
        if at >= types.len() {
            break;
        }
        let fixed = word(types, at).zip(word(types, at + 4));
        let (name, info) = fixed.ok_or(NONE)?;
        let kind = info >> 24 & 0x1f;
        if kind == KIND_FUNC {
            let name = texts.get(name as usize..).ok_or(NONE)?;
            let is = |of: &&str| name.starts_with(of.as_bytes()) && name.get(of.len()) == Some(&0);
            if let Some(place) = names.iter().position(is) {
                found[place] = Some(number);
            }
        }
        at += TYPE + following(kind, info as usize & 0xffff)?;
    }
    Ok(found)
}

fn parts(btf: &[u8]) -> Option<(&[u8], &[u8])> {
    if *btf.first_chunk()? != MAGIC.to_ne_bytes() {
        return None;
    }
    let header = word(btf, 4)? as usize;
    let part = |at| {
        let start = header.checked_add(word(btf, at)? as usize)?;
        btf.get(start..start.checked_add(word(btf, at + 4)? as usize)?)
    };
    Some((part(8)?, part(16)?))
}

/// Bytes that follow a type.
fn following(kind: u32, members: usize) -> Result<usize, String> {
    Ok(match kind {
        2 | 7..=12 | 16 | 18 => 0, // a pointer, a name, a qualifier, a function, a float
        1 | 14 | 17 => 4,          // an integer, a variable, a tag
        3 => 12,                   // an array
        4 | 5 | 15 | NEWEST => members * 12, // structures, sections, long enumerations
        6 | 13 => members * 8,     // enumerations, parameters
        0 => return Err(NONE.into()),
        // Of a later kernel, with data of unknown length.
        _ => {
            return Err(format!(
                "is of a newer kernel: it has types of kind {kind}; {NEWEST} is the last one known"
            ));
        }
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
        assert_eq!(found, Ok([Some(5), None, Some(4)]));
    }

    #[test]
    fn new_btf_kinds_are_distinguished_from_malformed_bytes() {
        let mut later = some();
        later[24 + 4..24 + 8].copy_from_slice(&((NEWEST + 1) << 24).to_ne_bytes()); // of the integer
        let error = functions(&later, ["first"]).unwrap_err();
        assert!(error.contains("of a newer kernel: it has types of kind 20; 19 is"), "{error}");
        later[24 + 4..24 + 8].fill(0);
        assert_eq!(functions(&later, ["first"]), Err(NONE.into()));
    }

    #[test]
    fn bytes_that_are_cut_or_changed_are_no_panic() {
        let whole = some();
        for len in 0..whole.len() {
            let _ = functions(&whole[..len], ["first"]);
        }
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] = 0xff;
            let _ = functions(&changed, ["first"]);
        }
        assert_eq!(functions(b"no types at all, but long enough", ["first"]), Err(NONE.into()));
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
