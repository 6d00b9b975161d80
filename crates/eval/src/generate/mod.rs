//! What models write for suites: tests, assertions and variants of prompts, by a model that reads the prompts, and attacks of a red team.

mod assertions;
mod dataset;
pub mod place;
mod programs;
mod red_team;
mod variants;
pub mod yaml;

pub use assertions::{AssertionOptions, assertions};
pub use dataset::{DatasetOptions, dataset, table};
pub use red_team::{AuthorOptions, red_team};
pub use variants::variants;

use std::sync::Arc;

use serde_json::{Value, json};

use crate::assertion::member;
use crate::calling::answers::Answers;
use crate::calling::spec::{ProviderSpec, default_model};
use crate::calling::{Call, CallError, Models, Role, transport};
use crate::config::Suite;
use crate::config::attacks::AttackError;
use crate::model::Object;
use crate::provider::Factory;
use crate::sandboxes::Sandboxes;
use crate::script::Workers;
use crate::template::value::to_text;

/// Reason why nothing was generated.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages name the fields")]
pub enum GenerateError {
    /// No model is named, and there is no key for the default one.
    #[error(
        "no model to ask: name one with --provider (--grader of `eval`), or set OPENAI_API_KEY or ANTHROPIC_API_KEY"
    )]
    NoModel,
    /// The model could not be made.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The model answered with an error.
    #[error("the model `{id}` failed: {error}")]
    Failed { id: String, error: String },
    /// The model answered with something else.
    #[error("the model `{id}` was asked for {wanted}, and answered: {answer}")]
    Answer { id: String, wanted: &'static str, answer: String },
    /// A red team has nothing to attack.
    #[error(transparent)]
    Attacks(#[from] AttackError),
    /// Nothing differs between tests.
    #[error(
        "the prompts have no variables, so that all tests would be the same: write {{{{name}}}} into them"
    )]
    NoVariables,
}

/// Reports how far a generation is: a sentence for each answer.
pub type Progress<'a> = &'a (dyn Fn(String) + Sync);

/// The model that is asked.
struct Model {
    models: Models,
    spec: ProviderSpec,
}

impl Model {
    /// The model that the command line names, else the one that grades in the suite, else the one that there is a key for.
    fn new(suite: &Suite, named: Option<&str>, cache: bool) -> Result<Self, GenerateError> {
        let base = suite.workers.base();
        let grader = suite.default_test.get("options").and_then(|options| options.get("provider"));
        // A map may name a grader for each role.
        let grader = grader.map(|grader| grader.get(Role::Text.key()).unwrap_or(grader));
        let spec = match named {
            Some(id) => Some(ProviderSpec::new(id, base)),
            None => grader.and_then(|grader| ProviderSpec::from_value(grader, base)),
        };
        let default = || default_model(suite.workers.env()).map(|id| ProviderSpec::new(id, base));
        let spec = spec.or_else(default).ok_or(GenerateError::NoModel)?;
        Self::of(spec, &suite.workers, &suite.sandboxes, cache)
    }

    /// The model of a provider.
    fn of(
        spec: ProviderSpec,
        workers: &Arc<Workers>,
        sandboxes: &Arc<Sandboxes>,
        cache: bool,
    ) -> Result<Self, GenerateError> {
        let factory = Factory::new(Arc::clone(workers), Arc::clone(sandboxes));
        let models = Models::new(Box::new(factory), Answers::new(cache, workers.env()));
        models.make(&spec)?.check(&spec.config)?;
        Ok(Self { models, spec })
    }

    /// The answer to a prompt. `attempt` keeps a cached answer from being the answer to every attempt.
    async fn ask(&self, prompt: &str, label: &str, attempt: usize) -> Result<Value, GenerateError> {
        let vars = Object::new();
        let context = json!({"vars": {}, "prompt": {"raw": prompt, "label": label}});
        let call = Call { prompt, vars: &vars, config: &self.spec.config, context: &context };
        let asked = self.models.ask(&self.spec, Role::Text, &call, attempt);
        let response = transport::expecting_service(asked).await?;
        let failed = |error: String| GenerateError::Failed { id: self.spec.id.clone(), error };
        match (response.error, response.output) {
            (Some(error), _) => Err(failed(error)),
            (None, Some(output)) => Ok(output),
            (None, None) => Err(failed("no output".to_owned())),
        }
    }

    /// The list under a key of the first JSON object of an answer that has it.
    async fn ask_list(
        &self,
        prompt: &str,
        key: &'static str,
        attempt: usize,
    ) -> Result<Vec<Value>, GenerateError> {
        let said = self.ask(prompt, key, attempt).await?;
        match member(&said, key) {
            Some(Value::Array(items)) if !items.is_empty() => Ok(items),
            _ => Err(GenerateError::Answer {
                id: self.spec.id.clone(),
                wanted: key,
                answer: shortened(&to_text(&said)),
            }),
        }
    }
}

/// The beginning of an answer, for an error.
fn shortened(text: &str) -> String {
    const MAX: usize = 300;
    match text.char_indices().nth(MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// The prompts of a suite, each in a tag of its own.
fn shown_prompts(suite: &Suite) -> String {
    let each = suite.prompts.iter().map(|prompt| format!("<prompt>\n{}\n</prompt>", prompt.raw));
    each.collect::<Vec<_>>().join("\n")
}

/// Further instructions of the user, as a paragraph.
fn more(instructions: Option<&str>) -> String {
    instructions.map(|text| format!("\n\n{}", text.trim())).unwrap_or_default()
}
