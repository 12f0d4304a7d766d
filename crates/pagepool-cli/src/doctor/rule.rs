//! Rules and their findings.

use pagepool_link::shell_word;

use super::evidence::Evidence;

#[derive(Clone, Copy, Debug)]
pub struct DoctorRule {
    pub name: &'static str,
    pub cost: Cost,
    /// What it finds, with its limits.
    pub when: &'static str,
    pub why: &'static str,
    /// The fix, unless a finding has its own. `{of}` stands for [`Finding::of`].
    pub fix: &'static str,
    /// How to check the fix. `{of}` stands for [`Finding::of`].
    pub verify: &'static str,
    pub find: fn(&Evidence) -> Vec<Finding>,
    #[cfg(test)]
    pub case: RuleCase,
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

/// The worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cost {
    NoPackets,
    PacketsLost,
    PacketsChanged,
    BuffersLost,
    EachPacket,
    SomePackets,
}

impl Cost {
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
    pub fn new(place: impl Into<String>, of: impl Into<String>, seen: impl Into<String>, rate: f64) -> Self {
        Self { place: place.into(), of: of.into(), seen: seen.into(), fix: None, rate }
    }

    pub fn fixed_by(self, fix: impl Into<String>) -> Self {
        Self { fix: Some(fix.into()), ..self }
    }
}

#[derive(Clone, Debug)]
pub struct Diagnosis {
    pub rule: &'static DoctorRule,
    pub finding: Finding,
}

impl Diagnosis {
    pub fn fix(&self) -> String {
        self.filled(self.finding.fix.as_deref().unwrap_or(self.rule.fix))
    }

    pub fn verify(&self) -> String {
        self.filled(self.rule.verify)
    }

    fn filled(&self, text: &str) -> String {
        text.replace("{of}", &shell_word(&self.finding.of))
    }
}

/// All findings, the worst first.
pub fn diagnose(rules: &'static [DoctorRule], evidence: &Evidence) -> Vec<Diagnosis> {
    let of = |rule: &'static DoctorRule| {
        (rule.find)(evidence).into_iter().map(move |finding| Diagnosis { rule, finding })
    };
    let mut all: Vec<_> = rules.iter().flat_map(of).collect();
    all.sort_by(|one, other| {
        let rate = other.finding.rate.total_cmp(&one.finding.rate);
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
            (of.fix(), of.verify())
        };
        assert!(fixed("near0").0.starts_with("`ethtool -G near0 rx 4096`"));
        let (fix, verify) = fixed("a;reboot;'#");
        assert!(fix.starts_with(r"`ethtool -G 'a;reboot;'\''#' rx 4096`"), "{fix}");
        assert!(verify.starts_with(r"`ip -s -s link show 'a;reboot;'\''#'`"), "{verify}");
        assert!(fixed("a\u{1b}c").0.starts_with(r#"`ethtool -G "$(printf 'a\033c')" rx 4096`"#));
    }
}
