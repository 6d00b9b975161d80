//! Models of services: the part that all their dialects share.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::Value;

use super::prices::Prices;
use super::settings::Settings;
use crate::calling::transport::{self, Answer, Request};
use crate::calling::{Call, CallError, Provider};
use crate::model::{Object, ProviderResponse, TokenUsage};
use crate::reading::Env;

/// A dialect of services: how a model is asked, and what its replies mean.
pub trait Dialect: Send + Sync {
    /// The id of the model, as in `openai:gpt-4o`.
    fn id(&self) -> &str;

    /// The name that results show, where it is not the id.
    fn shown_as(&self) -> Option<String> {
        None
    }

    /// Whether the model says what is not acceptable in a text.
    fn moderates(&self) -> bool {
        false
    }

    /// Whether the model says which classes a text belongs to.
    fn classifies(&self) -> bool {
        false
    }

    /// Returns the request that asks the model.
    ///
    /// # Errors
    /// [`CallError`] for a malformed prompt, and for a service without an address or a key.
    fn request(&self, prompt: &str, config: &Object, env: &Env) -> Result<Request, CallError>;

    /// Returns the answer that a good reply holds.
    fn read(&self, reply: &Value, config: &Object) -> ProviderResponse;

    /// Returns the answer that a reply with a bad status holds, if it holds one.
    fn read_refusal(&self, _reply: &Answer) -> Option<ProviderResponse> {
        None
    }

    /// Returns what an answer cost, in dollars, if that is known. A model that runs on the user's machine costs nothing.
    fn cost(&self, _prices: &Prices, _config: &Object, _usage: &TokenUsage) -> Option<f64> {
        Some(0.0)
    }
}

/// A model of a service, with the variables that hold addresses and keys.
pub struct Service<D> {
    dialect: D,
    env: Env,
    prices: Arc<Prices>,
    settings: Settings,
}

impl<D: Dialect> Service<D> {
    /// A model whose answers cost what `prices` say, and whose settings may be in files.
    pub fn new(dialect: D, env: Env, prices: Arc<Prices>, settings: Settings) -> Self {
        Self { dialect, env, prices, settings }
    }

    async fn ask(&self, prompt: &str, config: &Object) -> Result<ProviderResponse, CallError> {
        let request = self.dialect.request(prompt, config, &self.env)?;
        let answer = transport::ask(request, config).await?;
        let mut response = match answer.is_good() {
            true => self.dialect.read(&answer.value, config),
            false => match self.dialect.read_refusal(&answer) {
                Some(response) => response,
                None => return Err(answer.into_error()),
            },
        };
        response.latency_ms = Some(answer.took_ms);
        let usage = response.token_usage.as_ref();
        response.cost = usage.and_then(|usage| self.dialect.cost(&self.prices, config, usage));
        Ok(response)
    }
}

impl<D: Dialect> Provider for Service<D> {
    fn id(&self) -> &str {
        self.dialect.id()
    }

    fn shown_as(&self) -> BoxFuture<'_, Option<String>> {
        std::future::ready(self.dialect.shown_as()).boxed()
    }

    fn is_service(&self) -> bool {
        true
    }

    fn check(&self, config: &Object) -> Result<(), CallError> {
        match self.dialect.request("", config, &self.env) {
            Err(error @ CallError::NoKey { .. }) => Err(error),
            _ => Ok(()),
        }
    }

    fn settled<'a>(&'a self, config: &'a Object) -> BoxFuture<'a, Result<Option<Object>, CallError>> {
        self.settings.load(config).boxed()
    }

    fn call<'a>(&'a self, call: &'a Call<'a>) -> BoxFuture<'a, ProviderResponse> {
        async move { self.ask(call.prompt, call.config).await.unwrap_or_else(ProviderResponse::failed) }
            .boxed()
    }

    fn classify<'a>(&'a self, call: &'a Call<'a>) -> BoxFuture<'a, ProviderResponse> {
        async move {
            if !self.dialect.classifies() {
                let error = format!("the provider `{}` does not classify", self.id());
                return ProviderResponse::failed(error);
            }
            self.call(call).await
        }
        .boxed()
    }

    fn moderate<'a>(&'a self, call: &'a Call<'a>, answer: &'a str) -> BoxFuture<'a, ProviderResponse> {
        async move {
            if !self.dialect.moderates() {
                let error = format!("`{}` does not moderate; use `openai:moderation:…`", self.id());
                return ProviderResponse::failed(error);
            }
            self.call(&Call { prompt: answer, ..*call }).await
        }
        .boxed()
    }
}

/// Returns a setting that is text, unless it is empty.
pub fn text(config: &Object, key: &str) -> Option<String> {
    config.get(key).and_then(Value::as_str).map(str::to_owned).filter(|text| !text.is_empty())
}

/// Returns the key of a service: that of the configuration, that of the variable which the configuration names, else that of the
/// first of `variables` that is set.
pub fn key(config: &Object, env: &Env, variables: &[&str]) -> Option<String> {
    text(config, "apiKey")
        .or_else(|| text(config, "apiKeyEnvar").and_then(|name| env.get(&name)))
        .or_else(|| variables.iter().find_map(|name| env.get(name).filter(|key| !key.is_empty())))
        .filter(|key| !key.is_empty())
}

/// Takes settings over into the body of a request.
pub fn take(body: &mut Object, config: &Object, keys: &[&str]) {
    for key in keys {
        if let Some(value) = config.get(*key).filter(|value| !value.is_null()) {
            body.insert((*key).to_owned(), value.clone());
        }
    }
}

/// Lays a setting that is a map over the body of a request.
pub fn lay_over(body: &mut Object, config: &Object, key: &str) {
    body.extend(config.get(key).and_then(Value::as_object).cloned().unwrap_or_default());
}

/// Returns the tokens of one request. Without `total` they are those of the prompt and of the answer.
pub fn usage(total: Option<f64>, prompt: Option<f64>, completion: Option<f64>) -> TokenUsage {
    let sum = || prompt.zip(completion).map(|(prompt, completion)| prompt + completion);
    TokenUsage {
        total: total.or_else(sum),
        prompt,
        completion,
        num_requests: Some(1.0),
        ..TokenUsage::default()
    }
}

/// Returns the answer that a reply should have held and did not.
pub fn no_output(reply: &Value) -> ProviderResponse {
    ProviderResponse::failed(format!("the answer has no output: {reply}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_are_looked_for_in_order() {
        let env = json!({"MINE": "mine", "FIRST": "", "SECOND": "second"});
        let env = Env::new(env.as_object().unwrap().clone());
        let of = |config: Value| key(config.as_object().unwrap(), &env, &["FIRST", "SECOND"]);
        assert_eq!(of(json!({"apiKey": "own", "apiKeyEnvar": "MINE"})).as_deref(), Some("own"));
        assert_eq!(of(json!({"apiKey": "", "apiKeyEnvar": "MINE"})).as_deref(), Some("mine"));
        assert_eq!(of(json!({})).as_deref(), Some("second"));
        assert_eq!(key(&Object::new(), &env, &["FIRST"]), None);
    }

    #[test]
    fn tokens_add_up() {
        assert_eq!(usage(None, Some(3.0), Some(4.0)).total, Some(7.0));
        assert_eq!(usage(Some(9.0), Some(3.0), Some(4.0)).total, Some(9.0));
        assert_eq!(usage(None, Some(3.0), None).total, None);
    }
}
