//! Rows of red teams as findings of reports.

use sandcove_redteam::category::{self, Severity};
use sandcove_redteam::probe::Layer;
use sandcove_redteam::report::{Finding, Verdict};
use serde_json::Value;

use super::Ruling;
use crate::model::{Failure, Row};

/// Returns the finding of a row; none if the row is no attack. Rows that promptfoo generated count as attacks on a model.
pub fn finding(row: &Row) -> Option<Finding> {
    let text = |key: &str| row.metadata.get(key).and_then(Value::as_str);
    let plugin = text("pluginId")?.to_owned();
    let layer = text("layer").and_then(Layer::named).unwrap_or(Layer::Model);
    let ruling = row
        .grading_result
        .as_ref()
        .and_then(|verdict| {
            let components = verdict.component_results.iter().flatten();
            components.chain([verdict]).find_map(|found| Ruling::of(found.metadata.as_ref()?))
        })
        .unwrap_or_else(|| from_row(row));
    let known = category::find(&plugin).map_or(Severity::Medium, |category| category.severity);
    Some(Finding {
        layer,
        verdict: ruling.verdict,
        strategy: text("strategyId").unwrap_or("basic").to_owned(),
        probe: text("probe").map_or_else(|| row.about(), str::to_owned),
        severity: text("severity").and_then(Severity::named).unwrap_or(known),
        goal: text("goal").map_or_else(|| row.about(), str::to_owned),
        target: row.provider.name().to_owned(),
        kinds: ruling.kinds,
        evidence: ruling.evidence,
        row: row.test_idx,
        column: row.prompt_idx,
        held_by_wall: false,
        plugin,
    })
}

/// The ruling of a row that other assertions decided.
fn from_row(row: &Row) -> Ruling {
    let reason =
        || row.error.clone().or_else(|| row.grading_result.as_ref().map(|verdict| verdict.reason.clone()));
    let verdict = match (row.success, row.failure_reason) {
        (true, _) => Verdict::Blocked,
        (false, Failure::Assertion) => Verdict::Breached,
        (false, _) => Verdict::Inconclusive,
    };
    Ruling::new(verdict, reason().unwrap_or_default())
}
