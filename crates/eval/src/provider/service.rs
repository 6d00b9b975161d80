//! Models of services: the part that all their dialects share.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::Value;

use super::prices::Prices;
use super::settings::Settings;
use super::tools::{self, ToolCall, ToolOutcome, Tools};
use crate::calling::transport::{self, Request, ServiceReply};
use crate::calling::{Call, CallError, Provider};
use crate::grading::aggregate::{add_tokens, zero_tokens};
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
    fn read_refusal(&self, _reply: &ServiceReply) -> Option<ProviderResponse> {
        None
    }

    /// Returns a tool of an MCP server as the model's requests have it; nothing where models get no tools of servers.
    fn tool(&self, _tool: &Value) -> Option<Value> {
        None
    }

    /// Returns the calls of tools that a good reply asks for.
    fn calls(&self, _reply: &Value) -> Vec<ToolCall> {
        Vec::new()
    }

    /// Whether tools of servers are run when the model calls them; else the calls are the answer.
    fn runs_servers(&self) -> bool {
        true
    }

    /// Whether the model gets what its calls of servers' tools returned, and answers then.
    fn follows_up(&self) -> bool {
        false
    }

    /// Returns the request that gives the model what its calls returned.
    fn follow_up(
        &self,
        _request: &Request,
        _reply: &Value,
        _calls: &[(ToolCall, ToolOutcome)],
    ) -> Option<Request> {
        None
    }

    /// Returns an answer with what its calls returned in place of them.
    fn resolved(
        &self,
        _reply: &Value,
        response: ProviderResponse,
        calls: &[(ToolCall, ToolOutcome)],
    ) -> ProviderResponse {
        match tools::joined(calls) {
            Some(text) => ProviderResponse { output: Some(Value::String(text)), ..response },
            None => response,
        }
    }

    /// Returns what an answer cost, in dollars, if that is known. A model that runs on the user's machine costs nothing.
    fn cost(&self, _prices: &Prices, _config: &Object, _usage: &TokenUsage) -> Option<f64> {
        Some(0.0)
    }

    /// Returns what an answer cost beside its tokens, in dollars.
    fn surcharge(&self, _response: &ProviderResponse, _config: &Object) -> f64 {
        0.0
    }
}

/// A model of a service, with the variables that hold addresses and keys.
pub struct Service<D> {
    dialect: D,
    env: Env,
    prices: Arc<Prices>,
    settings: Settings,
    tools: Tools,
}

/// Maximum number of calls of tools that a model makes for one prompt, unless `max_tool_calls` says otherwise.
const MAX_TOOL_CALLS: f64 = 8.0;

impl<D: Dialect> Service<D> {
    /// A model whose answers cost what `prices` say, and whose settings may be in files.
    pub fn new(dialect: D, env: Env, prices: Arc<Prices>, settings: Settings, tools: Tools) -> Self {
        Self { dialect, env, prices, settings, tools }
    }

    async fn ask(&self, prompt: &str, config: &Object) -> Result<ProviderResponse, CallError> {
        let mut response = match Tools::are_wanted(config) {
            true => self.ask_with_tools(prompt, config).await?,
            false => {
                let request = self.dialect.request(prompt, config, &self.env)?;
                self.received(transport::ask(request, config).await?, config)?.0
            }
        };
        let usage = response.token_usage.as_ref();
        let cost = usage.and_then(|usage| self.dialect.cost(&self.prices, config, usage));
        response.cost = cost.map(|cost| cost + self.dialect.surcharge(&response, config));
        Ok(response)
    }

    /// Returns what a service answered, and the reply that it is read from.
    fn received(
        &self,
        answer: ServiceReply,
        config: &Object,
    ) -> Result<(ProviderResponse, Value), CallError> {
        let response = match answer.is_good() {
            true => self.dialect.read(&answer.value, config),
            false => match self.dialect.read_refusal(&answer) {
                Some(response) => response,
                None => return Err(answer.into_error()),
            },
        };
        Ok((ProviderResponse { latency_ms: Some(answer.took_ms), ..response }, answer.value))
    }

