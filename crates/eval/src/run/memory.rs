//! What later rows see of earlier ones: conversations, and outputs stored under a name.

use std::collections::HashMap;
use std::sync::Mutex;

use serde_json::{Value, json};

use super::expand::Plan;
use crate::model::{Object, ProviderResponse};
use crate::template::value::to_text;

/// The key of a row's metadata that holds what its provider answered, where a transform made something else of it and a conversation goes on.
pub const OWN_OUTPUT: &str = "_providerOutput";

/// Values that rows leave for later rows. Runs that use it run one row at a time.
#[derive(Debug, Default)]
pub struct Memory {
    conversations: bool,
    turns: Mutex<HashMap<String, Vec<Value>>>,
    stored: Mutex<Object>,
}

fn key(plan: &Plan, provider: &str, prompt: &str) -> String {
    let conversation = plan.case().metadata.get("conversationId").map(to_text).unwrap_or_default();
    format!("{provider}:{prompt}:{conversation}")
}

impl Memory {
    /// `conversations` says whether any prompt asks for `_conversation`.
    pub fn new(conversations: bool) -> Self {
        Self { conversations, ..Self::default() }
    }

    /// Adds what earlier rows left to a row's variables.
    pub fn add_to(&self, vars: &mut Object, plan: &Plan, provider: &str, prompt: &str) {
        if let Ok(stored) = self.stored.lock() {
            vars.extend(stored.clone());
        }
        if self.conversations
            && plan.case().options.get("disableConversationVar") != Some(&json!(true))
            && let Ok(turns) = self.turns.lock()
        {
            let turns = turns.get(&key(plan, provider, prompt)).cloned().unwrap_or_default();
            vars.insert("_conversation".to_owned(), Value::Array(turns));
        }
    }

    /// Keeps the turn of a conversation, and returns its output: the provider's own, before any transform.
    pub fn keep_turn(
        &self,
        plan: &Plan,
        provider: &str,
        prompt: &str,
        rendered: &str,
        response: &ProviderResponse,
    ) -> Option<Value> {
        if !self.conversations {
            return None;
        }
        let output = response.output.clone().filter(|output| !output.is_null());
        let output = output.unwrap_or_else(|| json!(""));
        let input = last_message(rendered);
        let turn = json!({"prompt": parsed(rendered), "input": input, "output": output, "metadata": response.metadata});
        if let Ok(mut turns) = self.turns.lock() {
            turns.entry(key(plan, provider, prompt)).or_default().push(turn);
        }
        Some(output)
    }

    /// Keeps an output that a test stores under a name.
    pub fn keep_output(&self, plan: &Plan, response: &ProviderResponse) {
        let name = plan.case().options.get("storeOutputAs").and_then(Value::as_str);
        if let (Some(name), Ok(mut stored)) = (name, self.stored.lock()) {
            stored.insert(name.to_owned(), response.output.clone().unwrap_or_default());
        }
    }
}

fn parsed(rendered: &str) -> Value {
    serde_json::from_str(rendered).unwrap_or_else(|_| json!(rendered))
}

/// The content of the last message of a chat, or the whole text.
fn last_message(rendered: &str) -> Value {
    let chat = parsed(rendered);
    let content =
        chat.as_array().and_then(|messages| messages.last()).and_then(|message| message.get("content"));
    content.cloned().unwrap_or(chat)
}
