//! The keys of configurations, so that a misspelt one is reported instead of ignored.

use super::diagnostic::{Findings, Severity, nearest};
use super::node::Node;

/// The keys of a configuration.
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
/// The keys of a test.
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
/// The keys of an assertion.
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
/// The keys of a prompt.
pub const PROMPT: &[&str] = &["id", "raw", "label", "config", "function", "prompts"];
/// The keys of `evaluateOptions`.
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
/// The keys of a scenario.
pub const SCENARIO: &[&str] = &["description", "config", "tests"];
/// The keys of a derived metric.
pub const DERIVED_METRIC: &[&str] = &["name", "value"];

/// The keys of the value of assertions that run code.
pub const CODE: &[&str] = &[
    "language",
    "source",
    "function",
    "cases",
    "test_input",
    "test_code",
    "expected_output",
    "expected_stdout",
    "expected_error",
    "setup",
    "tests",
    "command",
    "files",
    "policy",
    "safety",
    "tolerance",
    "timeout_ms",
    "memory_mb",
    "output_kb",
    "network",
    "template",
    "metrics",
];
/// The keys of a case of such a value.
pub const CODE_CASE: &[&str] =
    &["name", "input", "args", "call", "code", "expected", "output", "expected_stdout", "expected_error"];

/// Reports unknown keys of an assertion about code, which would end every row with an error.
pub fn check_code(value: &Node, findings: &mut Findings) {
    check_known(value, CODE, "an assertion that runs code", findings);
    let cases = value.get("cases").and_then(Node::items).unwrap_or_default();
    cases.iter().for_each(|case| check_known(case, CODE_CASE, "a case", findings));
}

fn check_known(node: &Node, known: &[&str], what: &str, findings: &mut Findings) {
    for entry in node.entries().iter().filter(|entry| !known.contains(&entry.key.as_str())) {
        let message = format!("unknown key `{}` in {what}", entry.key);
        match nearest(&entry.key, known.iter().copied()) {
            Some(near) => {
                findings.hint(Severity::Error, Some(&entry.at), message, format!("did you mean `{near}`?"));
            }
            None => findings.add(Severity::Error, Some(&entry.at), message),
        }
    }
}

/// Warns about keys of a map that are not `known`. Keys that begin with `x-` are the author's own.
pub fn check_keys(node: &Node, known: &[&str], what: &str, findings: &mut Findings) {
    for entry in node.entries() {
        if known.contains(&entry.key.as_str()) || entry.key.starts_with("x-") {
            continue;
        }
        let message = format!("unknown key `{}` in {what}; it has no effect", entry.key);
        match nearest(&entry.key, known.iter().copied()) {
            Some(near) => {
                findings.hint(Severity::Warning, Some(&entry.at), message, format!("did you mean `{near}`?"));
            }
            None => findings.add(Severity::Warning, Some(&entry.at), message),
        }
    }
}

/// Reports that a value has the wrong type.
pub fn wrong_shape(node: &Node, what: &str, expected: &str, findings: &mut Findings) {
    let message = format!("{what} must be {expected}, not {}", node.describe());
    findings.add(Severity::Error, Some(&node.at), message);
}
