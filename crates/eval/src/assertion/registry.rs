//! Which assertion types there are.

use super::{Grader, graded, html, measure, overlap, refusal, script, structured, text, tools};

const TABLES: &[&[(&str, Grader)]] = &[
    text::GRADERS,
    structured::GRADERS,
    measure::GRADERS,
    refusal::GRADERS,
    script::GRADERS,
    crate::code::GRADERS,
    overlap::GRADERS,
    tools::GRADERS,
    html::GRADERS,
    graded::GRADERS,
];

/// Types that are not decided one by one: sets, and comparisons of all answers to a test.
const OTHERS: &[&str] = &["assert-set", "human", "max-score", "select-best"];

/// Types that exist elsewhere, so that their names are not taken for misspelt.
const UNSUPPORTED: &[&str] = &[
    "agent-rubric",
    "answer-relevance",
    "bleu",
    "classifier",
    "contains-html",
    "contains-sql",
    "context-faithfulness",
    "context-recall",
    "context-relevance",
    "conversation-relevance",
    "factuality",
    "g-eval",
    "gleu",
    "is-html",
    "is-sql",
    "is-valid-function-call",
    "is-valid-openai-function-call",
    "is-valid-openai-tools-call",
    "llm-rubric",
    "meteor",
    "model-graded-closedqa",
    "model-graded-factuality",
    "moderation",
    "pi",
    "rouge-n",
    "ruby",
    "search-rubric",
    "select-best",
    "similar",
    "similar:cosine",
    "similar:dot",
    "similar:euclidean",
    "skill-used",
    "tool-call-f1",
    "trace-error-spans",
    "trace-span-count",
    "trace-span-duration",
    "trajectory:goal-success",
    "trajectory:step-count",
    "trajectory:tool-args-match",
    "trajectory:tool-sequence",
    "trajectory:tool-used",
    "webhook",
];

/// Types that mean nothing without a value.
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
    "word-count",
    "finish-reason",
    "llm-rubric",
    "similar",
    "factuality",
    "webhook",
];

/// Finds the grader of a type, without `not-`.
pub fn grader(kind: &str) -> Option<Grader> {
    TABLES.iter().flat_map(|table| table.iter()).find(|(name, _)| *name == kind).map(|(_, grader)| *grader)
}

/// Whether a type can be used.
pub fn known(kind: &str) -> bool {
    grader(kind).is_some() || OTHERS.contains(&kind)
}

/// Whether a type exists elsewhere but not here.
pub fn unsupported(kind: &str) -> bool {
    UNSUPPORTED.contains(&kind) && !known(kind)
}

/// Whether a type needs a value.
pub fn needs_value(kind: &str) -> bool {
    VALUED.contains(&kind)
}

/// All names that can be used, for hints about a misspelt one.
pub fn all_names() -> impl Iterator<Item = &'static str> {
    TABLES.iter().flat_map(|table| table.iter()).map(|(name, _)| *name).chain(OTHERS.iter().copied())
}
