//! Rules, what they find, and what they say of it.

use pagepool_link::shell_word;

use super::evidence::{EntryEvidence, Evidence, LinkEvidence, OfProcess, PoolEvidence};

/// A rule of the doctor. Its texts are Markdown, with links that are relative to the folder `docs` of the
/// repository.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct DoctorRule {
    /// The name of the problem: `rx_ring_full`.
    pub name: &'static str,
    /// What the problem costs.
    pub cost: Cost,
    /// What it finds, with its limits.
    pub when: &'static str,
    /// Why it costs.
    pub why: &'static str,
    /// The fix, unless a finding has its own. `{of}` stands for [`Diagnosis::of`].
    pub fix: &'static str,
    /// How to check the fix. `{of}` stands for [`Diagnosis::of`].
    pub verify: &'static str,
    pub(crate) find: fn(&Evidence) -> Vec<Finding>,
    #[cfg(test)]
    pub(crate) case: RuleCase,
}

/// How a test changes the evidence of a healthy process.
#[cfg(test)]
#[derive(Clone, Copy, Debug)]
pub struct RuleCase {
    /// The rule must then find something.
    pub ill: fn(&mut Evidence),
    /// Must occur in the finding.
    pub says: &'static str,
    /// Similar, but the rule must find nothing.
    pub well: fn(&mut Evidence),
}

/// What a problem costs, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Cost {
    /// No packet passes.
    NoPackets,
    /// Packets are lost.
    PacketsLost,
    /// Packets arrive changed.
    PacketsChanged,
    /// Buffers are missing.
    BuffersLost,
    /// Each packet costs more time.
    EachPacket,
    /// Some packets cost more time.
    SomePackets,
}

impl Cost {
    /// The cost in words: "packets are lost".
    pub fn name(self) -> &'static str {
        match self {
            Self::NoPackets => "no packet passes",
            Self::PacketsLost => "packets are lost",
            Self::PacketsChanged => "packets arrive changed",
            Self::BuffersLost => "buffers are missing",
            Self::EachPacket => "each packet costs more",
            Self::SomePackets => "some packets cost more",
        }
    }
}

/// What a rule found, before its texts are filled in.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// Process and pool, socket or interface, for people.
    pub place: String,
    /// The argument of the rule's commands: a process, a pool or an interface.
    pub of: String,
    /// The evidence, with figures.
    pub seen: String,
    /// A fix for this case, in place of the rule's.
    pub fix: Option<String>,
    /// Per second; orders findings of equal cost.
    pub rate: f64,
}

impl Finding {
    pub fn new(place: String, of: &str, seen: String, rate: f64) -> Self {
        Self { place, of: of.to_owned(), seen, fix: None, rate }
    }

    pub fn of_pool((process, pool): OfProcess<'_, PoolEvidence>, seen: String, rate: f64) -> Self {
        Self::new(format!("{}, pool {}", process.title(), pool.name), &pool.name, seen, rate)
    }

    pub fn of_link(link: &LinkEvidence, seen: String, rate: f64) -> Self {
        Self::new(format!("interface {}", link.name), &link.name, seen, rate)
    }

    /// `of`: the argument of the rule's commands. The rate is that of the socket's packets.
    pub fn of_socket(
        evidence: &Evidence,
        (process, socket): OfProcess<'_, EntryEvidence>,
        of: &str,
        seen: String,
    ) -> Self {
        let packets = socket.moved("rx_packets").saturating_add(socket.moved("tx_packets"));
        let place = format!("{}, socket {}", process.title(), socket.name);
        Self::new(place, of, seen, evidence.per_second(packets))
    }

    pub fn fixed_by(self, fix: impl Into<String>) -> Self {
        Self { fix: Some(fix.into()), ..self }
    }

    /// With this fix, if there is one.
    pub fn fixed_if(self, fix: Option<impl Into<String>>) -> Self {
        Self { fix: fix.map(Into::into).or(self.fix), ..self }
    }
}

/// A problem that a rule found, and what helps.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Diagnosis {
    /// The rule that found it, with the problem's name and cost.
    pub rule: &'static DoctorRule,
    /// Where it is: process and pool, socket or interface, for people.
    pub place: String,
    /// The process, pool or interface that the commands of `fix` and `verify` name.
    pub of: String,
    /// What was seen, with figures.
    pub seen: String,
    /// Why it costs.
    pub why: String,
    /// How to fix it.
    pub fix: String,
    /// How to check that the fix helped.
    pub verify: String,
    /// How often it happens, per second, or 0; orders problems of equal cost.
    pub rate: f64,
}

impl Diagnosis {
    fn new(rule: &'static DoctorRule, finding: Finding) -> Self {
        let Finding { place, of, seen, fix, rate } = finding;
        let filled = |text: &str| plain(&text.replace("{of}", &shell_word(&of)));
        let (fix, verify) = (filled(fix.as_deref().unwrap_or(rule.fix)), filled(rule.verify));
        Self { rule, place, of, seen, why: plain(rule.why), fix, verify, rate }
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

/// What the rules find, the worst first.
pub fn diagnose(rules: &'static [DoctorRule], evidence: &Evidence) -> Vec<Diagnosis> {
    let of = |rule: &'static DoctorRule| {
        (rule.find)(evidence).into_iter().map(move |finding| Diagnosis::new(rule, finding))
    };
    let mut all: Vec<_> = rules.iter().flat_map(of).collect();
    all.sort_by(|one, other| {
        let rate = other.rate.total_cmp(&one.rate);
        one.rule.cost.cmp(&other.rule.cost).then(rate)
    });
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::evidence::healthy;
    use crate::doctor::rules::RULES;

    #[test]
    fn names_in_commands_are_quoted_for_the_shell() {
        let mut evidence = healthy::evidence();
        evidence.links[0].dropped = 80_000;
        let mut fixed = |name: &str| {
            evidence.links[0].name = name.into();
            let found = diagnose(RULES, &evidence);
            let of = found.iter().find(|of| of.rule.name == "card_dropped").expect("it is found");
            (of.fix.clone(), of.verify.clone())
        };
        assert!(fixed("near0").0.starts_with("`ethtool -G near0 rx 4096`"));
        let (fix, verify) = fixed("a;reboot;'#");
        assert!(fix.starts_with(r"`ethtool -G 'a;reboot;'\''#' rx 4096`"), "{fix}");
        assert!(verify.starts_with(r"`ip -s -s link show 'a;reboot;'\''#'`"), "{verify}");
        assert!(fixed("a\u{1b}c").0.starts_with(r#"`ethtool -G "$(printf 'a\033c')" rx 4096`"#));
    }

    #[test]
    fn links_of_the_page_are_words() {
        assert_eq!(plain("see [operations.md](operations.md#sizing)."), "see docs/operations.md.");
        assert_eq!(plain("[those of commands](operations.md), [no link"), "those of commands, [no link");
    }
}
