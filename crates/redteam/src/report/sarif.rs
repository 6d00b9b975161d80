//! Breaches as SARIF 2.1.0, which code hosts show beside changes.

use serde_json::{Value, json};

use super::{Report, Verdict};
use crate::category::Severity;

/// Returns the breaches; `file` is the configuration that the places name.
pub fn sarif(report: &Report, file: &str) -> Value {
    let rules: Vec<Value> = report
        .vulnerabilities
        .iter()
        .map(|found| {
            let tags: Vec<String> =
                found.owasp.iter().chain(&found.mitre).chain(&found.cwe).cloned().collect();
            json!({
                "id": found.plugin,
                "shortDescription": {"text": found.about},
                "help": {"text": found.advice},
                "properties": {"tags": tags, "security-severity": format!("{:.1}", found.risk_score)},
            })
        })
        .collect();
    let results: Vec<Value> = report
        .findings
        .iter()
        .filter(|finding| finding.verdict == Verdict::Breached)
        .map(|finding| {
            let level = match finding.severity {
                _ if finding.held_by_wall => "note",
                Severity::Critical | Severity::High => "error",
                Severity::Medium | Severity::Low => "warning",
                Severity::Informational => "note",
            };
            json!({
                "ruleId": finding.plugin,
                "level": level,
                "message": {"text": format!("{} at the {}: {}", finding.goal, finding.layer.name(), finding.evidence)},
                "locations": [{"physicalLocation": {"artifactLocation": {"uri": file}, "region": {"startLine": 1}}}],
                "partialFingerprints": {"attack": format!("{}/{}/{}/{}", finding.layer.name(), finding.target, finding.probe, finding.strategy)},
                "properties": {"strategy": finding.strategy, "kinds": finding.kinds, "row": finding.row, "heldByWall": finding.held_by_wall},
            })
        })
        .collect();
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {"name": "sandcove redteam", "version": env!("CARGO_PKG_VERSION"), "rules": rules}},
            "results": results,
        }],
    })
}
