//! What providers and assertions share during a run. Everything in it starts on first use.

use std::path::PathBuf;

use crate::code::{Fallback, Sandboxes};
use crate::model::Object;
use crate::provider::answers::Answers;
use crate::worker::Workers;

/// Shared by all rows of a run.
pub struct Services {
    /// The directory that `file://` paths begin at.
    pub base: PathBuf,
    /// The `env` map of the configuration; it goes before the process's own variables.
    pub env: Object,
    /// Python and Node processes for user code.
    pub workers: Workers,
    /// Sandboxes for code that models wrote.
    pub sandboxes: Sandboxes,
    /// Answers of providers; none is kept unless the run says so.
    pub answers: Answers,
}

impl Services {
    /// For a configuration in `base`, with at most `concurrency` rows at a time.
    pub fn new(base: PathBuf, env: Object, concurrency: usize) -> Self {
        let workers = Workers::new(base.clone(), env.clone(), concurrency);
        let sandboxes = Sandboxes::new(env.clone(), concurrency);
        Self { base, env, workers, sandboxes, answers: Answers::default() }
    }

    /// The same, with the server of sandboxes that are wanted where variables name none.
    #[must_use]
    pub fn with_server(mut self, server: Fallback) -> Self {
        self.sandboxes = self.sandboxes.with_server(server);
        self
    }

    /// A variable for programs and providers: the configuration's, else the process's.
    pub fn env(&self, name: &str) -> Option<String> {
        match self.env.get(name) {
            Some(serde_json::Value::String(text)) => Some(text.clone()),
            Some(other) => Some(other.to_string()),
            None => std::env::var(name).ok(),
        }
    }
}
