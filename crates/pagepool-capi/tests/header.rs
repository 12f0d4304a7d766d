//! What is written from the source: the header, the list of exported symbols, the version script, and the list
//! of what compiled programs rely on.
//!
//! `PAGEPOOL_BLESS=1 cargo test -p pagepool-capi --test all header::` writes them; without it the test
//! compares.

use crate::installed::{has, run, temporary};
use crate::layout;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::version_script::{NOW, Release, version_script, versioned};
use pagepool_c::counters::{CounterStruct, STRUCTS};
use pagepool_c::inline::{KNOWN, LAYOUT};

/// Columns of the header.
const WIDTH: usize = 110;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(file: &Path) -> String {
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
fn packet_header() -> String {
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
fn header() -> String {
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
struct Function {
    name: String,
    about: String,
}

impl Function {
    /// What follows a label, up to the end of its sentence.
    fn labelled(&self, label: &str) -> Option<&str> {
        let (_, rest) = self.about.split_once(label)?;
        let end = rest.find(". ").unwrap_or(rest.len());
        Some(rest[..end].trim_end_matches('.'))
    }
}

/// The functions of the header, in its order.
fn functions() -> Vec<Function> {
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

fn symbols() -> String {
    let mut names: Vec<String> = functions().into_iter().map(|function| function.name).collect();
    names.sort_unstable();
    names.join("\n") + "\n"
}

/// The script as it is committed, with the functions that it lacks.
fn version_script_now() -> String {
    let before = fs::read_to_string(root().join("pagepool.map")).unwrap_or_default();
    version_script(&before, &symbols().lines().collect(), NOW)
}

/// What compiled programs rely on, of what the source says.
fn abi_now() -> String {
    let initialisers: String =
        INITIALISERS.iter().map(|init| format!("initialiser {} size, then zeroes\n", init.name)).collect();
    let symbols: String =
        versioned(&version_script_now()).iter().map(|name| format!("symbol {name}\n")).collect();
    layout::facts(&declarations_and_counters()) + &initialisers + &symbols
}

fn compare_or_write(file: &Path, now: &str) {
    if std::env::var_os("PAGEPOOL_BLESS").is_some() {
        return fs::write(file, now).expect("the repository is writable");
    }
    let committed = fs::read_to_string(file).unwrap_or_default();
    assert!(
        committed == now,
        "{} is old: PAGEPOOL_BLESS=1 cargo test -p pagepool-capi --test all header::",
        file.display()
    );
}

#[test]
fn the_committed_header_is_what_the_source_says() {
    compare_or_write(&root().join("include/pagepool.h"), &header());
    compare_or_write(&root().join("include/pagepool_skb.h"), &packet_header());
}

#[test]
fn the_list_of_symbols_is_what_the_source_says() {
    compare_or_write(&root().join("symbols.txt"), &symbols());
}

#[test]
fn the_version_script_has_every_function() {
    compare_or_write(&root().join("pagepool.map"), &version_script_now());
}

#[test]
fn a_function_of_a_later_release_has_a_node_of_its_own() {
    let first = Release { soname_number: "0", since: "0.1.0", version: "0.1.0" };
    let then = version_script("", &BTreeSet::from(["pagepool_b"]), first);
    assert_eq!(then, "PAGEPOOL_0 {\n    global:\n        pagepool_b;\n    local:\n        *;\n};\n");
    let later = Release { version: "0.2.0", ..first };
    let two = version_script(&then, &BTreeSet::from(["pagepool_a", "pagepool_b"]), later);
    let added = "PAGEPOOL_0_0.2.0 {\n    global:\n        pagepool_a;\n} PAGEPOOL_0;\n";
    assert_eq!(two, format!("{then}{added}"));
    assert_eq!(versioned(&two), ["pagepool_a@@PAGEPOOL_0_0.2.0", "pagepool_b@@PAGEPOOL_0"]);
    let third = Release { version: "0.3.0", ..first };
    assert_eq!(version_script(&two, &BTreeSet::from(["pagepool_a", "pagepool_b"]), third), two);
    let other = Release { soname_number: "1", since: "0.3.0", version: "0.3.0" };
    let anew = version_script(&two, &BTreeSet::from(["pagepool_a", "pagepool_b"]), other);
    assert_eq!(versioned(&anew), ["pagepool_a@@PAGEPOOL_1", "pagepool_b@@PAGEPOOL_1"]);
}

#[test]
fn what_compiled_programs_rely_on_is_listed() {
    let (file, now) = (root().join("abi.txt"), abi_now());
    let before = fs::read_to_string(&file).unwrap_or_default();
    layout::keep(&before, &now).unwrap_or_else(|refusal| panic!("{refusal}"));
    compare_or_write(&file, &now);
}

/// PAGEPOOL_BLESS=1 adds lines, and nothing else.
#[test]
fn a_line_that_goes_is_not_written_over() {
    let old = layout::facts("#define PAGEPOOL_A 1\nint f(void);\n");
    let more = layout::facts("#define PAGEPOOL_A 1\nint f(void);\nint g(void);\n");
    assert_eq!(layout::keep(&old, &more), Ok(()));
    let refusal = layout::keep(&more, &old).unwrap_err();
    assert!(refusal.contains("function int g(void)") && refusal.contains("SONAME_NUMBER"), "{refusal}");
    let changed = layout::facts("#define PAGEPOOL_A 2\nint f(void);\n");
    assert!(layout::keep(&old, &changed).is_err());
    let other_soname = changed.replace(env!("PAGEPOOL_SONAME"), "another");
    assert_eq!(layout::keep(&old, &other_soname), Ok(()));
}

#[test]
fn macros_with_arguments_are_facts() {
    let facts = layout::facts("#define PAGEPOOL_A(n) \\\n    (1 + (n))\n#define PAGEPOOL_H\nint f(void);\n");
    assert!(facts.contains("macro PAGEPOOL_A(n) (1 + (n))\nfunction int f(void)\n"), "{facts}");
    assert!(!facts.contains("PAGEPOOL_H"), "{facts}");
    assert!(abi_now().contains("macro PAGEPOOL_NODE(n) "));
}

#[test]
fn a_line_that_is_added_breaks_nothing() {
    let old = "struct a {\n    size_t size;\n    uint32_t b;\n};\nint f(struct a *a);\n";
    let longer = old.replace("b;", "b;\n    uint32_t c;").replace("int f", "int g(void);\nint f");
    assert_eq!(layout::broken(&layout::facts(old), &layout::facts(&longer)), Vec::<String>::new());
    for (from, to) in [("uint32_t b", "uint64_t b"), ("size_t size;", ""), ("f(struct a *a)", "f(void)")] {
        let other = layout::facts(&old.replace(from, to));
        assert!(!layout::broken(&layout::facts(old), &other).is_empty(), "{from} became {to:?}");
    }
}

#[test]
fn each_function_names_its_thread() {
    for function in functions() {
        assert!(function.labelled("Thread: ").is_some(), "{}: who may call it?", function.name);
    }
}

/// All but what the inline functions of the header call for themselves.
#[test]
fn the_c_tests_call_every_function() {
    let files = fs::read_dir(root().join("tests/c")).expect("the folder of the C tests");
    let tests: String = files.map(|file| read(&file.expect("it is being listed").path())).collect();
    let called: std::collections::BTreeSet<&str> =
        tests.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').collect();
    let symbols = symbols();
    let untested: Vec<&str> = symbols
        .lines()
        .filter(|name| !name.starts_with("pagepool_inline_") && !called.contains(name))
        .collect();
    assert!(untested.is_empty(), "no test in tests/c calls {untested:?}");
}

/// So that no document is left behind by a new name.
#[test]
fn documents_name_what_is_there() {
    let header = header() + &packet_header() + &read(&root().join("include/pagepool.hpp"));
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let known: std::collections::BTreeSet<&str> = header.split(|c| !is_name(c)).collect();
    let docs = root().join("../../docs");
    let mut files = vec![root().join("../../examples/README.md"), root().join("../../README.md")];
    let entries = fs::read_dir(docs)
        .expect("the folder of the documents")
        .map(|entry| entry.expect("it is being listed").path());
    // metrics.md has names of metrics, of which C has none.
    let is_of_c = |path: &PathBuf| {
        path.extension().is_some_and(|extension| extension == "md") && !path.ends_with("metrics.md")
    };
    files.extend(entries.filter(is_of_c));
    for file in files {
        let text = read(&file);
        let words = text.split(|c| !is_name(c)).filter(|word| word.starts_with("pagepool_"));
        let unknown: Vec<&str> =
            words.filter(|word| !known.contains(word) && !OTHERS.contains(word)).collect();
        assert!(unknown.is_empty(), "{} names {unknown:?}, which the header does not have", file.display());
    }
}

/// What the inline functions know of the library's tables is how they are.
#[test]
fn c_and_rust_have_one_layout_of_the_tables() {
    if !has("cc") {
        return;
    }
    let known = KNOWN.iter().map(|(of, is)| format!("_Static_assert({of} == {is}, \"{of} is {is}\");\n"));
    let program = format!("#include <stddef.h>\n#include <pagepool.h>\n{}", known.collect::<String>());
    let folder = temporary().join("known");
    fs::create_dir_all(&folder).expect("the target folder is writable");
    for (name, text) in [("pagepool.h", &header()), ("known.c", &program)] {
        fs::write(folder.join(name), text).expect("the target folder is writable");
    }
    let mut cc = std::process::Command::new("cc");
    run(cc.args(["-std=gnu11", "-fsyntax-only", "-I"]).arg(&folder).arg(folder.join("known.c")));
}

/// As many as DPDK's, which docs/porting.md lists beside them.
#[test]
fn the_smallest_receive_loop_calls_seven_functions() {
    let (program, symbols) = (read(&root().join("../../examples/libxdp/receive.c")), symbols());
    let called: Vec<&str> = symbols.lines().filter(|name| program.contains(&format!("{name}("))).collect();
    assert_eq!(called.len(), 7, "{called:?}");
    let guide = read(&root().join("../../docs/porting.md"));
    let (_, table) = guide.split_once("| DPDK's receive loop |").expect("the table");
    let (table, _) = table.split_once("\n\n").expect("the end of the table");
    let missing: Vec<_> = called.iter().filter(|name| !table.contains(&format!("`{name}`"))).collect();
    assert!(missing.is_empty(), "the table of docs/porting.md lacks {missing:?}");
}

/// Names in documents that begin alike and are not the header's.
const OTHERS: &[&str] = &[
    "pagepool_mempool",
    "pagepool_xsk",
    "pagepool_net",
    "pagepool_c",
    "pagepool_lab",
    "pagepool_link",
    "pagepool_testing",
    "pagepool_watch",
    "pagepool_",
    "pagepool_skb_",
];

/// All of the source's text fits the width that rustfmt is told.
#[test]
fn no_line_of_the_header_is_too_long() {
    let header = header() + &packet_header() + &read(&root().join("include/pagepool.hpp"));
    let long: Vec<&str> = header.lines().filter(|line| line.chars().count() > WIDTH).collect();
    assert!(long.is_empty(), "{long:#?}");
}
