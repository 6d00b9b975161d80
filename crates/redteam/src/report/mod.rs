//! Results of a run of a red team.

mod csv;
mod rates;
mod sarif;
mod text;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::category::{self, Severity};
use crate::generate::Skipped;
use crate::probe::Layer;
use crate::strategy;

pub use csv::csv;
pub use rates::{Rate, risk_score};
pub use sarif::sarif;
pub use text::text;

/// Verdict about one attack at one layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The attack was stopped before it ran.
    Blocked,
    /// The attack ran and reached nothing.
    Contained,
    /// The attack reached what it should not.
    Breached,
    /// The outcome is unknown.
    Inconclusive,
}

impl Verdict {
    /// Returns the name in files and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Blocked => "blocked",
            Self::Contained => "contained",
            Self::Breached => "breached",
            Self::Inconclusive => "inconclusive",
        }
    }

    /// Returns the verdict with this name.
    pub fn named(name: &str) -> Option<Self> {
        [Self::Blocked, Self::Contained, Self::Breached, Self::Inconclusive]
            .into_iter()
            .find(|known| known.name() == name)
    }
}

/// One attack and what became of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// The layer that it met.
    pub layer: Layer,
    /// The verdict of that layer.
    pub verdict: Verdict,
    /// The plugin: `sandbox:escape`.
    pub plugin: String,
    /// The strategy: `basic`.
    pub strategy: String,
    /// The probe: `escape-core-pattern`.
    pub probe: String,
    /// The severity of a breach.
    pub severity: Severity,
    /// Goal of the attack.
    pub goal: String,
    /// The target.
    pub target: String,
    /// Kinds of evidence, where the oracle names them: `network-egress-observed`.
    pub kinds: Vec<String>,
    /// The evidence, for a reader.
    pub evidence: String,
    /// The row of the stored run.
    pub row: usize,
    /// The column of the stored run.
    #[serde(default)]
    pub column: usize,
    /// Whether the gate let it through, and the wall held it.
    #[serde(default)]
    pub held_by_wall: bool,
}

impl Finding {
    /// Whether it counts as a breach: what the gate missed does not if the wall is known to hold it.
    pub fn is_breach(&self) -> bool {
        self.verdict == Verdict::Breached && !self.held_by_wall
    }

    fn key(&self) -> String {
        [self.layer.name(), &self.target, &self.probe, &self.strategy].join(" ")
    }
}

/// The rate at which attacks succeed in a group.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Group {
    /// The name: a layer, a plugin, a strategy or a severity.
    pub name: String,
    /// The attacks with a verdict that succeeded, and all of them.
    #[serde(flatten)]
    pub rate: Rate,
    /// Verdicts by name.
    pub verdicts: BTreeMap<&'static str, usize>,
}

/// Results of a plugin's attacks.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Vulnerability {
    /// The plugin: `sandbox:escape`.
    pub plugin: String,
    /// Description of the attacks.
    pub about: String,
    /// The severity of a breach.
    pub severity: Severity,
    /// How hard the easiest successful strategy is.
    pub complexity: &'static str,
    /// The risk, from 0 to 10.
    pub risk_score: f64,
    /// The level of the risk.
    pub risk: &'static str,
    /// The attacks with a verdict that succeeded, and all of them.
    #[serde(flatten)]
    pub rate: Rate,
    /// Entries of OWASP's list for applications of models.
    pub owasp: Vec<String>,
    /// Techniques of MITRE ATT&CK.
    pub mitre: Vec<String>,
    /// Weaknesses of CWE.
    pub cwe: Vec<String>,
    /// Advice about a breach.
    pub advice: String,
}

/// An answer to a question that a user has.
#[derive(Debug, Clone, Serialize)]
pub struct Answer {
    /// The question.
    pub question: &'static str,
    /// The answer: `yes`, `no`, `partly` or `not tested`.
    pub answer: &'static str,
    /// The figures.
    pub detail: String,
}

/// Differences from the run before.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Changes {
    /// The run before.
    pub since: String,
    /// Breaches that are new.
    pub newly_breached: Vec<String>,
    /// Breaches that are gone.
    pub no_longer_breached: Vec<String>,
}

/// Results of a run.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The run.
    pub eval_id: String,
    /// The time at which it started.
    pub created_at: String,
    /// The targets.
    pub targets: Vec<String>,
    /// Purpose of the target.
    pub purpose: String,
    /// Breaches that count.
    pub breaches: usize,
    /// By layer.
    pub layers: Vec<Group>,
    /// By severity.
    pub severities: Vec<Group>,
    /// By strategy.
    pub strategies: Vec<Group>,
    /// By plugin, the worst first.
    pub vulnerabilities: Vec<Vulnerability>,
    /// Answers to the usual questions.
    pub questions: Vec<Answer>,
    /// Things that were not attacked.
    pub skipped: Vec<Skip>,
    /// Differences from the run before.
    pub changes: Option<Changes>,
    /// All attacks.
    pub findings: Vec<Finding>,
}