    /// Asks a model that has tools, and runs those that it calls.
    async fn ask_with_tools(&self, prompt: &str, config: &Object) -> Result<ProviderResponse, CallError> {
        let config = self.with_servers(config).await?;
        let mut request = self.dialect.request(prompt, &config, &self.env)?;
        let limit = config.get("max_tool_calls").and_then(Value::as_f64).filter(|limit| *limit >= 0.0);
        let limit = limit.unwrap_or(MAX_TOOL_CALLS) as usize;
        let (mut spent, mut ran) = (zero_tokens(), 0);
        loop {
            let answer = transport::ask(request.clone(), &config).await?;
            let (mut response, reply) = self.received(answer, &config)?;
            if let Some(usage) = &response.token_usage {
                add_tokens(&mut spent, usage);
                response.token_usage = Some(spent.clone());
            }
            let calls = self.dialect.calls(&reply);
            if calls.is_empty() {
                return Ok(response);
            }
            if !self.dialect.follows_up() {
                let done = self.run(&config, calls).await;
                return Ok(self.dialect.resolved(&reply, response, &done));
            }
            // A model that also calls tools which nobody runs here cannot go on.
            if limit == 0 || !calls.iter().all(|call| self.tools.has(&call.name)) {
                return Ok(response);
            }
            ran += calls.len();
            if ran > limit {
                let error = format!(
                    "the model called more than {limit} tools; set `config.max_tool_calls` to allow more"
                );
                return Ok(ProviderResponse { error: Some(error), ..response });
            }
            let done = self.run(&config, calls).await;
            match self.dialect.follow_up(&request, &reply, &done) {
                Some(next) => request = next,
                None => return Ok(response),
            }
        }
    }

    async fn run(&self, config: &Object, calls: Vec<ToolCall>) -> Vec<(ToolCall, ToolOutcome)> {
        let mut done = Vec::new();
        for call in calls {
            let outcome = match self.tools.has(&call.name) && !self.dialect.runs_servers() {
                true => ToolOutcome::Unknown,
                false => self.tools.run(config, &call).await,
            };
            done.push((call, outcome));
        }
        done
    }

    /// Returns a configuration with the tools of its servers before its own.
    async fn with_servers(&self, config: &Object) -> Result<Object, CallError> {
        let listed = self.tools.listed(config).await?;
        let mut tools: Vec<Value> = listed.iter().filter_map(|tool| self.dialect.tool(tool)).collect();
        let mut config = config.clone();
        if !tools.is_empty() {
            match config.get_mut("tools").map(Value::take) {
                Some(Value::Array(own)) => tools.extend(own),
                Some(Value::Null) | None => {}
                Some(one) => tools.push(one),
            }
            config.insert("tools".to_owned(), Value::Array(tools));
        }
        Ok(config)
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

/// The reason of a service that withheld an answer.
pub const FILTERED: &str = "content_filter";

/// Returns the reason why a model stopped in the words of the OpenAI dialect, whichever service says it.
pub fn finish_reason(said: Option<&Value>) -> Option<String> {
    let reason = said?.as_str()?.trim().to_lowercase();
    let known = match reason.as_str() {
        "" => return None,
        "end_turn" | "stop_sequence" => "stop",
        "max_tokens" => "length",
        "tool_use" | "function_call" => "tool_calls",
        "refusal" => FILTERED,
        _ => return Some(reason),
    };
    Some(known.to_owned())
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
    fn reasons_to_stop_have_the_same_words_everywhere() {
        for (said, reason) in [
            ("end_turn", "stop"),
            ("stop_sequence", "stop"),
            ("MAX_TOKENS", "length"),
            ("tool_use", "tool_calls"),
            ("function_call", "tool_calls"),
            (" refusal ", "content_filter"),
            ("pause_turn", "pause_turn"),
            ("Guardrail", "guardrail"),
        ] {
            assert_eq!(finish_reason(Some(&json!(said))).as_deref(), Some(reason), "{said}");
        }
        assert_eq!((finish_reason(Some(&json!(" "))), finish_reason(None)), (None, None));
    }

    #[test]
    fn tokens_add_up() {
        assert_eq!(usage(None, Some(3.0), Some(4.0)).total, Some(7.0));
        assert_eq!(usage(Some(9.0), Some(3.0), Some(4.0)).total, Some(9.0));
        assert_eq!(usage(None, Some(3.0), None).total, None);
    }
}
