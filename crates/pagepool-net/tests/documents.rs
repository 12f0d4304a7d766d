//! README and the pages of docs/, held to the code that they speak of.

use std::fs;
use std::path::{Path, PathBuf};

use pagepool::{DeferredStats, PoolProbe, Stats};
use pagepool_net::{DeviceStats, ForwardStats, KernelStackStats, KernelStats, PathStats};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The pages beside README, those of docs/, and the notes.
fn pages() -> Vec<String> {
    let in_folder = |folder: &str| {
        let files = fs::read_dir(root().join(folder)).expect("the folder is there");
        let names = files.map(|file| file.expect("it can be read").file_name().into_string().expect("ASCII"));
        names.filter(|name| name.ends_with(".md")).map(|name| format!("{folder}/{name}")).collect::<Vec<_>>()
    };
    let mut pages = ["README.md", "CONTRIBUTING.md", "SECURITY.md"].map(String::from).to_vec();
    pages.extend(in_folder("docs"));
    pages.extend(in_folder("docs/notes"));
    pages
}

const COUNTER_TABLE: &str = "| counter | means | if it rises |\n|---|---|---|\n";

/// The tables of counters in docs/operations.md, in its order.
const COUNTER_TABLES: [(&[&str], &[&str]); 7] = [
    (Stats::NAMES, Stats::DOCS),
    (DeferredStats::NAMES, DeferredStats::DOCS),
    (DeviceStats::NAMES, DeviceStats::DOCS),
    (KernelStats::NAMES, KernelStats::DOCS),
    (ForwardStats::NAMES, ForwardStats::DOCS),
    (PathStats::NAMES, PathStats::DOCS),
    (KernelStackStats::NAMES, KernelStackStats::DOCS),
];

/// The row of a counter, from its declaration.
fn counter_row((name, text): (&&str, &&str)) -> String {
    let (means, rises) = text
        .split_once("If it rises: ")
        .unwrap_or_else(|| panic!("the declaration of {name} does not say \"If it rises:\""));
    format!("| `{name}` | {} | {} |\n", means.trim().trim_end_matches('.'), rises.trim_end_matches('.'))
}

/// The rows of all tables come from the declarations of the counters.
#[test]
fn the_tables_of_counters_are_what_the_declarations_say() {
    let page = read("docs/operations.md");
    let mut parts = page.split(COUNTER_TABLE);
    let mut now = parts.next().expect("the text before the first table").to_owned();
    let mut tables = COUNTER_TABLES.iter();
    for part in parts {
        let (names, texts) = tables.next().expect("as many tables as declarations");
        now.push_str(COUNTER_TABLE);
        now.extend(names.iter().zip(*texts).map(counter_row));
        now.extend(part.split_inclusive('\n').skip_while(|line| line.starts_with("| `")));
    }
    assert!(tables.next().is_none(), "docs/operations.md has too few tables of counters");
    if std::env::var_os("PAGEPOOL_BLESS").is_some() {
        return fs::write(root().join("docs/operations.md"), now).expect("the repository is writable");
    }
    assert!(
        page == now,
        "docs/operations.md is old: PAGEPOOL_BLESS=1 cargo test -p pagepool-net --test all documents::"
    );
}

const PROBE_TABLE: &str = "| probe | what has happened | arguments | level |\n|---|---|---|---|\n";

/// The row of a probe, from its declaration.
fn probe_row(probe: &PoolProbe) -> String {
    let args = probe.args.iter().enumerate().map(|(at, (name, means))| format!("arg{at} `{name}`: {means}"));
    let args = args.collect::<Vec<_>>().join("; ");
    format!("| `{}` | {} | {args} | {} |\n", probe.name, probe.fires, probe.level.to_lowercase())
}

#[test]
fn the_table_of_probes_is_what_the_declarations_say() {
    let page = read("docs/probes.md");
    let (before, after) = page.split_once(PROBE_TABLE).expect("the head of the table");
    let mut now = before.to_owned() + PROBE_TABLE;
    now.extend(PoolProbe::ALL.iter().map(probe_row));
    now.extend(after.split_inclusive('\n').skip_while(|line| line.starts_with("| `")));
    if std::env::var_os("PAGEPOOL_BLESS").is_some() {
        return fs::write(root().join("docs/probes.md"), now).expect("the repository is writable");
    }
    assert!(
        page == now,
        "docs/probes.md is old: PAGEPOOL_BLESS=1 cargo test -p pagepool-net --test all documents::"
    );
}

/// Each probe has one line for bpftrace, in their order, which uses arguments that there are.
#[test]
fn each_probe_has_its_line_for_bpftrace() {
    let page = read("docs/probes.md");
    let lines = page.lines().filter_map(|line| line.strip_prefix("bpftrace -e 'usdt:"));
    let lines: Vec<_> = lines.filter_map(|line| line.split_once(":pagepool:")?.1.split_once(' ')).collect();
    assert_eq!(lines.len(), PoolProbe::ALL.len());
    for ((name, action), probe) in lines.iter().zip(PoolProbe::ALL) {
        assert_eq!(*name, probe.name);
        let numbers = action.split("arg").skip(1).filter_map(|rest| rest[..1].parse::<usize>().ok());
        assert!(numbers.max().is_some_and(|most| most < probe.args.len()), "{name}: {action}");
    }
}

