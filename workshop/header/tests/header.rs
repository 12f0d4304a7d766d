//! What is committed is what the source says: the header, the list of exported symbols, the version script, and
//! the list of what compiled programs rely on.
//!
//! `PAGEPOOL_BLESS=1 cargo test -p pagepool-header` writes them; without it the tests compare.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use pagepool_c::inline::KNOWN;
use pagepool_header::abi_list;
use pagepool_header::header::{
    WIDTH, abi_now, functions, header, packet_header, read, root, symbols, version_script_now,
};
use pagepool_header::version_script::{Release, version_script, versioned};
use pagepool_lab::{TempFolder, has_tool, run};

fn compare_or_write(file: &Path, now: &str) {
    if std::env::var_os("PAGEPOOL_BLESS").is_some() {
        return fs::write(file, now).expect("the repository is writable");
    }
    let committed = fs::read_to_string(file).unwrap_or_default();
    assert!(committed == now, "{} is old: PAGEPOOL_BLESS=1 cargo test -p pagepool-header", file.display());
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
    abi_list::keep(&before, &now).unwrap_or_else(|refusal| panic!("{refusal}"));
    compare_or_write(&file, &now);
}

/// PAGEPOOL_BLESS=1 adds lines, and nothing else.
#[test]
fn a_line_that_goes_is_not_written_over() {
    let old = abi_list::facts("#define PAGEPOOL_A 1\nint f(void);\n");
    let more = abi_list::facts("#define PAGEPOOL_A 1\nint f(void);\nint g(void);\n");
    assert_eq!(abi_list::keep(&old, &more), Ok(()));
    let refusal = abi_list::keep(&more, &old).unwrap_err();
    assert!(refusal.contains("function int g(void)") && refusal.contains("SONAME_NUMBER"), "{refusal}");
    let changed = abi_list::facts("#define PAGEPOOL_A 2\nint f(void);\n");
    assert!(abi_list::keep(&old, &changed).is_err());
    let other_soname = changed.replace(env!("PAGEPOOL_SONAME"), "another");
    assert_eq!(abi_list::keep(&old, &other_soname), Ok(()));
}

#[test]
fn macros_with_arguments_are_facts() {
    let facts =
        abi_list::facts("#define PAGEPOOL_A(n) \\\n    (1 + (n))\n#define PAGEPOOL_H\nint f(void);\n");
    assert!(facts.contains("macro PAGEPOOL_A(n) (1 + (n))\nfunction int f(void)\n"), "{facts}");
    assert!(!facts.contains("PAGEPOOL_H"), "{facts}");
    assert!(abi_now().contains("macro PAGEPOOL_NODE(n) "));
}

#[test]
fn a_line_that_is_added_breaks_nothing() {
    let old = "struct a {\n    size_t size;\n    uint32_t b;\n};\nint f(struct a *a);\n";
    let longer = old.replace("b;", "b;\n    uint32_t c;").replace("int f", "int g(void);\nint f");
    assert_eq!(abi_list::broken(&abi_list::facts(old), &abi_list::facts(&longer)), Vec::<String>::new());
    for (from, to) in [("uint32_t b", "uint64_t b"), ("size_t size;", ""), ("f(struct a *a)", "f(void)")] {
        let other = abi_list::facts(&old.replace(from, to));
        assert!(!abi_list::broken(&abi_list::facts(old), &other).is_empty(), "{from} became {to:?}");
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
    let called: BTreeSet<&str> = tests.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').collect();
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
    let known: BTreeSet<&str> = header.split(|c| !is_name(c)).collect();
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
    if !has_tool("cc") {
        return;
    }
    let known = KNOWN.iter().map(|(of, is)| format!("_Static_assert({of} == {is}, \"{of} is {is}\");\n"));
    let program = format!("#include <stddef.h>\n#include <pagepool.h>\n{}", known.collect::<String>());
    let folder = TempFolder::new("pagepool-known").expect("a temporary folder");
    let folder = folder.path();
    for (name, text) in [("pagepool.h", &header()), ("known.c", &program)] {
        fs::write(folder.join(name), text).expect("the folder is writable");
    }
    let mut cc = Command::new("cc");
    run(cc.args(["-std=gnu11", "-fsyntax-only", "-I"]).arg(folder).arg(folder.join("known.c")));
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
