//! What later rows see of earlier ones: conversations, and outputs stored under a name.

use std::collections::HashMap;
use std::sync::Mutex;

use serde_json::{Value, json};

use super::expand::Plan;
use crate::model::{Object, ProviderResponse};
use crate::template::value::to_text;

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

    /// Keeps what later rows may ask for.
    pub fn keep(
        &self,
        plan: &Plan,
        provider: &str,
        prompt: &str,
        rendered: &str,
        response: &ProviderResponse,
    ) {
        let output = response.output.clone().unwrap_or_default();
        if let (Some(name), Ok(mut stored)) =
            (plan.case().options.get("storeOutputAs").and_then(Value::as_str), self.stored.lock())
        {
            stored.insert(name.to_owned(), output.clone());
        }
        if self.conversations
            && let Ok(mut turns) = self.turns.lock()
        {
            let input = last_message(rendered);
            let turn = json!({"prompt": parsed(rendered), "input": input, "output": output, "metadata": response.metadata});
            turns.entry(key(plan, provider, prompt)).or_default().push(turn);
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
