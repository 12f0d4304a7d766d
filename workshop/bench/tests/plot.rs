//! `pagepool-bench --plot`, and the plots of the documents.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use pagepool_lab::TempFolder;
use roxmltree::Document;

fn bench(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_pagepool-bench"))
        .args(arguments)
        .output()
        .expect("the binary of this crate")
}

fn workspace(path: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path).to_string_lossy().into_owned()
}

/// A file of this test alone.
fn temporary(name: &str) -> PathBuf {
    thread_local!(static FOLDER: TempFolder = TempFolder::new("pagepool-plot").expect("a new folder"));
    FOLDER.with(|folder| folder.path().join(name))
}

/// Draws recorded figures and gives the SVG.
fn drawn(name: &str, results: &str, peers: Option<&str>) -> String {
    drawn_and_said(name, results, peers).0
}

/// Draws recorded figures and gives the SVG, and what the command says on standard error.
fn drawn_and_said(name: &str, results: &str, peers: Option<&str>) -> (String, String) {
    let file = temporary(name);
    let mut arguments = vec!["--plot", file.to_str().expect("a path in UTF-8"), "--results", results];
    arguments.extend(peers.iter().flat_map(|peers| ["--peers", peers]));
    let output = bench(&arguments);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    (fs::read_to_string(file).expect("the command wrote it"), said)
}

/// Each workload, with its bars.
fn workloads(svg: &str) -> Vec<(String, usize)> {
    let document = Document::parse(svg).unwrap_or_else(|error| panic!("{error}: {svg}"));
    let class = |class| document.descendants().filter(move |node| node.attribute("class") == Some(class));
    class("workload")
        .map(|group| {
            let name = group.children().find(|child| child.has_tag_name("text")).and_then(|text| text.text());
            let bars = group.children().filter(|child| child.attribute("class") == Some("bar")).count();
            (name.expect("a group has a title").to_owned(), bars)
        })
        .collect()
}

#[test]
fn each_workload_has_a_bar_and_each_peer_one_beside() {
    let results = temporary("results.json");
    let peers = temporary("peers.csv");
    fs::write(
        &results,
        r#"{"machine": {"cpu": "a <b>\u0001& c", "kernel": "6.18", "date": "2026-11-22"}, "results": [
            {"name": "page_direct", "ns_med": 1.9}, {"name": "page_ring", "ns_med": 10.7},
            {"name": "page_remote", "ns_med": null}]}"#,
    )
    .unwrap();
    fs::write(
        &peers,
        "peer,workload,ns_med\nmempool,page_direct,5.3\nmalloc,page_direct,20\nmalloc,arena_order0,9\n",
    )
    .unwrap();
    let alone = drawn("alone.svg", results.to_str().unwrap(), None);
    assert_eq!(
        workloads(&alone),
        [("page_direct".to_owned(), 1), ("page_ring".to_owned(), 1)],
        "one did not run"
    );
    let beside = drawn("beside.svg", results.to_str().unwrap(), Some(peers.to_str().unwrap()));
    assert_eq!(workloads(&beside), [("page_direct".to_owned(), 3), ("page_ring".to_owned(), 1)]);
    assert!(
        beside.contains(">mempool<") && beside.contains(">malloc<") && beside.contains("a &lt;b&gt; &amp; c"),
        "{beside}"
    );
    assert_eq!(beside, drawn("again.svg", results.to_str().unwrap(), Some(peers.to_str().unwrap())));
}

#[test]
fn figures_of_peers_that_have_no_bar_are_named() {
    let (results, peers) = (temporary("left_out.json"), temporary("left_out.csv"));
    fs::write(
        &results,
        r#"{"machine": {"cpu": "", "kernel": "", "date": ""}, "per": "packet", "results": [
            {"name": "echo64", "ns_med": 500}, {"name": "page_remote", "ns_med": null}]}"#,
    )
    .unwrap();
    let rows = "a,echo64,780\nb,page_direct,5\na,page_direct,6\nb,page_remote,7\n";
    fs::write(&peers, format!("peer,workload,ns_med\n{rows}")).unwrap();
    let [results, peers] = [&results, &peers].map(|path| path.to_str().unwrap());
    let (svg, said) = drawn_and_said("left_out.svg", results, Some(peers));
    assert_eq!(workloads(&svg), [("echo64".to_owned(), 2)], "a workload of the results is a workload");
    assert!(svg.contains("Nanoseconds per packet") && svg.contains(">a<") && !svg.contains(">b<"), "{svg}");
    assert_eq!(
        said,
        "pagepool: warning: not drawn from --peers, because the results have no time for them: page_direct, \
         page_remote\n"
    );
    assert_eq!(drawn_and_said("left_out.svg", results, None).1, "");
}

