//! The assertion types.

use super::{
    attack, conversation, graded, html, labels, measure, meteor, overlap, refusal, retrieval, script,
    similarity, skill, sql, structured, text, tools, trace, trajectory, webhook, xml,
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

/// Types of promptfoo that are not supported, so that their names are not taken for misspelt, each with what to write instead. A type
/// may be named by its beginning.
const UNSUPPORTED: &[(&str, &str)] = &[
    ("agent-rubric", "write an `llm-rubric` and name the model that grades in `provider`"),
    ("pi", "write an `llm-rubric`, or ask the service from a `python` or `javascript` assertion"),
    ("search-rubric", "write an `llm-rubric` whose `provider` has a tool for searching"),
];

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
    "llm-rubric",
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

/// Returns what to write instead of a type that is known to promptfoo, but not supported.
pub fn unsupported(kind: &str) -> Option<&'static str> {
    let named = |name: &str| kind == name || (name.ends_with(['-', ':']) && kind.starts_with(name));
    UNSUPPORTED.iter().find(|(name, _)| named(name)).map(|(_, instead)| *instead)
}

/// Whether a type needs a value.
pub fn needs_value(kind: &str) -> bool {
    VALUED.contains(&kind)
}

/// Returns all names of types, for hints about a misspelt one.
pub fn all_names() -> impl Iterator<Item = &'static str> {
    TABLES.iter().flat_map(|table| table.iter()).map(|(name, _)| *name).chain(OTHERS.iter().copied())
}
