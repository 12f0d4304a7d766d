//! What compiled programs rely on, as a text with one line for each fact: `abi.txt`. A new line adds
//! something; a line that goes or changes breaks programs, and requires a new soname.

use std::collections::BTreeSet;

/// The facts of a header: of each struct the places of its fields, the constants, the functions.
pub fn facts(header: &str) -> String {
    let code = without_comments(header).replace("\\\n", " ");
    let mut facts = String::from(
        "# What compiled programs rely on, on 64-bit systems. pagepool-header adds lines to it, and removes\n\
         # none: a line that goes or changes breaks programs, and requires another soname (soname.rs).\n",
    );
    facts += concat!("soname ", env!("PAGEPOOL_SONAME"), "\n");
    facts.extend(code.lines().filter_map(macro_fact));
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

/// A constant, or a macro with arguments; both are compiled into programs.
fn macro_fact(line: &str) -> Option<String> {
    let rest = line.strip_prefix("#define ")?;
    let with_arguments =
        rest.find(')').filter(|_| rest.split(' ').next().is_some_and(|name| name.contains('(')));
    let at = with_arguments.map_or_else(|| rest.find(' '), |end| Some(end + 1))?;
    let kind = if with_arguments.is_some() { "macro" } else { "constant" };
    let value: Vec<&str> = rest[at..].split_whitespace().collect();
    Some(format!("{kind} {} {}\n", &rest[..at], value.join(" ")))
}

/// Refuses a list that lacks lines of the one before, unless it is that of another soname.
pub fn keep(before: &str, now: &str) -> Result<(), String> {
    let soname = |list: &str| list.lines().find(|line| line.starts_with("soname ")).map(str::to_owned);
    let gone = broken(before, now);
    if gone.is_empty() || soname(before) != soname(now) {
        return Ok(());
    }
    Err(format!(
        "{} lines of abi.txt went or changed, which breaks compiled programs: {gone:#?}\n\
         Remedy: let them stand. On purpose: raise SONAME_NUMBER in soname.rs and set SINCE to the version in \
         Cargo.toml; abi.txt and pagepool.map then begin anew. If no release had a line, remove it by hand.",
        gone.len()
    ))
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
        _ => panic!("{field}: abi_list.rs does not know how large this type is"),
    }
}
