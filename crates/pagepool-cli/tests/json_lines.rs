//! `--json=lines` and SIGUSR1, in every command that runs for a while, and the signals that end them.

use std::io::BufRead;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::between::{self, Place, Reading, binary, far_ends, frames, hosts, number, pass};
use crate::program::lines::{ask_and_end, check, check_sums};
use pagepool_link::{TwoHosts, TwoHostsParams};
use serde_json::Value;

/// The verdict of a command on interfaces has the same totals.
fn check_traffic(figures: &[Value]) {
    let last = figures.last().expect("the last line");
    let (total, verdict) = (&last["all"]["total"], &last["verdict"]);
    for key in ["received", "sent", "dropped", "received_bytes", "sent_bytes", "lost_total", "lost"] {
        assert_eq!(total[key], verdict[key], "{key}: {last}");
    }
    assert_eq!(verdict["ended_by"], "interrupted", "{verdict}");
    assert_eq!(verdict["recycled_percent"], last["all"]["recycled_percent"], "{last}");
}

fn demo(arguments: &[&str]) -> Reading {
    let arguments = [&["demo", "--on", "memory"], arguments].concat();
    Reading::new(binary(&arguments).spawn().expect("the binary was built for this test"))
}

#[test]
fn the_lines_of_a_demo_in_memory_add_up_to_its_totals() {
    for action in ["drop", "pass"] {
        let mut demo = demo(&["--seconds", "3", "--json=lines", "--action", action]);
        let first = demo.json().expect("it runs");
        assert_eq!((&first["action"], &first["size"]), (&action.into(), &64.into()));
        let (figures, status) = demo.rest();
        check("demo", &["nic0:0", "nic1:0"], &first, &figures);
        assert!(figures.len() > 1, "a line a second: {figures:?}");
        check_sums(&figures, |line| vec![&line["arrived"]]);
        let last = figures.last().expect("the last line");
        assert_eq!(last["arrived"]["total"]["packets"], last["verdict"]["packets"], "{last}");
        let periods = &figures[..figures.len() - 1];
        assert!(periods.iter().all(|line| line["line"] == "period"), "{periods:?}");
        let moved = periods.iter().find(|line| line["arrived"]["period"]["packets"].as_i64() > Some(0));
        let rate = &moved.expect("in one of three seconds")["all"]["rate"]["received"];
        assert!(rate.as_f64().is_some_and(|rate| rate > 0.0), "{periods:?}");
        assert_eq!(
            (status == Some(0), demo.said()),
            (last["verdict"]["ok"] == true, String::new()),
            "{last}"
        );
    }
}

#[test]
fn signals_query_and_end_a_demo_in_memory() {
    for signal in ["-HUP", "-TERM", "-INT"] {
        let demo = demo(&["--seconds", "600", "--json=lines", "--stats-every", "0"]);
        let first = demo.json().expect("it runs");
        let moved = |line: &Value| line["arrived"]["period"]["packets"].as_i64() > Some(0);
        let figures = ask_and_end(demo, &first, signal, || (), moved);
        check("demo", &["nic0:0", "nic1:0"], &first, &figures);
    }
}

#[test]
fn sigusr1_prints_figures_for_people_and_with_json() {
    let demo_for_people = demo(&["--seconds", "600", "--stats-every", "0"]);
    assert!(demo_for_people.line().expect("it runs").starts_with("Two in-memory NICs"));
    demo_for_people.signal("-USR1");
    let next = || demo_for_people.line().expect("it runs");
    let head = std::iter::from_fn(|| Some(next())).find(|line| line.starts_with("time "));
    assert!(head.is_some_and(|head| head.contains("recycled")) && next().contains('%'));
    demo_for_people.signal("-USR1");
    let row = next();
    assert!(row.contains('%'), "the heads stand there once: {row}");
    demo_for_people.signal("-TERM");
    assert!(std::iter::from_fn(|| demo_for_people.line()).any(|line| line.starts_with("PASS")));

    let mut for_programs = demo(&["--seconds", "600", "--json"]);
    for_programs.until_it_listens();
    let mut errors = for_programs.errors().lines().map(|line| line.expect("text"));
    for_programs.signal("-USR1");
    assert!(errors.by_ref().any(|line| line.starts_with("time ")));
    let mut row = errors.next().expect("a row");
    let has_moved = |row: &str| row.split_whitespace().nth(1).is_some_and(|rate| rate != "0");
    for _ in 0..1000 {
        assert!(row.contains('%'), "{row}");
        if has_moved(&row) {
            break;
        }
        for_programs.signal("-USR1");
        row = errors.next().expect("a row for each signal");
    }
    for_programs.signal("-TERM");
    let object: String = std::iter::from_fn(|| for_programs.line()).collect();
    assert_eq!(serde_json::from_str::<Value>(&object).expect("one object")["ok"], true, "{object}");
    assert_eq!(errors.next(), None);
}