#[test]
fn code_of_the_guide_and_of_readme_is_that_of_the_examples() {
    let pages = read("docs/guide.md") + &read("README.md");
    let dedented = |code: &str| code.lines().map(str::trim).collect::<Vec<_>>().join("\n");
    let mut blocks = 0;
    for part in pages.split("<!-- from ").skip(1) {
        let (path, rest) = part.split_once(" -->\n```").expect("a block follows");
        let (_, rest) = rest.split_once('\n').expect("the language, and a line");
        let (code, _) = rest.split_once("\n```").expect("the block ends");
        let there = dedented(&read(path)).contains(&dedented(code));
        assert!(there, "a page has code that is not in {path} any more; copy it again:\n{code}");
        blocks += 1;
    }
    assert_eq!(blocks, 28);
}

#[test]
fn relative_links_lead_to_files() {
    for page in pages() {
        let text = read(&page);
        let folder = root().join(&page).parent().expect("a page is in a folder").to_path_buf();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(link, _)| link) {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            if link.contains("://") {
                continue;
            }
            let target = if file.is_empty() { root().join(&page) } else { folder.join(file) };
            assert!(target.exists(), "{page} links to {link}, which is not there");
            if !anchor.is_empty() {
                let headings = fs::read_to_string(&target).expect("a page");
                let there =
                    headings.lines().filter(|line| line.starts_with('#')).any(|line| slug(line) == anchor);
                assert!(there, "{page} links to {link}, which has no such heading");
            }
        }
    }
}

/// The anchor of a heading, as renderers make it.
fn slug(heading: &str) -> String {
    let words = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = words.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[test]
fn readme_is_short_and_prose_is_narrow() {
    assert!(
        read("README.md").lines().count() <= 110,
        "README.md is at most 110 lines; the rest belongs in docs/"
    );
    assert!(read("CONTRIBUTING.md").lines().count() <= 40, "CONTRIBUTING.md is at most 40 lines");
    for page in pages() {
        let mut code = false;
        for (number, line) in read(&page).lines().enumerate() {
            code ^= line.trim_start().starts_with("```");
            let prose = !code && !line.starts_with(['|', ' ']) && !line.contains("](");
            assert!(!prose || line.chars().count() <= 120, "{page}:{}: longer than 120 columns", number + 1);
        }
    }
}

/// `sudo` finds no cargo, and root's files in `target/` are in the way of the user.
#[test]
fn no_document_says_to_run_cargo_as_root() {
    let mut texts: Vec<_> = pages().iter().map(|page| (page.clone(), read(page))).collect();
    texts.push(("examples/README.md".into(), read("examples/README.md")));
    for krate in CRATES {
        let library = format!("crates/{krate}/src/lib.rs");
        texts.push((library.clone(), read(&library)));
        let Ok(files) = fs::read_dir(root().join(format!("crates/{krate}/examples"))) else { continue };
        let files = files.map(|file| file.expect("it can be read").path()).filter(|path| path.is_file());
        texts
            .extend(files.map(|path| (path.display().to_string(), fs::read_to_string(path).expect("UTF-8"))));
    }
    assert!(texts.len() > 30, "{} texts: the walk has lost a folder", texts.len());
    for (name, text) in texts {
        let line = text.lines().find(|line| line.contains("sudo cargo") || line.contains("sudo -E cargo"));
        assert_eq!(line, None, "{name}: say how to build as a user and to run the program as root");
    }
}

const CRATES: [&str; 8] = [
    "pagepool",
    "pagepool-capi",
    "pagepool-cli",
    "pagepool-link",
    "pagepool-net",
    "pagepool-skb",
    "pagepool-testing",
    "pagepool-watch",
];

/// The lines of a table of a manifest.
fn table<'a>(manifest: &'a str, name: &str) -> Vec<&'a str> {
    let head = format!("[{name}]");
    let lines = manifest.lines().skip_while(|line| *line != head).skip(1);
    lines.take_while(|line| !line.starts_with('[')).filter(|line| !line.starts_with('#')).collect()
}

#[test]
fn each_feature_of_a_crate_is_in_the_list_of_its_documentation() {
    let mut features = 0;
    for krate in CRATES {
        let (manifest, text) = (read(&format!("crates/{krate}/Cargo.toml")), read_library(krate));
        for name in table(&manifest, "features").iter().filter_map(|line| line.split_once(" = ")) {
            let (name, line) = (name.0, format!("//! * `{}`: ", name.0));
            assert!(text.contains(&line), "the list of features in crates/{krate}/src/lib.rs lacks {name}");
            features += 1;
        }
    }
    assert!(features > 5, "{features} features: the tables are not where they were");
}

fn read_library(krate: &str) -> String {
    let text = read(&format!("crates/{krate}/src/lib.rs"));
    text.split_once("//! # Features").map_or_else(String::new, |(_, list)| list.to_owned())
}

#[test]
fn docs_rs_shows_all_features_of_each_crate() {
    for krate in CRATES {
        let manifest = read(&format!("crates/{krate}/Cargo.toml"));
        let lines = table(&manifest, "package.metadata.docs.rs");
        assert!(lines.contains(&"all-features = true"), "crates/{krate}/Cargo.toml: {lines:?}");
    }
}
