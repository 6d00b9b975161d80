//! Red teams: what the layers of a sandbox do with an attack.
//!
//! A check of code before it runs is handed the attack as an answer. A sandbox runs it, between oracles that it cannot reach. The
//! verdicts are in the metadata of the answer, where the assertions `promptfoo:redteam:` find them.

pub mod choices;
mod findings;
mod gate;
pub mod host;
mod oracle;
mod trap;
mod wall;

use serde_json::{Value, json};

use crate::model::Object;
pub use findings::finding;
pub use gate::{GateProvider, verdict_of_check};
pub use wall::WallProvider;

/// The key of verdicts in the metadata of answers.
pub const KEY: &str = "redteam";

/// A verdict with its evidence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ruling {
    /// `blocked`, `contained`, `breached` or `inconclusive`.
    pub verdict: sandcove_redteam::report::Verdict,
    /// Kinds of evidence: `network-egress-observed`.
    pub kinds: Vec<String>,
    /// The evidence, for a reader.
    pub evidence: String,
}

impl Ruling {
    /// A verdict without a kind of evidence.
    pub fn new(verdict: sandcove_redteam::report::Verdict, evidence: impl Into<String>) -> Self {
        Self { verdict, kinds: Vec::new(), evidence: evidence.into() }
    }

    /// Returns the ruling as metadata has it.
    pub fn to_json(&self) -> Value {
        json!({"verdict": self.verdict.name(), "kinds": self.kinds, "evidence": self.evidence})
    }

    /// Reads a ruling from the metadata of an answer.
    pub fn of(metadata: &Object) -> Option<Self> {
        let found = metadata.get(KEY)?;
        let kinds = found["kinds"].as_array().into_iter().flatten().filter_map(Value::as_str);
        Some(Self {
            verdict: sandcove_redteam::report::Verdict::named(found["verdict"].as_str()?)?,
            kinds: kinds.map(str::to_owned).collect(),
            evidence: found["evidence"].as_str().unwrap_or_default().to_owned(),
        })
    }
}
