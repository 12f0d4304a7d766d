//! Prints findings, what was not judged, and the table of rules.

use serde_json::{Value, json};

use super::evidence::Evidence;
use super::rule::{Cost, Diagnosis, DoctorRule};
use crate::report::colour::Colour;
use crate::report::output;

/// The column where texts of a finding begin.
const TEXTS: usize = 11;

pub fn print(found: &[Diagnosis], evidence: &Evidence) {
    let (count, scope) = (found.len(), scope(evidence));
    let head = match count {
        0 if !evidence.unseen.not_judged.is_empty() => {
            format!("No finding in {:.0} s of {scope}; not all could be judged.", evidence.seconds)
        }
        0 => format!("Nothing found in {:.0} s of {scope}.", evidence.seconds),
        1 => format!("1 finding in {:.0} s of {scope}, with its cost:", evidence.seconds),
        _ => format!("{count} findings in {:.0} s of {scope}, the worst first:", evidence.seconds),
    };
    let is_well = count == 0 && evidence.unseen.not_judged.is_empty();
    output::hanging(&head, 2, is_well.then_some(Colour::Good));
    for (at, diagnosis) in found.iter().enumerate() {
        let Diagnosis { rule, finding } = diagnosis;
        let title = format!("{}. {}: {} ({})", at + 1, finding.place, rule.name, rule.cost.name());
        output::line("");
        output::hanging(&title, 3, Some(colour(rule.cost)));
        let texts = [
            ("seen", finding.seen.clone()),
            ("why", rule.why.to_owned()),
            ("fix", diagnosis.fix()),
            ("verify", diagnosis.verify()),
        ];
        for (what, text) in texts {
            output::hanging(&format!("   {what:<7} {}", plain(&text)), TEXTS, None);
        }
    }
    evidence.unseen.not_judged.iter().for_each(|what| output::warn(format_args!("not judged: {what}")));
    evidence.unseen.notes.iter().for_each(output::note);
}

pub fn json(found: &[Diagnosis], evidence: &Evidence) -> Value {
    let one = |diagnosis: &Diagnosis| {
        let Diagnosis { rule, finding } = diagnosis;
        json!({
            "rule": rule.name,
            "cost": rule.cost.name(),
            "place": finding.place,
            "of": finding.of,
            "rate": finding.rate,
            "seen": finding.seen,
            "why": plain(rule.why),
            "fix": plain(&diagnosis.fix()),
            "verify": plain(&diagnosis.verify()),
        })
    };
    let count = |kind| evidence.entries(&[kind]).count();
    json!({
        "seconds": evidence.seconds,
        "processes": evidence.processes.len(),
        "pools": evidence.processes.iter().map(|process| process.pools.len()).sum::<usize>(),
        "sockets": count("socket"),
        "interfaces": evidence.links.iter().map(|link| &link.name).collect::<Vec<_>>(),
        "kernel_pools": evidence.kernel_pools.len(),
        "findings": found.iter().map(one).collect::<Vec<_>>(),
        "not_judged": evidence.unseen.not_judged,
        "notes": evidence.unseen.notes,
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

fn scope(evidence: &Evidence) -> String {
    let many = |count: usize, what: &str| match count {
        1 => format!("1 {what}"),
        count => format!("{count} {what}{}", if what.ends_with('s') { "es" } else { "s" }),
    };
    let pools = evidence.processes.iter().map(|process| process.pools.len()).sum();
    let mut parts = vec![many(evidence.processes.len(), "process"), many(pools, "pool")];
    let sockets = evidence.entries(&["socket"]).count();
    parts.extend((sockets > 0).then(|| many(sockets, "socket")));
    parts.extend((!evidence.links.is_empty()).then(|| many(evidence.links.len(), "interface")));
    let kernel = evidence.kernel_pools.len();
    parts.extend((kernel > 0).then(|| many(kernel, "pool") + " of the kernel"));
    parts.join(", ")
}

fn colour(cost: Cost) -> Colour {
    match cost {
        Cost::NoPackets | Cost::PacketsLost | Cost::BuffersLost => Colour::Bad,
        Cost::PacketsChanged | Cost::EachPacket | Cost::SomePackets => Colour::Caution,
    }
}

/// Removes links: `[text](where.md)` becomes docs/where.md.
fn plain(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, link)) = rest.split_once('[') {
        let Some((label, behind)) = link.split_once("](") else { break };
        let Some((target, after)) = behind.split_once(')') else { break };
        plain += before;
        match target.starts_with(label) {
            true => plain += &format!("docs/{label}"),
            false => plain += label,
        }
        rest = after;
    }
    plain + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::evidence::healthy;

    #[test]
    fn what_was_looked_at_is_counted() {
        let mut evidence = healthy::evidence();
        assert_eq!(scope(&evidence), "1 process, 1 pool, 1 socket, 1 interface, 1 pool of the kernel");
        evidence.processes.push(evidence.processes[0].clone());
        assert!(scope(&evidence).starts_with("2 processes, 2 pools, 2 sockets"), "{}", scope(&evidence));
    }

    #[test]
    fn links_of_the_page_are_words_on_a_terminal() {
        assert_eq!(plain("see [operations.md](operations.md#sizing)."), "see docs/operations.md.");
        assert_eq!(plain("[those of commands](operations.md), [no link"), "those of commands, [no link");
    }
}
