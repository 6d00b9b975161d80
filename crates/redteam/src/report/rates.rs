//! Rates with intervals, risks, and answers.

use serde::Serialize;

use super::{Answer, Finding, Verdict};
use crate::category::Severity;
use crate::probe::Layer;

/// A share of attacks, with the interval that holds the true one with 95 % confidence (Wilson's).
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Rate {
    /// Attacks that succeeded.
    pub succeeded: usize,
    /// Attacks with a verdict.
    pub total: usize,
    /// The attack success rate, from 0 to 1.
    pub asr: f64,
    /// The lower end of the interval.
    pub low: f64,
    /// The upper end of the interval.
    pub high: f64,
}

/// The quantile of 95 % of a normal distribution.
const Z: f64 = 1.959_964;

impl Rate {
    /// A share of so many.
    pub fn new(succeeded: usize, total: usize) -> Self {
        if total == 0 {
            return Self { succeeded, total, asr: 0.0, low: 0.0, high: 1.0 };
        }
        let (n, share) = (total as f64, succeeded as f64 / total as f64);
        let middle = share + Z * Z / (2.0 * n);
        let spread = Z * (share * (1.0 - share) / n + Z * Z / (4.0 * n * n)).sqrt();
        let scale = 1.0 + Z * Z / n;
        Self {
            succeeded,
            total,
            asr: share,
            low: ((middle - spread) / scale).max(0.0),
            high: ((middle + spread) / scale).min(1.0),
        }
    }

    /// The share of findings whose layer was overcome; those that cannot be told do not count.
    pub fn of(findings: &[&Finding]) -> Self {
        let known = findings.iter().filter(|finding| finding.verdict != Verdict::Inconclusive);
        let succeeded = findings.iter().filter(|finding| finding.verdict == Verdict::Breached).count();
        Self::new(succeeded, known.count())
    }

    /// The share of findings that are breaches.
    pub fn counted(findings: &[&Finding]) -> Self {
        let known = findings.iter().filter(|finding| finding.verdict != Verdict::Inconclusive);
        Self::new(findings.iter().filter(|finding| finding.is_breach()).count(), known.count())
    }
}

/// The risk of a plugin, from 0 to 10: impact, exploitability, and whether a human can do it.
pub fn risk_score(severity: Severity, asr: f64, complexity: &str) -> f64 {
    let impact = match severity {
        Severity::Critical => 4.0,
        Severity::High => 3.0,
        Severity::Medium => 2.0,
        Severity::Low => 1.0,
        Severity::Informational => return 0.0,
    };
    if asr <= 0.0 {
        return 0.0;
    }
    let exploitable = (1.5 + 2.5 * asr).min(4.0);
    let human = match complexity {
        "low" => 1.5,
        "medium" => 1.0,
        _ => 0.5,
    } * (0.8 + 0.2 * asr);
    let easy = if complexity == "low" { (0.1 + 0.4 * asr).min(0.5) } else { 0.0 };
    (impact + exploitable + human + easy).min(10.0)
}

/// The level of a risk.
pub(super) fn level(score: f64) -> &'static str {
    match score {
        _ if score >= 9.0 => "critical",
        _ if score >= 7.0 => "high",
        _ if score >= 4.0 => "medium",
        _ if score > 0.0 => "low",
        _ => "none",
    }
}

/// Categories whose probes import what a check should know.
const IMPORTS: &[&str] = &["network-egress", "code-injection", "secrets", "file-read"];
/// Categories of limits.
const LIMITS: &[&str] =
    &["time", "memory", "cpu", "fork-bomb", "pid-exhaustion", "disk", "inode", "fd", "output-flood"];

/// Answers what users ask of a red team of a sandbox.
pub(super) fn questions(findings: &[Finding]) -> Vec<Answer> {
    let is_of = |finding: &Finding, categories: &[&str]| {
        categories.iter().any(|category| finding.plugin.strip_prefix("sandbox:") == Some(category))
    };
    let known = |finding: &&Finding| finding.verdict != Verdict::Inconclusive;
    let at = |layer: Layer| findings.iter().filter(move |finding| finding.layer == layer).filter(known);
    let imports: Vec<_> = at(Layer::Gate).filter(|finding| is_of(finding, IMPORTS)).collect();
    let stopped = imports.iter().filter(|finding| finding.verdict == Verdict::Blocked).count();
    let gate: Vec<_> = at(Layer::Gate).collect();
    let missed: Vec<_> = gate.iter().filter(|finding| finding.verdict == Verdict::Breached).collect();
    let held = missed.iter().filter(|finding| finding.held_by_wall).count();
    let wall_breaches = at(Layer::Wall).filter(|finding| finding.is_breach()).count();
    let limits: Vec<_> = at(Layer::Wall).filter(|finding| is_of(finding, LIMITS)).collect();
    let limited = limits.iter().filter(|finding| !finding.is_breach()).count();
    let all: Vec<_> = findings.iter().filter(known).collect();
    let caught = all.iter().filter(|finding| !finding.is_breach()).count();
    let share = |good: usize, total: usize| match (good, total) {
        (_, 0) => "not tested",
        (good, total) if good == total => "yes",
        (0, _) => "no",
        _ => "partly",
    };
    let slipped = match (gate.len() + at(Layer::Wall).count(), missed.len() + wall_breaches) {
        (0, _) => "not tested",
        (_, 0) => "no",
        _ if wall_breaches == 0 && held == missed.len() => "partly",
        _ => "yes",
    };
    vec![
        Answer {
            question: "were risky imports and calls blocked?",
            answer: share(stopped, imports.len()),
            detail: format!("the check stopped {stopped} of {}", imports.len()),
        },
        Answer {
            question: "did unsafe code slip through?",
            answer: slipped,
            detail: match gate.len() {
                0 => format!("no check was attacked; {wall_breaches} got out of the sandbox"),
                total => format!(
                    "the check missed {} of {total}, of which the sandbox is known to hold {held}; {wall_breaches} got out of the sandbox",
                    missed.len()
                ),
            },
        },
        Answer {
            question: "did time, memory and process limits hold?",
            answer: share(limited, limits.len()),
            detail: format!("{limited} of {} held", limits.len()),
        },
        Answer {
            question: "how many attacks were caught?",
            answer: share(caught, all.len()),
            detail: format!("{caught} of {}", all.len()),
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_those_of_wilson() {
        let near = |a: f64, b: f64| (a - b).abs() < 0.0005;
        let rate = Rate::new(0, 100);
        assert!(near(rate.low, 0.0) && near(rate.high, 0.0370), "{rate:?}");
        let rate = Rate::new(5, 10);
        assert!(near(rate.low, 0.2366) && near(rate.high, 0.7634), "{rate:?}");
        assert_eq!((Rate::new(0, 0).low, Rate::new(0, 0).high), (0.0, 1.0));
    }

    #[test]
    fn risks_follow_severity_and_rate() {
        assert!((risk_score(Severity::Critical, 1.0, "low") - 10.0).abs() < 1e-9);
        assert_eq!(risk_score(Severity::Critical, 0.0, "low"), 0.0);
        assert_eq!(risk_score(Severity::Informational, 1.0, "low"), 0.0);
        assert!((risk_score(Severity::Medium, 0.5, "medium") - (2.0 + 2.75 + 0.9)).abs() < 1e-9);
        assert_eq!(
            [level(9.0), level(7.5), level(4.0), level(0.1), level(0.0)],
            ["critical", "high", "medium", "low", "none"]
        );
    }
}
