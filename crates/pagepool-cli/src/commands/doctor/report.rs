//! Prints findings, what was not judged, and the table of rules.

use pagepool_watch::doctor::{Cost, Diagnosis, DoctorReport, DoctorRule};
use serde_json::{Value, json};

use crate::report::{Colour, output};

/// The column where texts of a finding begin.
const TEXTS: usize = 11;

pub fn print(report: &DoctorReport) {
    let (count, seconds, scope) = (report.found.len(), report.seconds, scope(report));
    let head = match count {
        0 if !report.not_judged.is_empty() => {
            format!("No finding in {seconds:.0} s of {scope}; not all could be judged.")
        }
        0 => format!("Nothing found in {seconds:.0} s of {scope}."),
        1 => format!("1 finding in {seconds:.0} s of {scope}, with its cost:"),
        _ => format!("{count} findings in {seconds:.0} s of {scope}, the worst first:"),
    };
    let is_well = count == 0 && report.not_judged.is_empty();
    output::hanging(&head, 2, is_well.then_some(Colour::Good));
    for (at, diagnosis) in report.found.iter().enumerate() {
        let Diagnosis { rule, place, seen, why, fix, verify, .. } = diagnosis;
        let title = format!("{}. {place}: {} ({})", at + 1, rule.name, rule.cost.name());
        output::line("");
        output::hanging(&title, 3, Some(colour(rule.cost)));
        for (what, text) in [("seen", seen), ("why", why), ("fix", fix), ("verify", verify)] {
            output::hanging(&format!("   {what:<7} {text}"), TEXTS, None);
        }
    }
    report.not_judged.iter().for_each(|what| output::warn(format_args!("not judged: {what}")));
    report.notes.iter().for_each(output::note);
}

pub fn json(report: &DoctorReport) -> Value {
    let one = |diagnosis: &Diagnosis| {
        let Diagnosis { rule, place, of, seen, why, fix, verify, rate, .. } = diagnosis;
        json!({
            "rule": rule.name,
            "cost": rule.cost.name(),
            "place": place,
            "of": of,
            "rate": rate,
            "seen": seen,
            "why": why,
            "fix": fix,
            "verify": verify,
        })
    };
    json!({
        "seconds": report.seconds,
        "processes": report.processes,
        "pools": report.pools,
        "sockets": report.sockets,
        "interfaces": report.interfaces,
        "kernel_pools": report.kernel_pools,
        "findings": report.found.iter().map(one).collect::<Vec<_>>(),
        "not_judged": report.not_judged,
        "notes": report.notes,
    })
}

/// The Markdown table of the rules.
pub fn table(rules: &[DoctorRule]) -> String {
    let row = |rule: &DoctorRule| {
        let DoctorRule { name, cost, when, why, fix, .. } = rule;
        let fix = fix.replace("show {of}", "show POOL").replace("{of}", "IF");
        format!("| `{name}` | {} | {when} | {why} | {fix} |\n", cost.name())
    };
    let head = "| rule | cost | reported if | why it matters | fix |\n|---|---|---|---|---|\n";
    head.to_owned() + &rules.iter().map(row).collect::<String>()
}

fn scope(report: &DoctorReport) -> String {
    let many = |count: usize, what: &str| match count {
        1 => format!("1 {what}"),
        count => format!("{count} {what}{}", if what.ends_with('s') { "es" } else { "s" }),
    };
    let mut parts = vec![many(report.processes, "process"), many(report.pools, "pool")];
    let others = [(report.sockets, "socket"), (report.interfaces.len(), "interface")];
    parts.extend(others.iter().filter(|(count, _)| *count > 0).map(|(count, what)| many(*count, what)));
    let kernel = report.kernel_pools;
    parts.extend((kernel > 0).then(|| many(kernel, "pool") + " of the kernel"));
    parts.join(", ")
}

fn colour(cost: Cost) -> Colour {
    match cost {
        Cost::NoPackets | Cost::PacketsLost | Cost::BuffersLost => Colour::Bad,
        _ => Colour::Caution,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_looked_at_is_counted() {
        let mut report = DoctorReport::default();
        (report.processes, report.pools, report.sockets, report.kernel_pools) = (1, 1, 1, 1);
        report.interfaces = vec!["near0".into()];
        assert_eq!(scope(&report), "1 process, 1 pool, 1 socket, 1 interface, 1 pool of the kernel");
        (report.processes, report.pools, report.sockets) = (2, 2, 0);
        assert_eq!(scope(&report), "2 processes, 2 pools, 1 interface, 1 pool of the kernel");
    }
}
