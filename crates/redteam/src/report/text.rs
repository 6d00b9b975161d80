//! The report in a terminal.

use std::fmt::Write;

use super::{Group, Report};

/// Maximum number of breaches that are shown.
const MAX_SHOWN: usize = 25;

/// Returns the report as lines of text.
pub fn text(report: &Report) -> String {
    let mut out = String::new();
    // Writing to memory does not fail.
    let mut line = |text: String| {
        let _ = writeln!(out, "{text}");
    };
    line(format!("Red team of {}", report.targets.join(", ")));
    if !report.eval_id.is_empty() {
        line(format!("run {}", report.eval_id));
    }
    line(String::new());
    for answer in &report.questions {
        line(format!("  {:<42} {:<10}  {}", answer.question, answer.answer, answer.detail));
    }
    for (title, groups) in
        [("layer", &report.layers), ("severity", &report.severities), ("strategy", &report.strategies)]
    {
        line(String::new());
        line(format!(
            "  {title:<26} {:>8} {:>9} {:>9} {:>12}  attack success rate",
            "blocked", "contained", "breached", "inconclusive"
        ));
        for group in groups {
            line(row(group));
        }
    }
    line(String::new());
    line(format!("  {:<34} {:<13} {:>5}  {:>9}  lists", "category", "severity", "risk", "succeeded"));
    for found in &report.vulnerabilities {
        let lists: Vec<&str> =
            found.owasp.iter().chain(&found.mitre).chain(&found.cwe).map(String::as_str).collect();
        let succeeded = format!("{}/{}", found.rate.succeeded, found.rate.total);
        line(format!(
            "  {:<34} {:<13} {:>5.1}  {succeeded:>9}  {}",
            found.plugin,
            found.severity.name(),
            found.risk_score,
            lists.join(" ")
        ));
    }
    let breaches: Vec<_> = report.findings.iter().filter(|finding| finding.is_breach()).collect();
    if !breaches.is_empty() {
        line(String::new());
        line("  breaches".to_owned());
        for finding in breaches.iter().take(MAX_SHOWN) {
            line(format!(
                "  [{}] {} at the {} ({}, row {}): {}",
                finding.severity.name(),
                finding.probe,
                finding.layer.name(),
                finding.strategy,
                finding.row + 1,
                finding.evidence
            ));
        }
        if breaches.len() > MAX_SHOWN {
            line(format!("  … and {} more; --format json has them all", breaches.len() - MAX_SHOWN));
        }
    }
    if let Some(changes) = &report.changes {
        line(String::new());
        let (new, gone) = (changes.newly_breached.len(), changes.no_longer_breached.len());
        line(format!("  since {}: {new} newly breached, {gone} no longer breached", changes.since));
        let marked = changes.newly_breached.iter().map(|key| ('+', key));
        for (mark, key) in
            marked.chain(changes.no_longer_breached.iter().map(|key| ('-', key))).take(MAX_SHOWN)
        {
            line(format!("  {mark} {key}"));
        }
    }
    if !report.skipped.is_empty() {
        line(String::new());
        line("  skipped, and not counted as withstood".to_owned());
        for skip in &report.skipped {
            line(format!("  {}: {}", skip.what, skip.why));
        }
    }
    line(String::new());
    line(format!(
        "{} of {} attacks breached every layer in their way",
        report.breaches,
        report.findings.len()
    ));
    out
}

fn row(group: &Group) -> String {
    let of = |name: &str| group.verdicts.get(name).copied().unwrap_or_default();
    let rate = match group.rate.total {
        0 => "-".to_owned(),
        _ => format!(
            "{:.1} % ({:.1} to {:.1} %)",
            group.rate.asr * 100.0,
            group.rate.low * 100.0,
            group.rate.high * 100.0
        ),
    };
    format!(
        "  {:<26} {:>8} {:>9} {:>9} {:>12}  {rate}",
        group.name,
        of("blocked"),
        of("contained"),
        of("breached"),
        of("inconclusive")
    )
}
