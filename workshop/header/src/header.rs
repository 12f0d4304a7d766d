//! The texts that are written from the source of the C library.

use std::fs;
use std::path::{Path, PathBuf};

use pagepool_c::counters::{CounterStruct, STRUCTS};
use pagepool_c::inline::LAYOUT;

use crate::abi_list;
use crate::version_script::{NOW, version_script, versioned};

/// Columns of the header.
pub const WIDTH: usize = 110;

/// The folder of the C library.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/pagepool-capi")
}

/// The text of a file.
///
/// # Panics
///
/// If it cannot be read.
pub fn read(file: &Path) -> String {
    fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// What the functions and structs of the source say, without the inline functions.
fn declarations() -> String {
    let config = cbindgen::Config::from_file(root().join("cbindgen.toml")).expect("the crate's own files");
    let mut header = Vec::new();
    let builder = cbindgen::Builder::new().with_crate(root()).with_config(config);
    builder.generate().expect("the crate's own files").write(&mut header);
    String::from_utf8(header).expect("the crate's own files")
}

/// Puts a text before the only occurrence of another one.
fn insert_before(text: &str, mark: &str, inserted: &str) -> String {
    assert_eq!(text.matches(mark).count(), 1, "one place in the header for what stands before {mark:?}");
    text.replace(mark, &format!("{inserted}{mark}"))
}

/// A macro that initialises a struct, with what it is for. All fields but `size` are 0.
struct Initialiser {
    name: &'static str,
    of: &'static str,
    about: &'static str,
}

const INITIALISERS: &[Initialiser] = &[
    Initialiser {
        name: "PAGEPOOL_PARAMS_INIT",
        of: "pagepool_params",
        about: "The default parameters of a pool; set `arena` after it.",
    },
    Initialiser {
        name: "PAGEPOOL_ARENA_PARAMS_INIT",
        of: "pagepool_arena_params",
        about: "The default parameters of an arena.",
    },
    Initialiser {
        name: "PAGEPOOL_STATS_INIT",
        of: "pagepool_stats",
        about: "For pagepool_read_stats: `size` is set, all counters are 0.",
    },
    Initialiser {
        name: "PAGEPOOL_DEFERRED_STATS_INIT",
        of: "pagepool_deferred_stats",
        about: "For pagepool_read_deferred_stats: `size` is set, all counters are 0.",
    },
    Initialiser {
        name: "PAGEPOOL_BUFFER_LOCATIONS_INIT",
        of: "pagepool_buffer_locations",
        about: "For pagepool_read_buffer_locations: `size` is set, all counts are 0.",
    },
    Initialiser {
        name: "PAGEPOOL_ENTRY_PARAMS_INIT",
        of: "pagepool_entry_params",
        about: "For pagepool_publish_entry: `size` is set; set `kind` after it.",
    },
];

impl Initialiser {
    /// All values in order: constant, also in C++11, and no compiler misses a field.
    fn text(&self, header: &str) -> String {
        let values = fields(header, self.of).into_iter().map(|(kind, field)| match field.as_str() {
            "size" => format!("sizeof(struct {})", self.of),
            _ if kind.contains('*') => "NULL".to_owned(),
            _ => "0".to_owned(),
        });
        let about =
            format!("{} `struct {} x = {};`, also for a static variable.", self.about, self.of, self.name);
        let mut text = comment("", &about) + &format!("#define {} \\\n", self.name);
        let mut line = String::from("    {");
        for value in values {
            if line.len() + value.len() + 4 > WIDTH {
                text += &format!("{} \\\n", line.trim_end());
                line = String::from("     ");
            }
            line += &format!("{value}, ");
        }
        text + line.trim_end().trim_end_matches(',') + "}\n\n"
    }
}

/// Type and name of each field of a struct, in the header's order.
fn fields(header: &str, name: &str) -> Vec<(String, String)> {
    let (_, body) = header.split_once(&format!("\nstruct {name} {{\n")).expect("the struct is in the header");
    let (body, _) = body.split_once("\n};").expect("the struct ends");
    let lines = body.lines().map(str::trim).filter(|line| !line.starts_with(['/', '*']));
    let field = |line: &str| {
        let line = line.trim_end_matches(';');
        match line.split_once("(*") {
            Some((before, rest)) => {
                let (name, arguments) = rest.split_once(')').expect("a pointer to a function");
                (format!("{before}(*){arguments}"), name.to_owned())
            }
            None => {
                let at = line.rfind([' ', '*']).expect("a type and a name") + 1;
                (line[..at].trim_end().to_owned(), line[at..].to_owned())
            }
        }
    };
    lines.map(field).collect()
}

/// The header of packets for network stacks, which most programs do not have.
pub fn packet_header() -> String {
    let blocks: Vec<String> =
        blocks(&declarations_and_counters()).into_iter().filter(|block| is_of_packets(block)).collect();
    format!("{PACKET_HEAD}{}\n\n#ifdef __cplusplus\n}}\n#endif\n\n#endif\n", blocks.join("\n\n"))
}

const PACKET_HEAD: &str = "/*
 * pagepool: packets for network stacks over buffers of a pool. Generated; docs/c-api.md is the guide.
 * pagepool.h has the terms, and says what each comment names.
 */

#ifndef PAGEPOOL_SKB_H
#define PAGEPOOL_SKB_H

#include <sys/uio.h>

#include <pagepool.h>

#ifdef __cplusplus
extern \"C\" {
#endif

";

/// What stands between empty lines: a declaration with its comment, or lines of the preprocessor.
fn blocks(header: &str) -> Vec<String> {
    header.split("\n\n").map(|block| block.trim_matches('\n').to_owned()).collect()
}

fn is_of_packets(block: &str) -> bool {
    block.rsplit("*/").next().is_some_and(|declaration| declaration.contains("pagepool_skb"))
}

/// The declarations, with the structs that macros make.
fn declarations_and_counters() -> String {
    let structs: String = STRUCTS.iter().map(struct_text).collect();
    insert_before(&declarations(), "#ifdef __cplusplus\nextern", &structs)
}

/// The header: declarations, with the structs that macros make, the initialisers and the inline functions.
pub fn header() -> String {
    let header: Vec<String> =
        blocks(&declarations_and_counters()).into_iter().filter(|block| !is_of_packets(block)).collect();
    let header = header.join("\n\n") + "\n";
    let initialisers: String = INITIALISERS.iter().map(|init| init.text(&header)).collect();
    let header = insert_before(&header, "#ifdef __cplusplus\nextern", &initialisers);
    let inline = read(&root().join("src/inline.h")).replace("@LAYOUT@", &format!("{LAYOUT:08x}"));
    // The inline part belongs inside the block that C++ sees as C.
    insert_before(&header, "#ifdef __cplusplus\n}", &format!("{inline}\n"))
}

fn struct_text(counters: &CounterStruct) -> String {
    let mut text = comment("", counters.about);
    text += &format!("struct {} {{\n", counters.name);
    text += &comment("    ", &format!("sizeof(struct {}): fields can be added at the end.", counters.name));
    text += "    size_t size;\n";
    for (name, about) in counters.fields {
        text += &comment("    ", about);
        text += &format!("    uint64_t {name};\n");
    }
    text + "};\n\n"
}

/// A comment of lines that fit.
fn comment(indent: &str, about: &str) -> String {
    let mut text = format!("{indent}/**\n");
    let mut line = format!("{indent} *");
    for word in about.split_whitespace() {
        if line.len() + 1 + word.len() > WIDTH {
            text += &format!("{line}\n");
            line = format!("{indent} *");
        }
        line += " ";
        line += word;
    }
    text + &format!("{line}\n{indent} */\n")
}

/// A function of the header, with its comment.
pub struct Function {
    /// Its name.
    pub name: String,
    /// Its comment, in one line.
    pub about: String,
}

impl Function {
    /// What follows a label, up to the end of its sentence.
    pub fn labelled(&self, label: &str) -> Option<&str> {
        let (_, rest) = self.about.split_once(label)?;
        let end = rest.find(". ").unwrap_or(rest.len());
        Some(rest[..end].trim_end_matches('.'))
    }
}

/// The functions of the header, in its order.
pub fn functions() -> Vec<Function> {
    let text = declarations();
    let mut functions = Vec::new();
    let mut rest = text.as_str();
    while let Some((_, after)) = rest.split_once("/**") {
        let (about, after) = after.split_once("*/").expect("a comment ends");
        let about: Vec<&str> = about.lines().map(|line| line.trim().trim_start_matches('*').trim()).collect();
        let declaration = after.split([';', '{']).next().unwrap_or("");
        let name = declaration.split_once('(').map(|(before, _)| before);
        let name = name.and_then(|before| before.rsplit([' ', '*']).next()).unwrap_or("");
        if name.starts_with("pagepool_") && !declaration.contains("#define") {
            functions.push(Function { name: name.to_owned(), about: about.join(" ").trim().to_owned() });
        }
        rest = after;
    }
    functions
}

/// The list of exported symbols: the functions of the header, sorted.
pub fn symbols() -> String {
    let mut names: Vec<String> = functions().into_iter().map(|function| function.name).collect();
    names.sort_unstable();
    names.join("\n") + "\n"
}

/// The script as it is committed, with the functions that it lacks.
pub fn version_script_now() -> String {
    let before = fs::read_to_string(root().join("pagepool.map")).unwrap_or_default();
    version_script(&before, &symbols().lines().collect(), NOW)
}

/// What compiled programs rely on, of what the source says.
pub fn abi_now() -> String {
    let initialisers: String =
        INITIALISERS.iter().map(|init| format!("initialiser {} size, then zeroes\n", init.name)).collect();
    let symbols: String =
        versioned(&version_script_now()).iter().map(|name| format!("symbol {name}\n")).collect();
    abi_list::facts(&declarations_and_counters()) + &initialisers + &symbols
}
