//! The assertion types.

use super::{
    attack, conversation, graded, html, labels, measure, meteor, overlap, pi, refusal, retrieval, script,
    searching, similarity, skill, sql, structured, text, tools, trace, trajectory, webhook, xml,
};
use crate::grading::Grader;

const TABLES: &[&[(&str, Grader)]] = &[
    text::GRADERS,
    structured::GRADERS,
    xml::GRADERS,
    measure::GRADERS,
    refusal::GRADERS,
    script::GRADERS,
    crate::code::GRADERS,
    overlap::GRADERS,
    meteor::GRADERS,
    tools::GRADERS,
    html::GRADERS,
    graded::GRADERS,
    searching::GRADERS,
    pi::GRADERS,
    similarity::GRADERS,
    retrieval::GRADERS,
    conversation::GRADERS,
    labels::GRADERS,
    skill::GRADERS,
    sql::GRADERS,
    webhook::GRADERS,
    trace::GRADERS,
    trajectory::GRADERS,
];

/// Types that are not decided one by one: sets, and comparisons of all answers to a test.
const OTHERS: &[&str] = &["assert-set", "human", "max-score", "select-best"];

/// Types that need a value.
const VALUED: &[&str] = &[
    "contains",
    "icontains",
    "contains-any",
    "icontains-any",
    "contains-all",
    "icontains-all",
    "starts-with",
    "regex",
    "levenshtein",
    "javascript",
    "python",
    "ruby",
    "word-count",
    "finish-reason",
    "search-rubric",
    "pi",
    "g-eval",
    "model-graded-closedqa",
    "similar",
    "similar:cosine",
    "similar:dot",
    "similar:euclidean",
    "factuality",
    "model-graded-factuality",
    "context-recall",
    "skill-used",
    "tool-call-f1",
    "webhook",
    "meteor",
    "trace-span-count",
    "trace-span-duration",
    "trajectory:tool-used",
    "trajectory:tool-sequence",
    "trajectory:tool-args-match",
    "trajectory:step-count",
    "trajectory:goal-success",
];

/// Returns the grader of a type, without `not-`.
pub fn grader(kind: &str) -> Option<Grader> {
    if kind.starts_with(attack::PREFIX) {
        return Some(attack::GRADER);
    }
    TABLES.iter().flat_map(|table| table.iter()).find(|(name, _)| *name == kind).map(|(_, grader)| *grader)
}

/// Whether assertions of a type can be graded.
pub fn known(kind: &str) -> bool {
    grader(kind).is_some() || OTHERS.contains(&kind)
}

/// Whether a type needs a value.
pub fn needs_value(kind: &str) -> bool {
    VALUED.contains(&kind)
}

/// Returns all names of types, for hints about a misspelt one.
pub fn all_names() -> impl Iterator<Item = &'static str> {
    TABLES.iter().flat_map(|table| table.iter()).map(|(name, _)| *name).chain(OTHERS.iter().copied())
}
