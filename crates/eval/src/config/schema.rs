//! Which keys there are, so that a misspelt one is told instead of ignored.

use super::diagnostic::{Findings, Severity, nearest};
use super::node::Node;

pub const TOP: &[&str] = &[
    "$schema",
    "description",
    "tags",
    "prompts",
    "providers",
    "targets",
    "tests",
    "scenarios",
    "defaultTest",
    "outputPath",
    "sharing",
    "env",
    "nunjucksFilters",
    "derivedMetrics",
    "extensions",
    "evaluateOptions",
    "commandLineOptions",
    "metadata",
    "redteam",
    "tracing",
    "assertionTemplates",
    "plugins",
    "strategies",
    "x-anchors",
    "definitions",
    "defs",
];
pub const TEST: &[&str] = &[
    "description",
    "vars",
    "provider",
    "providers",
    "prompts",
    "providerOutput",
    "assert",
    "assertScoringFunction",
    "options",
    "threshold",
    "metadata",
];
pub const ASSERTION: &[&str] = &[
    "type",
    "value",
    "threshold",
    "weight",
    "metric",
    "transform",
    "contextTransform",
    "provider",
    "rubricPrompt",
    "config",
    "assert",
    "alpha",
    "beta",
    "gamma",
    "description",
];
pub const PROMPT: &[&str] = &["id", "raw", "label", "config", "function", "prompts"];
pub const EVALUATE_OPTIONS: &[&str] = &[
    "maxConcurrency",
    "delay",
    "repeat",
    "cache",
    "timeoutMs",
    "maxEvalTimeMs",
    "showProgressBar",
    "silent",
    "generateSuggestions",
    "suggestionsCount",
    "filterRange",
    "eventSource",
    "interactiveProviders",
    "share",
];
pub const SCENARIO: &[&str] = &["description", "config", "tests"];
pub const DERIVED_METRIC: &[&str] = &["name", "value"];

/// Warns about keys of a map that are not `known`. Keys that begin with `x-` are notes of the author.
pub fn check_keys(node: &Node, known: &[&str], what: &str, findings: &mut Findings) {
    for entry in node.entries() {
        if known.contains(&entry.key.as_str()) || entry.key.starts_with("x-") {
            continue;
        }
        let message = format!("`{}` is no key of {what}; it has no effect", entry.key);
        match nearest(&entry.key, known.iter().copied()) {
            Some(near) => {
                findings.hint(Severity::Warning, Some(&entry.at), message, format!("did you mean `{near}`?"));
            }
            None => findings.add(Severity::Warning, Some(&entry.at), message),
        }
    }
}

/// Notes that a value has another shape than it must.
pub fn wrong_shape(node: &Node, what: &str, expected: &str, findings: &mut Findings) {
    let message = format!("{what} must be {expected}, not {}", node.describe());
    findings.add(Severity::Error, Some(&node.at), message);
}
