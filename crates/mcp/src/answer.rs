//! The methods of the protocol.

use sandcove_client::Client;
use serde_json::{Value, json};
use tokio::sync::mpsc::UnboundedSender;

use crate::call::{Refused, call};
use crate::content::text;
use crate::message::{INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, Message, failure, is_name, success};
use crate::running::Progress;
use crate::tools;

/// Versions of the protocol, newest first. They differ in nothing that is used here.
const VERSIONS: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

/// Whether the server speaks a version of the protocol.
pub fn is_version(version: &str) -> bool {
    VERSIONS.contains(&version)
}

const INSTRUCTIONS: &str = "Sandboxes are isolated Linux machines. Create one with sandbox_create, use its id in the other tools, and kill it \
                            when the work is done. Results of one sandbox are not visible in another.";

/// Answers a request; `None` for a notification. Notifications of progress go to `progress` before the answer is returned. Dropping
/// the future cancels the request, and ends what it runs in a sandbox.
pub async fn answer(client: &Client, message: Message, progress: UnboundedSender<Value>) -> Option<Value> {
    let id = message.id.filter(|id| !id.is_null())?;
    // An answer to a request of this side, of which there are none.
    let method = message.method?;
    Some(match method.as_str() {
        "initialize" => success(&id, initialize(&message.params)),
        "ping" => success(&id, json!({})),
        "tools/list" => success(&id, json!({ "tools": tools::all() })),
        "tools/call" => tool(client, &id, message.params, progress).await,
        "" => failure(&id, INVALID_REQUEST, "the method has no name"),
        other => failure(&id, METHOD_NOT_FOUND, &format!("unknown method `{other}`")),
    })
}

fn initialize(params: &Value) -> Value {
    let wanted = params["protocolVersion"].as_str();
    let version = VERSIONS.into_iter().find(|version| Some(*version) == wanted).unwrap_or(VERSIONS[0]);
    json!({
        "protocolVersion": version,
        "capabilities": { "tools": {} },
        "serverInfo": { "name": "sandcove", "title": "Sandcove", "version": env!("CARGO_PKG_VERSION") },
        "instructions": INSTRUCTIONS,
    })
}

async fn tool(client: &Client, id: &Value, mut params: Value, progress: UnboundedSender<Value>) -> Value {
    let Some(name) = params["name"].as_str().map(str::to_owned) else {
        return failure(id, INVALID_PARAMS, "a call names a tool");
    };
    let token = Some(params["_meta"]["progressToken"].take()).filter(is_name);
    let mut progress = Progress::new(token, progress);
    let outcome = call(client, &name, params["arguments"].take(), &mut progress).await;
    let (content, is_error) = match outcome {
        Ok(ended) => (ended.content, ended.is_error),
        Err(Refused::Unknown) => return failure(id, INVALID_PARAMS, &format!("unknown tool `{name}`")),
        // A result, so that the agent reads it and tries again.
        Err(Refused::Arguments(reason)) => {
            (vec![text(format!("invalid arguments of {name}: {reason}"))], true)
        }
        Err(Refused::Failed(reason)) => (vec![text(reason)], true),
    };
    success(id, json!({ "content": content, "isError": is_error }))
}
