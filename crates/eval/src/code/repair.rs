//! The provider that has a model repair a repository: it shows the failing tests, asks for a patch, tries it, and asks again.

use std::path::PathBuf;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};

use super::diff::diff_of;
use super::error::{CodeError, Result};
use super::run::{shown, tail};
use super::workspace::{Applied, PatchSettings, Workspace};
use crate::calling::spec::ProviderSpec;
use crate::calling::{Call, Provider, ProviderFactory};
use crate::grading::aggregate::{add_tokens, zero_tokens};
use crate::model::{Object, ProviderResponse, TokenUsage};
use crate::sandboxes::Sandboxes;
use crate::template::value::to_text;

/// `patch`. Its configuration is what the assertion `patch` takes, with `provider` (the model), `attempts` and `context`
/// (files of the repository that the model is shown).
pub struct RepairProvider {
    base: PathBuf,
    sandboxes: Arc<Sandboxes>,
    factory: Box<dyn ProviderFactory>,
}

impl RepairProvider {
    /// The id.
    pub const ID: &'static str = "patch";

    /// A provider for repositories relative to `base`, whose model `factory` makes.
    pub fn new(base: PathBuf, sandboxes: Arc<Sandboxes>, factory: Box<dyn ProviderFactory>) -> Self {
        Self { base, sandboxes, factory }
    }

    async fn run(&self, call: &Call<'_>) -> Result<ProviderResponse> {
        let mut config = call.config.clone();
        config.shift_remove("basePath");
        let model = config.shift_remove("provider").ok_or(CodeError::NoModel)?;
        let spec = ProviderSpec::from_value(&model, &self.base)
            .ok_or_else(|| CodeError::NotAProvider(model.clone()))?;
        let made = self.factory.make(&spec)?;
        let attempts =
            config.shift_remove("attempts").and_then(|value| value.as_u64()).unwrap_or(3).clamp(1, 20);
        let shown_files = config.shift_remove("context").unwrap_or_default();
        let settings = PatchSettings::read(Some(&Value::Object(config)), call.vars)?;
        let mut workspace = Workspace::open(&self.base, &self.sandboxes, settings).await?;
        let settled = made.settled(&spec.config).await?;
        let asked = Asked {
            call,
            config: settled.as_ref().unwrap_or(&spec.config),
            model: &*made,
            attempts,
            files: super::workspace::names_of(&shown_files),
        };
        let response = asked.repair(&mut workspace).await;
        workspace.end().await;
        response
    }
}

impl Provider for RepairProvider {
    fn id(&self) -> &str {
        Self::ID
    }

    fn call<'a>(&'a self, call: &'a Call<'a>) -> BoxFuture<'a, ProviderResponse> {
        async move { self.run(call).await.unwrap_or_else(ProviderResponse::failed) }.boxed()
    }
}

/// The conversation with a model that repairs its code.
struct Asked<'a> {
    call: &'a Call<'a>,
    config: &'a Object,
    model: &'a dyn Provider,
    attempts: u64,
    files: Vec<String>,
}

impl Asked<'_> {
    async fn repair(&self, workspace: &mut Workspace) -> Result<ProviderResponse> {
        let mut log = workspace.before().await?;
        let mut files = String::new();
        for path in &self.files {
            files.push_str(&format!("--- {path}\n{}\n", workspace.read(path).await?));
        }
        let mut tokens = zero_tokens();
        let mut cost = None;
        let mut records = Vec::new();
        let mut answer = String::new();
        for number in 1..=self.attempts {
            let response = self.ask(&log, &files).await;
            tokens_of(&mut tokens, &response);
            cost = response.cost.map(|more| cost.unwrap_or(0.0) + more).or(cost);
            if let Some(error) = response.error {
                return Err(CodeError::Model(error));
            }
            answer = response.output.as_ref().map(to_text).unwrap_or_default();
            let problem = self.problem(workspace, &answer).await?;
            records.push(json!({
                "attempt": number, "patch": shown(&answer), "pass": problem.is_none(), "log": problem.as_deref().map(shown),
            }));
            match problem {
                None => break,
                Some(problem) => log = problem,
            }
        }
        let mut metadata = Object::new();
        metadata.insert("attempts".to_owned(), json!(records));
        Ok(ProviderResponse {
            token_usage: Some(tokens),
            cost,
            metadata: Some(metadata),
            ..ProviderResponse::text(answer)
        })
    }

    async fn ask(&self, log: &str, files: &str) -> ProviderResponse {
        let call = self.call;
        let mut prompt = format!("{}\n\n<failing-tests>\n{}\n</failing-tests>\n", call.prompt, log.trim());
        if !files.is_empty() {
            prompt.push_str(&format!("<files>\n{files}</files>\n"));
        }
        let asked = Call { prompt: &prompt, config: self.config, ..*call };
        self.model.call(&asked).await
    }

    /// Returns what is wrong with an answer, for the next attempt.
    async fn problem(&self, workspace: &mut Workspace, answer: &str) -> Result<Option<String>> {
        let Some(diff) = diff_of(answer) else {
            return Ok(Some("The last answer had no unified diff.".to_owned()));
        };
        if let Applied::Not(why) = workspace.apply(&diff).await? {
            return Ok(Some(format!("The last patch does not apply: {why}")));
        }
        let mut log = String::new();
        for tested in workspace.after().await {
            if let Some(failure) = tested.failure {
                let log_tail = tested.execution.as_ref().map(tail).unwrap_or_default();
                log.push_str(&format!("{}: {failure}\n{log_tail}\n", tested.name));
            }
        }
        Ok((!log.is_empty()).then(|| format!("With the last patch:\n{log}")))
    }
}

fn tokens_of(sum: &mut TokenUsage, response: &ProviderResponse) {
    if let Some(tokens) = &response.token_usage {
        add_tokens(sum, tokens);
    }
}
