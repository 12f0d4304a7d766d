//! What compiled programs rely on, as a text with one line for each fact: `abi.txt`. A new line adds
//! something; a line that goes or changes breaks programs, and requires a new soname.

use std::collections::BTreeSet;

/// The facts of a header: of each struct the places of its fields, the constants, the functions.
pub fn facts(header: &str) -> String {
    let code = without_comments(header);
    let mut facts = String::from(
        "# What compiled programs rely on, on 64-bit systems. tests/header.rs writes it.\n\
         # Lines may be added. A line that goes or changes breaks programs: raise the soname (build.rs,\n\
         # src/bin/install/relink.rs) and the node of pagepool.map.\n\
         soname libpagepool.so.0\n",
    );
    for line in code.lines() {
        let constant = line.strip_prefix("#define ").and_then(|rest| rest.split_once(' '));
        if let Some((name, value)) = constant.filter(|(name, _)| !name.contains('(')) {
            facts += &format!("constant {name} {}\n", value.trim());
        }
    }
    let lines =
        code.lines().filter(|line| !line.trim_start().starts_with('#') && !line.contains("extern \"C\""));
    for declaration in declarations(&lines.collect::<Vec<_>>().join(" ")) {
        match declaration.split_once('{') {
            Some((name, body)) => facts += &struct_facts(name.trim(), body),
            None if declaration.contains('(') => facts += &format!("function {declaration}\n"),
            None => facts += &format!("opaque {declaration}\n"),
        }
    }
    facts
}

/// What of two lists breaks programs: the lines that went.
pub fn broken(before: &str, now: &str) -> Vec<String> {
    let now: BTreeSet<&str> = now.lines().collect();
    let gone = before.lines().filter(|line| !line.starts_with('#') && !now.contains(line));
    gone.map(str::to_owned).collect()
}

fn without_comments(text: &str) -> String {
    let mut parts = text.split("/*");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |code, part| code + part.split_once("*/").map_or("", |(_, after)| after))
}

/// Splits at the semicolons outside of braces; white space becomes one space.
fn declarations(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    let (mut depth, mut from) = (0, 0);
    for (at, letter) in code.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            ';' if depth <= 0 => {
                found.push(code[from..at].split_whitespace().collect::<Vec<_>>().join(" "));
                from = at + 1;
            }
            _ => {}
        }
    }
    found
}

/// The fields of a struct, each at its place. A struct that begins with `size` may get longer; of another one
/// the size is a fact, too.
fn struct_facts(name: &str, body: &str) -> String {
    let (mut facts, mut at, mut align) = (String::new(), 0_usize, 1);
    let name = name.trim_start_matches("struct ");
    let fields: Vec<&str> = body.trim_end_matches('}').split(';').map(str::trim).collect();
    for field in fields.iter().filter(|field| !field.is_empty()) {
        let bytes = size_of_field(field);
        align = align.max(bytes);
        at = at.next_multiple_of(bytes);
        facts += &format!("field {name} {at} {field}\n");
        at += bytes;
    }
    if fields.first() != Some(&"size_t size") {
        facts += &format!("size {name} {}\n", at.next_multiple_of(align));
    }
    facts
}

fn size_of_field(field: &str) -> usize {
    let kind = field.trim_start_matches("const ");
    match kind.split(' ').next() {
        _ if kind.contains('*') => 8,
        Some("size_t" | "uint64_t" | "int64_t") => 8,
        Some("uint32_t" | "int32_t" | "int") => 4,
        _ => panic!("{field}: tests/layout/mod.rs does not know how large this type is"),
    }
}
