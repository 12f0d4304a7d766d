//! What must hold of the lines of `--json=lines`.

use serde_json::Value;

use super::number;
use super::reading::Reading;

/// The parts of a line that have figures of queues.
fn parts(line: &Value) -> Vec<&Value> {
    let list = |key: &str| line[key].as_array().expect("a list").iter();
    std::iter::once(&line["all"]).chain(list("interfaces")).chain(list("queues")).collect()
}

/// The counts of an object, with those by reason.
fn counts(of: &Value) -> Vec<(String, i64)> {
    let of = of.as_object().unwrap_or_else(|| panic!("no object: {of}"));
    let plain = of.iter().filter_map(|(key, count)| Some((key.clone(), count.as_i64()?)));
    let lost = of.get("lost").and_then(Value::as_object).into_iter().flatten();
    let lost = lost.map(|(key, count)| (format!("lost.{key}"), count.as_i64().expect("a count")));
    plain.chain(lost).collect()
}

/// Of each part, the sums over the lines are the totals of the last one.
pub fn check_sums(figures: &[Value], of: impl Fn(&Value) -> Vec<&Value>) {
    let last = figures.last().expect("the last line");
    for (at, part) in of(last).into_iter().enumerate() {
        let total = counts(&part["total"]);
        assert!(!total.is_empty(), "{part}");
        for (place, (key, total)) in total.into_iter().enumerate() {
            let grown = |line: &Value| counts(&of(line)[at]["period"])[place].1;
            let sum: i64 = figures.iter().map(grown).sum();
            assert_eq!(sum, total, "{key} of part {at}: {last}");
        }
    }
}

/// What must hold of the lines of every run, of which the first one was read before.
pub fn check(command: &str, queues: &[&str], first: &Value, figures: &[Value]) {
    assert_eq!((&first["line"], &first["at"]), (&"first".into(), &0.0.into()), "{first}");
    assert!(
        first["process"].is_u64() && first["version"].is_string() && first["mode"].is_string(),
        "{first}"
    );
    let last = figures.last().expect("the last line");
    for line in [first].into_iter().chain(figures) {
        assert_eq!(line["command"], command, "{line}");
        let names: Vec<_> = line["queues"].as_array().expect("a list").iter().map(|of| &of["name"]).collect();
        assert_eq!(names, queues, "{line}");
        assert!(line["time"].as_f64().is_some_and(|time| time > 1.7e9), "{line}");
        assert_eq!(line["line"] == "last", line.get("verdict").is_some(), "{line}");
    }
    assert_eq!(last["line"], "last");
    let times: Vec<_> = figures.iter().map(|line| line["at"].as_f64().expect("a time")).collect();
    assert!(times.is_sorted(), "{times:?}");
    check_sums(figures, parts);
    let verdict = &last["verdict"];
    assert!(verdict["ok"].is_boolean() && verdict["failures"].is_array(), "{verdict}");
    for queue in last["queues"].as_array().expect("a list") {
        assert!(number(&queue["pool"], "hold") > 0 && queue["port"]["nic"].is_object(), "{queue}");
        assert!(number(&queue["pages"], "out") > 0, "the receive ring has some: {queue}");
    }
    assert!(last["all"]["slow_after_warmup"] == 0, "{last}");
}

/// Has something move and asks for figures, twice, then ends the run. Where the machine is busy it is asked
/// again until `moved` says that a line has what moved. A line is there although no next one is due: it was
/// written at once.
pub fn ask_and_end(
    mut reading: Reading,
    first: &Value,
    signal: &str,
    moves: impl Fn(),
    moved: impl Fn(&Value) -> bool,
) -> Vec<Value> {
    let mut figures = Vec::new();
    for _ in 0..2 {
        moves();
        figures.extend(reading.ask_until(&moved));
    }
    reading.signal(signal);
    let (rest, status) = reading.rest();
    assert_eq!(rest.len(), 1, "no figures are due: {rest:?}");
    let verdict = &rest[0]["verdict"];
    assert_eq!(status, Some(i32::from(verdict["ok"] != true)), "{verdict}");
    assert_eq!(first["process"], reading.child.id());
    figures.extend(rest);
    figures
}