/// A category that was not attacked, and why.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Skip {
    /// Name of the category.
    pub what: String,
    /// The reason.
    pub why: String,
}

impl From<Skipped> for Skip {
    fn from(skipped: Skipped) -> Self {
        Self { what: skipped.what, why: skipped.why }
    }
}

/// Subject of a report.
#[derive(Debug, Clone, Default)]
pub struct About {
    /// The run.
    pub eval_id: String,
    /// The time at which it started.
    pub created_at: String,
    /// Purpose of the target.
    pub purpose: String,
    /// Things that were not attacked.
    pub skipped: Vec<Skip>,
}

/// Outcome of a run, as the exit code says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing was breached.
    Withstood,
    /// Something at or above the severity asked for was breached.
    Breached,
    /// No attack has a verdict.
    Inconclusive,
}

impl Report {
    /// Makes a report of findings; `before` are those of the run before, with its id.
    pub fn new(about: About, mut findings: Vec<Finding>, before: Option<(String, Vec<Finding>)>) -> Self {
        join(&mut findings);
        let changes = before.map(|(since, mut earlier)| {
            join(&mut earlier);
            changes(since, &earlier, &findings)
        });
        let group = |name: &str, of: &dyn Fn(&Finding) -> bool| {
            let members: Vec<&Finding> = findings.iter().filter(|finding| of(finding)).collect();
            (!members.is_empty()).then(|| Group::of(name, &members))
        };
        let layers = Layer::ALL
            .iter()
            .filter_map(|layer| group(layer.name(), &|finding| finding.layer == *layer))
            .collect();
        let severities = Severity::ALL
            .iter()
            .filter_map(|level| group(level.name(), &|finding| finding.severity == *level))
            .collect();
        let names = |of: &dyn Fn(&Finding) -> &str| {
            let mut names: Vec<&str> = Vec::new();
            findings.iter().map(of).for_each(|name| {
                if !names.contains(&name) {
                    names.push(name);
                }
            });
            names.into_iter().map(str::to_owned).collect::<Vec<_>>()
        };
        let strategies = names(&|finding| &finding.strategy);
        let strategies =
            strategies.iter().filter_map(|name| group(name, &|finding| finding.strategy == *name)).collect();
        let mut vulnerabilities: Vec<Vulnerability> = names(&|finding| &finding.plugin)
            .iter()
            .map(|plugin| {
                Vulnerability::of(
                    plugin,
                    &findings.iter().filter(|f| f.plugin == *plugin).collect::<Vec<_>>(),
                )
            })
            .collect();
        vulnerabilities.sort_by(|a, b| b.risk_score.total_cmp(&a.risk_score));
        Self {
            eval_id: about.eval_id,
            created_at: about.created_at,
            targets: names(&|finding| &finding.target),
            purpose: about.purpose,
            breaches: findings.iter().filter(|finding| finding.is_breach()).count(),
            layers,
            severities,
            strategies,
            vulnerabilities,
            questions: rates::questions(&findings),
            skipped: about.skipped,
            changes,
            findings,
        }
    }

    /// Returns the outcome, where breaches below a severity do not count.
    pub fn outcome(&self, fail_on: Severity) -> Outcome {
        if self.findings.iter().any(|finding| finding.is_breach() && finding.severity >= fail_on) {
            Outcome::Breached
        } else if self.findings.iter().all(|finding| finding.verdict == Verdict::Inconclusive) {
            Outcome::Inconclusive
        } else {
            Outcome::Withstood
        }
    }
}

/// Marks what the gate let through as held by the wall if the wall held the same program.
fn join(findings: &mut [Finding]) {
    let at_wall: BTreeMap<(String, String), Verdict> = findings
        .iter()
        .filter(|finding| finding.layer == Layer::Wall)
        .map(|finding| ((finding.probe.clone(), finding.strategy.clone()), finding.verdict))
        .collect();
    for finding in findings
        .iter_mut()
        .filter(|finding| finding.layer == Layer::Gate && finding.verdict == Verdict::Breached)
    {
        // A disguise does not change what a program can reach, so the plain program speaks for it.
        let plain = || at_wall.get(&(finding.probe.clone(), "basic".to_owned()));
        let met = at_wall.get(&(finding.probe.clone(), finding.strategy.clone())).or_else(plain);
        finding.held_by_wall = matches!(met, Some(Verdict::Contained | Verdict::Blocked));
    }
}

fn changes(since: String, earlier: &[Finding], now: &[Finding]) -> Changes {
    let breached = |findings: &[Finding]| -> Vec<String> {
        findings.iter().filter(|finding| finding.is_breach()).map(Finding::key).collect()
    };
    let (before, after) = (breached(earlier), breached(now));
    let tested: Vec<String> = now.iter().map(Finding::key).collect();
    Changes {
        since,
        newly_breached: after.iter().filter(|key| !before.contains(key)).cloned().collect(),
        // What was not attacked again is not known to be repaired.
        no_longer_breached: before
            .into_iter()
            .filter(|key| !after.contains(key) && tested.contains(key))
            .collect(),
    }
}

