//! Whether providers answer: one prompt to each, without a suite around it.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::calling::answers::Answers;
use crate::calling::spec::ProviderSpec;
use crate::calling::{Call, CallError, Models, Role};
use crate::config::Suite;
use crate::model::Object;
use crate::provider::Factory;
use crate::reading::diagnostic::Findings;
use crate::reading::{Env, env};
use crate::sandboxes::{Fallback, Sandboxes};
use crate::script::Workers;

/// The prompt that is sent.
const PROMPT: &str = "Hello, world!";

/// Reason why a provider gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum ConnectivityError {
    /// The index is that of no target.
    #[error("unknown provider")]
    UnknownProvider,
    /// The provider could not be made, or lacks a key.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The provider answered with an error.
    #[error("{0}")]
    Answer(String),
    /// The answer is empty.
    #[error("the provider answered with nothing")]
    NoOutput,
}

/// Providers to ask, with what they need to be made.
pub struct Targets {
    specs: Vec<ProviderSpec>,
    models: Models,
}

impl Targets {
    /// The providers of a suite.
    pub fn of_suite(suite: &Suite) -> Self {
        let factory = Factory::new(Arc::clone(&suite.workers), Arc::clone(&suite.sandboxes));
        let models = Models::new(Box::new(factory), Answers::new(false, suite.workers.env()));
        Self { specs: suite.providers.clone(), models }
    }

    /// One provider by its id, with the variables of `.env` in a directory. Its files are relative to that directory.
    pub fn of_id(
        id: &str,
        directory: &Path,
        env_files: &[std::path::PathBuf],
        server: Fallback,
        findings: &mut Findings,
    ) -> Self {
        let env = Env::new(env::read(directory, env_files, findings));
        let workers = Workers::new(directory.to_owned(), env.clone(), 1);
        let sandboxes = Sandboxes::new(env.clone(), 1).with_server(server);
        let factory = Factory::new(Arc::new(workers), Arc::new(sandboxes));
        let models = Models::new(Box::new(factory), Answers::new(false, &env));
        Self { specs: vec![ProviderSpec::new(id, directory)], models }
    }

    /// Leaves only providers with an id or a label.
    pub fn keep(&mut self, name: &str) {
        self.specs.retain(|spec| spec.id == name || spec.label.as_deref() == Some(name));
    }

    /// The names of the providers, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.specs.iter().map(ProviderSpec::name)
    }

    /// Asks the provider at an index, and returns its answer.
    ///
    /// # Errors
    /// If the provider cannot be made, or answers with an error or nothing.
    pub async fn ask(&self, index: usize) -> Result<Value, ConnectivityError> {
        let spec = self.specs.get(index).ok_or(ConnectivityError::UnknownProvider)?;
        let provider = self.models.make(spec)?;
        provider.check(&spec.config)?;
        let session = uuid::Uuid::new_v4().to_string();
        let vars = Object::from_iter([("sessionId".to_owned(), json!(session))]);
        let context = json!({"vars": vars, "prompt": {"raw": PROMPT, "label": PROMPT}, "debug": true});
        let mut config = spec.config.clone();
        // A person waits for the answer of a service that may be down.
        config.entry("maxRetries").or_insert_with(|| json!(1));
        let call = Call { prompt: PROMPT, vars: &vars, config: &config, context: &context };
        let response = self.models.call(&*provider, Role::Text, &call, 0).await;
        match (response.error, response.output) {
            (Some(error), _) => Err(ConnectivityError::Answer(error)),
            (None, Some(output)) if !output.is_null() => Ok(output),
            (None, _) => Err(ConnectivityError::NoOutput),
        }
    }
}