/// Frames that go from one far end to one of both.
fn traffic(hosts: &TwoHosts, to: usize) {
    let ends = far_ends(hosts);
    pass(&frames(hosts, 0, 64), 200, &ends[0], &ends[to]);
}

/// Frames that a command takes, of which it may lose some.
fn feed(hosts: &TwoHosts) {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let ([far, _], frames, mut frame) = (far_ends(hosts), frames(hosts, 0, 64), [0; 64]);
    for _ in 0..100 {
        // A number that comes by two queues would be good in the lines of each, and a duplicate at the end.
        frames.write(NEXT.fetch_add(1, Ordering::Relaxed), &mut frame);
        between::send(&far, &frame);
    }
}

#[test]
fn signals_query_and_end_commands_on_interfaces() {
    let name = "signals_query_and_end_commands_on_interfaces";
    let params = TwoHostsParams { queues: 2, ..TwoHostsParams::default() };
    let Some(hosts) = hosts(name, &params) else { return };
    let one = ["near0:0", "near0:1"];
    let two = ["near0:0", "near1:0", "near0:1", "near1:1"];
    type Run<'a> = (&'a [&'a str], &'a [&'a str], &'a str, fn(&TwoHosts));
    let runs: [Run<'_>; 4] = [
        (&["drop", "near0", "--verify"], &one, "-HUP", feed),
        (&["echo", "near0"], &one, "-TERM", |hosts| traffic(hosts, 0)),
        (&["forward", "near0", "near1"], &two, "-HUP", |hosts| traffic(hosts, 1)),
        (&["gen", "near0", "--rate", "10000"], &one, "-TERM", |_| ()),
    ];
    for (arguments, queues, signal, moves) in runs {
        let more = ["--json=lines", "--stats-every", "0"];
        let mut reading = Reading::new(Place::Between(&hosts).spawn(binary(&[arguments, &more].concat())));
        let Some(first) = reading.first(name) else { return };
        assert_eq!(first["opened"][0]["name"], "near0", "{first}");
        let key = if arguments[0] == "drop" { "received" } else { "sent" };
        let moved = |line: &Value| line["all"]["period"][key].as_i64() > Some(0);
        let figures = ask_and_end(reading, &first, signal, || moves(&hosts), moved);
        check(arguments[0], queues, &first, &figures);
        check_traffic(&figures);
        let last = figures.last().expect("the last line");
        if arguments.contains(&"--verify") {
            check_sums(&figures, |line| vec![&line["numbered"]]);
            assert_eq!(last["numbered"]["total"]["good"], last["verdict"]["numbered"]["good"]);
        }
        let of = |at: usize| last["interfaces"][at]["interface"].as_str();
        let second = (arguments[0] == "forward").then_some("near1");
        assert_eq!([of(0), of(1)], [Some("near0"), second], "in the order of the arguments");
    }
}

#[test]
fn sigusr1_prints_figures_of_a_command_on_interfaces() {
    let name = "sigusr1_prints_figures_of_a_command_on_interfaces";
    let Some(hosts) = hosts(name, &TwoHostsParams::default()) else { return };
    let command = binary(&["echo", "near0", "--stats-every", "0"]);
    let mut reading = Reading::new(Place::Between(&hosts).spawn(command));
    let Some(opened) = reading.line() else {
        let said = reading.said();
        assert!(said.contains("CAP_") || said.contains("CONFIG_XDP_SOCKETS"), "{said}");
        return println!("SKIP {name}: {}", said.trim());
    };
    assert!(opened.contains("rings of"), "{opened}");
    traffic(&hosts, 0);
    reading.signal("-USR1");
    let shown = [(); 3].map(|()| reading.line().expect("it runs"));
    assert!(
        shown[0].contains("s  in ") && shown[1].contains("recycled") && shown[2].contains("out "),
        "{shown:?}"
    );
    reading.signal("-HUP");
    assert!(std::iter::from_fn(|| reading.line()).any(|line| line.starts_with("PASS")));
}

#[test]
fn signals_query_and_end_a_demo_on_veth() {
    let name = "signals_query_and_end_a_demo_on_veth";
    let arguments = ["demo", "--on", "veth", "--json=lines", "--stats-every", "0", "--seconds", "600"];
    let mut reading = Reading::new(binary(&arguments).spawn().expect("the binary was built for this test"));
    let Some(first) = reading.first(name) else { return };
    let moved = |line: &Value| line["arrived"]["period"]["packets"].as_i64() > Some(0);
    let figures = ask_and_end(reading, &first, "-TERM", || (), moved);
    check("demo", &["near0:0", "near1:0"], &first, &figures);
    check_sums(&figures, |line| vec![&line["arrived"]]);
    let last = figures.last().expect("the last line");
    assert_eq!(last["arrived"]["total"]["packets"], last["verdict"]["packets"], "{last}");
    assert!(number(&last["verdict"], "packets") > 0, "{last}");
}
