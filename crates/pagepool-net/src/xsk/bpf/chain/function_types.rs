//! BTF (type information) for our programs: functions from an XDP context to an integer. A program can
//! replace a function only if both have BTF.

const HEADER: u32 = 24;
/// The number of the first function's type.
const FIRST: u32 = 5;

/// Kinds of types (Documentation/bpf/btf.rst, v7.3), shifted into place.
const INT: u32 = 1 << 24;
const POINTER: u32 = 2 << 24;
const ARRAY: u32 = 3 << 24;
const STRUCTURE: u32 = 4 << 24;
const FUNCTION: u32 = 12 << 24;
const PROTOTYPE: u32 = 13 << 24;
const VARIABLE: u32 = 14 << 24;
const SECTION: u32 = 15 << 24;
/// For variables, and for functions that are checked apart from their callers.
const GLOBAL: u32 = 1;
const SIGNED_32: u32 = 1 << 24 | 32;

#[derive(Debug)]
pub(in crate::xsk::bpf) struct FunctionTypes {
    types: Vec<u32>,
    texts: Vec<u8>,
    count: u32,
}

impl FunctionTypes {
    /// The kernel accepts names of up to 128 bytes.
    pub(in crate::xsk::bpf) fn new<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let mut this = Self { types: Vec::new(), texts: vec![0], count: 0 };
        let [int, context, argument] = ["int", "xdp_md", "ctx"].map(|name| this.text(name));
        this.add(&[int, INT, 4, SIGNED_32]);
        this.add(&[context, STRUCTURE, 24]); // the kernel checks only its name
        this.add(&[0, POINTER, 2]);
        this.add(&[0, PROTOTYPE | 1, 1, argument, 3]);
        for name in names {
            let name = this.text(name);
            this.add(&[name, FUNCTION | GLOBAL, 4]);
        }
        this
    }

    pub(in crate::xsk::bpf) fn number(which: usize) -> u32 {
        FIRST + which as u32
    }

    /// Adds a number under a name, encoded like libbpf's `__uint`: as the length of an array in a section.
    pub(in crate::xsk::bpf) fn with_number(mut self, section: &str, name: &str, number: u32) -> Self {
        let [section, name] = [section, name].map(|name| self.text(name));
        self.add(&[0, ARRAY, 0, 1, 1, number]);
        self.add(&[0, POINTER, self.count]);
        self.add(&[name, VARIABLE, self.count, GLOBAL]);
        self.add(&[section, SECTION | 1, 8, self.count, 0, 8]);
        self
    }

    pub(in crate::xsk::bpf) fn to_bytes(&self) -> Vec<u8> {
        let types = self.types.len() as u32 * 4;
        let mut bytes = 0xeb9fu16.to_ne_bytes().to_vec();
        bytes.extend([1, 0]); // the version, and no flags
        let words = [HEADER, 0, types, types, self.texts.len() as u32];
        bytes.extend(words.iter().chain(&self.types).flat_map(|word| word.to_ne_bytes()));
        bytes.extend(&self.texts);
        bytes
    }

    fn text(&mut self, text: &str) -> u32 {
        let at = self.texts.len() as u32;
        self.texts.extend(text.bytes().chain([0]));
        at
    }

    fn add(&mut self, words: &[u32]) {
        self.types.extend(words);
        self.count += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xsk::bpf::btf;

    #[test]
    fn functions_have_the_numbers_that_are_said() {
        let bytes = FunctionTypes::new(["first", "second"]).with_number("section", "version", 2).to_bytes();
        let found = btf::functions(&bytes, ["second", "first", "version"]);
        assert_eq!(found, Ok([Some(FunctionTypes::number(1)), Some(FunctionTypes::number(0)), None]));
    }
}
