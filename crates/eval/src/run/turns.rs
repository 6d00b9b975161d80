//! Providers that tests name in place of that of their column, and those that ask it several times: `sequence`,
//! `promptfoo:simulated-user`, and the attackers of red teams.

use std::time::Duration;

use serde_json::{Value, json};

use super::error::RowError;
use super::expand::Plan;
use super::{Run, attacker, row};
use crate::calling::spec::{ProviderSpec, Turns};
use crate::calling::{Call, Provider, Role};
use crate::grading::aggregate::{add_tokens, zero_tokens};
use crate::model::{Object, ProviderResponse, TokenUsage};
use crate::provider::settings;
use crate::template::value::to_text;

/// The text by which the model that plays a user ends the conversation.
const STOP: &str = "###STOP###";
/// The turns of a conversation, unless `maxTurns` says otherwise.
const MAX_TURNS: u64 = 10;

const USER: &str = "You play a user who talks to an assistant. These are your instructions:\n\n<instructions>\n{instructions}\n</instructions>\n\n\
Write the next message of the user and nothing else: briefly, in the user's own words, without explaining your part. \
When the instructions are fulfilled, or the assistant cannot fulfil them, answer only with ###STOP###.";

/// Asks the provider that a test names in place of that of its column, which `call` is for.
pub async fn instead(run: &Run, plan: &Plan, other: &ProviderSpec, call: &Call<'_>) -> ProviderResponse {
    let Some(turns) = Turns::of(&other.id) else {
        return asked(run, plan, other, call).await.unwrap_or_else(ProviderResponse::failed);
    };
    let (spec, provider) = &run.providers[run.columns[plan.prompt_idx].provider];
    let config = match settings::data(&other.config, &other.base) {
        Ok(config) => config.unwrap_or_else(|| other.config.clone()),
        Err(error) => return ProviderResponse::failed(error),
    };
    let mut talk = Talk {
        run,
        plan,
        call,
        config,
        provider: &**provider,
        delay: spec.delay,
        vars: call.vars.clone(),
        spent: Spent::default(),
    };
    let answered = match turns {
        Turns::Sequence => talk.sequence().await,
        Turns::SimulatedUser => talk.with_user().await,
        Turns::Attacker(by) => attacker::attack(&mut talk, by).await,
    };
    let response = answered.unwrap_or_else(ProviderResponse::failed);
    ProviderResponse { token_usage: Some(talk.spent.tokens), cost: talk.spent.cost, ..response }
}

/// The answer of an ordinary provider, with its own configuration and the options of the test.
async fn asked(
    run: &Run,
    plan: &Plan,
    other: &ProviderSpec,
    call: &Call<'_>,
) -> Result<ProviderResponse, RowError> {
    let provider = run.models.make(other)?;
    let config = row::configuration(run, plan, (other, &*provider), call.vars, &Object::new())?;
    Ok(run.models.call(&*provider, Role::Text, &Call { config: &config, ..*call }, plan.repeat).await)
}

/// Tokens and cost of all calls.
pub(super) struct Spent {
    tokens: TokenUsage,
    /// Nothing if a price is unknown.
    cost: Option<f64>,
}

impl Default for Spent {
    fn default() -> Self {
        Self { tokens: zero_tokens(), cost: Some(0.0) }
    }
}

impl Spent {
    /// Adds what a call cost.
    pub(super) fn add(&mut self, response: &ProviderResponse) {
        let one = TokenUsage { num_requests: Some(1.0), ..TokenUsage::default() };
        let usage = response.token_usage.as_ref();
        add_tokens(&mut self.tokens, usage.unwrap_or(&TokenUsage::default()));
        if usage.is_none_or(|usage| usage.num_requests.is_none()) {
            add_tokens(&mut self.tokens, &one);
        }
        self.cost = self.cost.zip(response.charge()).map(|(sum, more)| sum + more);
    }
}