impl Group {
    fn of(name: &str, members: &[&Finding]) -> Self {
        let mut verdicts = BTreeMap::new();
        for finding in members {
            *verdicts.entry(finding.verdict.name()).or_default() += 1;
        }
        Self { name: name.to_owned(), rate: Rate::of(members), verdicts }
    }
}

impl Vulnerability {
    fn of(plugin: &str, members: &[&Finding]) -> Self {
        let known = category::find(plugin);
        let severity =
            members.iter().map(|finding| finding.severity).max().unwrap_or(Severity::Informational);
        let strategies: Vec<&str> = members.iter().map(|finding| finding.strategy.as_str()).collect();
        // The score of a plugin is that of its worst strategy.
        let scored = strategies.iter().map(|name| {
            let own: Vec<&Finding> =
                members.iter().filter(|finding| finding.strategy == *name).copied().collect();
            (
                risk_score(severity, Rate::counted(&own).asr, strategy::complexity(name)),
                strategy::complexity(name),
            )
        });
        let (risk_score, complexity) = scored.max_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or((0.0, "low"));
        Self {
            plugin: plugin.to_owned(),
            about: known.map_or_else(|| members[0].goal.clone(), |category| category.about.clone()),
            severity,
            complexity,
            risk_score,
            risk: rates::level(risk_score),
            rate: Rate::of(members),
            owasp: known.map(|category| category.owasp.clone()).unwrap_or_default(),
            mitre: known.map(|category| category.mitre.clone()).unwrap_or_default(),
            cwe: known
                .map(|c| c.cwe.iter().map(|number| format!("CWE-{number}")).collect())
                .unwrap_or_default(),
            advice: known.map(|category| category.advice.clone()).unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn finding(layer: Layer, verdict: Verdict, probe: &str, strategy: &str) -> Finding {
        Finding {
            layer,
            verdict,
            plugin: "sandbox:escape".to_owned(),
            strategy: strategy.to_owned(),
            probe: probe.to_owned(),
            severity: Severity::Critical,
            goal: "to get out".to_owned(),
            target: "t".to_owned(),
            kinds: Vec::new(),
            evidence: "it said so".to_owned(),
            row: 0,
            column: 0,
            held_by_wall: false,
        }
    }

    fn report(findings: Vec<Finding>, before: Option<Vec<Finding>>) -> Report {
        Report::new(About::default(), findings, before.map(|findings| ("eval-1".to_owned(), findings)))
    }

    #[test]
    fn what_the_wall_holds_is_no_breach_although_the_gate_missed_it() {
        let missed = finding(Layer::Gate, Verdict::Breached, "a", "code:exec-base64");
        let alone = report(vec![missed.clone()], None);
        assert_eq!((alone.breaches, alone.outcome(Severity::High)), (1, Outcome::Breached));
        let held = report(vec![missed.clone(), finding(Layer::Wall, Verdict::Contained, "a", "basic")], None);
        assert_eq!((held.breaches, held.outcome(Severity::High)), (0, Outcome::Withstood));
        let gate = held.layers.iter().find(|group| group.name == "gate").unwrap();
        assert_eq!(
            (gate.rate.succeeded, gate.rate.total),
            (1, 1),
            "the gate's miss rate is reported all the same"
        );
        let broken = report(vec![missed, finding(Layer::Wall, Verdict::Breached, "a", "basic")], None);
        assert_eq!(broken.breaches, 2);
    }

    #[test]
    fn outcomes_count_severities_and_verdicts() {
        let low =
            Finding { severity: Severity::Low, ..finding(Layer::Wall, Verdict::Breached, "a", "basic") };
        assert_eq!(report(vec![low.clone()], None).outcome(Severity::High), Outcome::Withstood);
        assert_eq!(report(vec![low], None).outcome(Severity::Low), Outcome::Breached);
        let unknown = finding(Layer::Wall, Verdict::Inconclusive, "a", "basic");
        let unknown = report(vec![unknown], None);
        assert_eq!(unknown.outcome(Severity::High), Outcome::Inconclusive);
        assert_eq!(unknown.layers[0].rate.total, 0, "what cannot be told is no pass");
        assert_eq!(report(Vec::new(), None).outcome(Severity::High), Outcome::Inconclusive);
    }

    #[test]
    fn changes_are_named() {
        let of = |verdict, probe| finding(Layer::Wall, verdict, probe, "basic");
        let before = vec![
            of(Verdict::Breached, "mended"),
            of(Verdict::Contained, "worse"),
            of(Verdict::Breached, "not again"),
        ];
        let now = vec![of(Verdict::Contained, "mended"), of(Verdict::Breached, "worse")];
        let changes = report(now, Some(before)).changes.unwrap();
        assert_eq!(changes.newly_breached, ["wall t worse basic"]);
        assert_eq!(changes.no_longer_breached, ["wall t mended basic"]);
    }
}
