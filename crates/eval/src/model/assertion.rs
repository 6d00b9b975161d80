//! One check of an answer, as the configuration states it.

use serde::Serialize;
use serde_json::Value;

use super::Object;

/// A check of an answer. It is shown and exported as it was written (`raw`); the other fields are read from it once.
#[derive(Debug, Clone, Default)]
pub struct Assertion {
    /// The type without `not-`.
    pub kind: String,
    /// Whether the type was written with `not-`.
    pub negated: bool,
    /// The value before templates are rendered.
    pub value: Option<Value>,
    /// The number that a score or measure is compared with.
    pub threshold: Option<f64>,
    /// The share in the row's score; 1 unless given.
    pub weight: Option<f64>,
    /// The named score that the assertion contributes to, before templates are rendered.
    pub metric: Option<String>,
    /// A transform of the output for this assertion alone.
    pub transform: Option<Value>,
    /// The transform that takes the context of retrieval checks out of the answer.
    pub context_transform: Option<Value>,
    /// The provider that grades.
    pub provider: Option<Value>,
    /// The prompt for the grading provider.
    pub rubric_prompt: Option<Value>,
    /// Settings handed to scripts.
    pub config: Option<Object>,
    /// The members of an `assert-set`.
    pub children: Vec<Assertion>,
    /// The assertion as written.
    pub raw: Object,
}

impl Assertion {
    /// Returns the type as written, with `not-` if it had it.
    pub fn full_kind(&self) -> String {
        if self.negated { format!("not-{}", self.kind) } else { self.kind.clone() }
    }

    /// Returns the share in the row's score.
    pub fn weight(&self) -> f64 {
        self.weight.unwrap_or(1.0)
    }
}

impl Serialize for Assertion {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.raw.serialize(serializer)
    }
}