#[test]
fn a_longer_time_is_a_longer_bar() {
    let svg = drawn("length.svg", &workspace("bench/results/2026-11-22-pool.json"), None);
    let document = Document::parse(&svg).unwrap();
    let mut bars: Vec<(f64, f64)> = Vec::new();
    for group in document.descendants().filter(|node| node.attribute("class") == Some("workload")) {
        let width = group.children().find_map(|child| child.attribute("width")).unwrap();
        let ns =
            group.children().filter_map(|child| child.text()).rfind(|text| !text.trim().is_empty()).unwrap();
        bars.push((ns.parse().unwrap(), width.parse().unwrap()));
    }
    bars.sort_by(|a, b| a.0.total_cmp(&b.0));
    assert!(bars.windows(2).all(|pair| pair[0].1 <= pair[1].1), "{bars:?}");
    assert!(bars.iter().all(|bar| bar.1 > 0.0), "{bars:?}");
}

#[test]
fn the_bench_draws_what_it_measured() {
    let file = temporary("measured.svg");
    let output =
        bench(&["--quick", "--filter", "increment", "--plot", file.to_str().expect("a path in UTF-8")]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(
        workloads(&fs::read_to_string(file).expect("the command wrote it")),
        [("increment".to_owned(), 1)]
    );
}

#[test]
fn what_cannot_be_drawn_fails_with_its_name() {
    let file = temporary("wrong.svg");
    let plot = file.to_str().expect("a path in UTF-8");
    let peers = temporary("wrong.csv");
    fs::write(&peers, "peer,workload,ns_med\nmempool,nonesuch,5.3\n").unwrap();
    for (arguments, word) in [
        (&["--plot", plot, "--peers", peers.to_str().unwrap()][..], "nonesuch"),
        (&["--plot", plot, "--results", "/nonexistent.json"], "/nonexistent.json"),
        (&["--plot", plot, "--results", peers.to_str().unwrap()], "wrong.csv"),
        (&["--results", "/nonexistent.json"], "--plot"),
        (&["--plot", "/nonexistent/x.svg", "--filter", "increment"], "/nonexistent is not a folder"),
        (&["--plot", plot, "--list"], "--list"),
        (&["--plot", plot, "mtu"], "--plot apply to the table of workloads only"),
        (&["--filter", "page", "mtu"], "--filter, "),
        (&["--publish", "mtu"], "--publish and "),
    ] {
        let output = bench(arguments);
        assert!(!output.status.success(), "{arguments:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(word), "{arguments:?}");
    }
}

#[test]
fn plots_in_the_documents_match_the_recorded_figures() {
    let recorded = |name: &str| workspace(&format!("bench/results/2026-11-22-{name}"));
    let peers_of = |name| Some(recorded(&format!("{name}-peers.csv")));
    for (name, peers) in [("pool", peers_of("pool")), ("packets", None), ("af_xdp", peers_of("af_xdp"))] {
        let svg = drawn(&format!("{name}.svg"), &recorded(&format!("{name}.json")), peers.as_deref());
        let at = workspace(&format!("docs/plots/{name}.svg"));
        if std::env::var_os("PAGEPOOL_BLESS").is_some() {
            fs::write(at, svg).unwrap();
        } else {
            let committed = fs::read_to_string(&at).unwrap_or_default();
            assert!(
                committed == svg,
                "{at} is old: PAGEPOOL_BLESS=1 cargo test -p pagepool-bench --test all plot::"
            );
        }
    }
}
