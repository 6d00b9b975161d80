//! Properties of what clients send that hold for any bytes. The programs in `fuzz/` search for bytes that break them; the tests below
//! replay the inputs that they have collected.

use serde_json::Value;

use crate::kernels::read_cell;
use crate::rpc::{self, Call};

/// Checks the reader of JSON-RPC: what it takes has the sender's id, and what it refuses is answered with an error of the protocol.
pub fn rpc(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let sent: Option<Value> = serde_json::from_str(&text).ok();
    let id = sent.as_ref().and_then(|sent| sent.get("id")).filter(|id| !id.is_null());
    match rpc::read(&text) {
        Ok(Call { id: read, .. }) => {
            let Some(read) = read else {
                assert!(id.is_none(), "an id was left out");
                return;
            };
            let answers = [rpc::success(&read, &()), rpc::failure(&read, "x")];
            for answer in answers.map(|answer| parsed(&answer)) {
                assert_eq!(answer.get("id"), id, "the id is another one");
                assert!(answer.get("result").is_some() != answer.get("error").is_some());
            }
        }
        Err(refusal) => {
            let Some(answer) = refusal.answer else { return };
            let answer = parsed(&answer);
            let code = answer["error"]["code"].as_i64().unwrap_or_default();
            assert!([-32700, -32600, -32601, -32602].contains(&code), "{code} is no code of the protocol");
            assert!(answer["error"]["message"].is_string() && answer.get("result").is_none());
            assert!(answer["id"].is_null() || Some(&answer["id"]) == id, "an id that was not sent");
        }
    }
}

/// Checks the reader of messages to kernels.
pub fn cell(input: &[u8]) {
    read_cell(&String::from_utf8_lossy(input));
}

fn parsed(text: &str) -> Value {
    match serde_json::from_str(text) {
        Ok(value) => value,
        Err(error) => panic!("an answer is not JSON: {error}"),
    }
}
