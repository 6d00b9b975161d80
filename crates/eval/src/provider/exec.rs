//! Programs as providers: the prompt is an argument, standard output the answer.

use std::path::PathBuf;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::calling::{self, Call, Provider};
use crate::model::ProviderResponse;
use crate::reading::Env;
use crate::script::command::{run, words};

/// `exec:program arguments…`
pub struct Exec {
    id: String,
    command: Vec<String>,
    base: PathBuf,
    env: Env,
    options: serde_json::Value,
}

impl Exec {
    /// A provider from the command line after `exec:`.
    pub fn new(id: &str, command: &str, base: PathBuf, env: Env, options: serde_json::Value) -> Self {
        Self { id: id.to_owned(), command: words(command), base, env, options }
    }
}

impl Provider for Exec {
    fn id(&self) -> &str {
        &self.id
    }

    fn call<'a>(&'a self, call: &'a Call<'a>) -> BoxFuture<'a, ProviderResponse> {
        let arguments =
            [call.prompt.to_owned(), self.options.to_string(), calling::plain(call.context).to_string()];
        async move {
            let limit = Duration::from_secs(300);
            match run(&self.command, &arguments, &self.base, &self.env, limit).await {
                Ok(text) => ProviderResponse::text(text),
                Err(error) => ProviderResponse::failed(error),
            }
        }
        .boxed()
    }
}