/// Several calls of the provider of a column.
pub(super) struct Talk<'a> {
    pub(super) run: &'a Run,
    pub(super) plan: &'a Plan,
    call: &'a Call<'a>,
    /// The configuration of the provider that asks.
    pub(super) config: Object,
    provider: &'a dyn Provider,
    delay: Option<f64>,
    /// The variables of the row, with the session of a target that keeps one.
    pub(super) vars: Object,
    pub(super) spent: Spent,
}

impl Talk<'_> {
    /// A text of the configuration.
    pub(super) fn setting(&self, key: &str) -> Option<&str> {
        self.config.get(key).and_then(Value::as_str).filter(|text| !text.is_empty())
    }

    fn rendered(&self, text: &str, vars: &Object) -> Result<String, RowError> {
        Ok(self.run.templates.render(text, vars)?)
    }

    /// Whether the provider of the column keeps the conversation itself.
    pub(super) fn is_stateful(&self) -> bool {
        self.config.get("stateful") == Some(&json!(true))
    }

    /// Waits as long as the provider of the column wants between two calls.
    pub(super) async fn wait(&self) {
        if let Some(delay) = self.delay.filter(|delay| *delay > 0.0) {
            tokio::time::sleep(Duration::from_secs_f64(delay / 1000.0)).await;
        }
    }

    /// Asks the provider of the column.
    pub(super) async fn ask(&mut self, prompt: &str) -> Result<ProviderResponse, RowError> {
        let mut context = self.call.context.clone();
        if let Some(vars) = context.get_mut("vars") {
            *vars = Value::Object(self.vars.clone());
        }
        let call = Call { prompt, vars: &self.vars, context: &context, ..*self.call };
        let response = self.run.models.call(self.provider, Role::Text, &call, self.plan.repeat).await;
        self.spent.add(&response);
        if let Some(error) = response.error {
            return Err(RowError::Answer(error));
        }
        if let Some(session) = &response.session_id {
            self.vars.insert("sessionId".to_owned(), json!(session));
        }
        Ok(response)
    }

    /// Asks the prompts of `inputs` one after the other, and joins the answers.
    async fn sequence(&mut self) -> Result<ProviderResponse, RowError> {
        let Some(inputs) = self.config.get("inputs").and_then(Value::as_array).cloned() else {
            return Err(RowError::NoInputs);
        };
        let separator = self.setting("separator").unwrap_or("\n---\n").to_owned();
        let mut vars = self.vars.clone();
        vars.insert("prompt".to_owned(), json!(self.call.prompt));
        let mut outputs = Vec::new();
        for input in &inputs {
            let prompt = self.rendered(&to_text(input), &vars)?;
            outputs.push(self.ask(&prompt).await?.output.as_ref().map(to_text).unwrap_or_default());
        }
        Ok(ProviderResponse::text(outputs.join(&separator)))
    }

    /// Has a model play a user who talks to the provider of the column.
    async fn with_user(&mut self) -> Result<ProviderResponse, RowError> {
        let instructions = self.setting("instructions").unwrap_or("{{instructions}}").to_owned();
        let instructions = self.rendered(&instructions, &self.vars)?;
        let user = self.user()?;
        let turns = self.config.get("maxTurns").and_then(Value::as_u64).unwrap_or(MAX_TURNS);
        let mut messages = self.first_messages()?;
        let mut last = None;
        if messages.last().is_some_and(|message| message["role"] == "user") {
            last = Some(self.answer(&mut messages).await?);
        }
        for _ in 0..turns {
            let said = self.said_by_user(&user, &instructions, &messages).await?;
            if said.contains(STOP) {
                break;
            }
            messages.push(message("user", &said));
            last = Some(self.answer(&mut messages).await?);
        }
        let shown = messages.iter().map(|message| {
            let name = if message["role"] == "assistant" { "Assistant" } else { "User" };
            format!("{name}: {}", to_text(&message["content"]))
        });
        let output = shown.collect::<Vec<_>>().join("\n---\n");
        let mut metadata = Object::new();
        metadata.insert("messages".to_owned(), Value::Array(messages));
        if let Some(session) = self.vars.get("sessionId") {
            metadata.insert("sessionId".to_owned(), session.clone());
        }
        let guardrails = last.and_then(|response: ProviderResponse| response.guardrails);
        Ok(ProviderResponse { metadata: Some(metadata), guardrails, ..ProviderResponse::text(output) })
    }

    /// The model that plays the user: that of the configuration, else the one that grades.
    fn user(&self) -> Result<ProviderSpec, RowError> {
        let options = &self.plan.case().options;
        let named = self.config.get("userProvider").or_else(|| options.get("provider"));
        let spec = named.and_then(|named| ProviderSpec::of_test(named, self.run.workers.base()));
        let spec = spec.filter(|spec| Turns::of(&spec.id).is_none());
        spec.ok_or(RowError::NoUser)
    }

    /// Returns the messages that the conversation begins with: those of the variable, else those of the configuration.
    fn first_messages(&self) -> Result<Vec<Value>, RowError> {
        let given = self.vars.get("initialMessages").filter(|given| !given.is_null() && *given != "");
        let list = match given.or_else(|| self.config.get("initialMessages")) {
            None | Some(Value::Null) => return Ok(Vec::new()),
            Some(Value::String(text)) => serde_json::from_str(text).map_err(RowError::ParseMessages)?,
            Some(list) => list.clone(),
        };
        let mut messages = Vec::new();
        for each in list.as_array().ok_or(RowError::NotMessages)? {
            let field =
                |key: &str| each.get(key).and_then(Value::as_str).map(|text| self.rendered(text, &self.vars));
            match (field("role").transpose()?, field("content").transpose()?) {
                (Some(role), Some(content)) if ["user", "assistant", "system"].contains(&role.as_str()) => {
                    messages.push(message(&role, &content));
                }
                _ => return Err(RowError::NotAMessage(each.clone())),
            }
        }
        Ok(messages)
    }

    /// Asks the model that plays the user, to whom the assistant is the other side.
    async fn said_by_user(
        &mut self,
        user: &ProviderSpec,
        instructions: &str,
        messages: &[Value],
    ) -> Result<String, RowError> {
        let mut chat = vec![message("system", &USER.replace("{instructions}", instructions))];
        // Some services want a user to begin.
        chat.push(message("user", "(The conversation begins.)"));
        let turned = messages.iter().filter(|each| each["role"] != "system").map(|each| {
            let role = if each["role"] == "user" { "assistant" } else { "user" };
            message(role, &to_text(&each["content"]))
        });
        chat.extend(turned);
        let prompt = Value::Array(chat).to_string();
        let call = Call { prompt: &prompt, vars: &self.vars, config: &user.config, context: &Value::Null };
        let response = self.run.models.ask(user, Role::Text, &call, self.plan.repeat).await?;
        self.spent.add(&response);
        match (response.error, response.output) {
            (Some(error), _) => Err(RowError::User(error)),
            (None, Some(output)) => Ok(to_text(&output)),
            (None, None) => Err(RowError::SilentUser),
        }
    }

    /// Has the provider of the column answer the last message, to which a target that keeps the conversation gets no more.
    async fn answer(&mut self, messages: &mut Vec<Value>) -> Result<ProviderResponse, RowError> {
        let system = message("system", self.call.prompt);
        let last = messages.last().cloned().unwrap_or_default();
        let last = message("user", &to_text(&last["content"]));
        let prompt = match (self.is_stateful(), self.vars.contains_key("sessionId")) {
            (true, true) => json!([last]),
            (true, false) => json!([system, last]),
            (false, _) => json!(std::iter::once(&system).chain(&*messages).collect::<Vec<_>>()),
        };
        let response = self.ask(&prompt.to_string()).await?;
        self.wait().await;
        messages.push(message("assistant", &response.output.as_ref().map(to_text).unwrap_or_default()));
        Ok(response)
    }
}

/// A message of a conversation.
pub(super) fn message(role: &str, content: &str) -> Value {
    json!({"role": role, "content": content})
}
