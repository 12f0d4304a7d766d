//! Structures and enumerations of the running kernel, as it describes them itself (BTF): what a layout is
//! held against. Formats are those of Documentation/bpf/btf.rst (v7.3).

const STRUCT: u32 = 4;
const UNION: u32 = 5;
const ENUM: u32 = 6;

/// A type: its name, its kind, and what follows it.
#[derive(Clone, Copy)]
struct Type<'a> {
    name: u32,
    kind: u32,
    words: &'a [u32],
}

/// The types of the kernel.
pub struct Types {
    words: Vec<u32>,
    texts: Vec<u8>,
}

/// Reads them, if the kernel has them.
pub fn of_kernel() -> Option<Types> {
    let bytes = std::fs::read("/sys/kernel/btf/vmlinux").ok()?;
    let word = |at: usize| u32::from_ne_bytes(*bytes[at..].first_chunk().expect("a header")) as usize;
    let part = |at| {
        let start = word(4) + word(at);
        &bytes[start..start + word(at + 4)]
    };
    let words = part(8).as_chunks().0.iter().map(|word| u32::from_ne_bytes(*word)).collect();
    Some(Types { words, texts: part(16).to_vec() })
}

impl Types {
    /// All of them; the first has the number 1.
    fn all(&self) -> Vec<Type<'_>> {
        let (mut types, mut at) = (Vec::new(), 0);
        while let [name, info, _, rest @ ..] = &self.words[at..] {
            let (kind, count) = (info >> 24 & 0x1f, (info & 0xffff) as usize);
            let following = match kind {
                1 | 14 | 17 => 1,
                3 => 3,
                STRUCT | UNION | 15 | 19 => 3 * count,
                ENUM | 13 => 2 * count,
                _ => 0,
            };
            types.push(Type { name: *name, kind, words: &rest[..following] });
            at += 3 + following;
        }
        types
    }

    fn text(&self, at: u32) -> String {
        let bytes = self.texts[at as usize..].iter().take_while(|byte| **byte != 0);
        bytes.map(|byte| char::from(*byte)).collect()
    }

    fn named<'a>(&self, types: &[Type<'a>], kind: u32, name: &str) -> Option<Type<'a>> {
        types.iter().find(|one| one.kind == kind && self.text(one.name) == name).copied()
    }

    /// The members of a structure and where they begin, in bytes; those of structures within it as
    /// `outer.inner`.
    pub fn members(&self, name: &str) -> Option<Vec<(String, usize)>> {
        let types = self.all();
        let mut found = Vec::new();
        self.flatten(&types, self.named(&types, STRUCT, name)?, ("", 0), &mut found);
        Some(found)
    }

    fn flatten(
        &self,
        types: &[Type<'_>],
        of: Type<'_>,
        before: (&str, usize),
        found: &mut Vec<(String, usize)>,
    ) {
        for member in of.words.as_chunks::<3>().0 {
            let [name, kind, bits] = *member;
            let (name, at) = (self.text(name), before.1 + bits as usize / 8);
            let path = match (before.0, &*name) {
                ("", _) => name.clone(),
                (outer, "") => outer.to_owned(),
                (outer, name) => format!("{outer}.{name}"),
            };
            match types.get(kind as usize - 1) {
                Some(inner) if [STRUCT, UNION].contains(&inner.kind) => {
                    self.flatten(types, *inner, (&path, at), found);
                }
                _ => found.push((path, at)),
            }
        }
    }

    /// The names and values of an enumeration.
    pub fn values(&self, name: &str) -> Option<Vec<(String, u32)>> {
        let types = self.all();
        let values = self.named(&types, ENUM, name)?.words.as_chunks::<2>().0;
        Some(values.iter().map(|[name, value]| (self.text(*name), *value)).collect())
    }
}
