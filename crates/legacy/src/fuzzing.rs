//! Properties of what clients send that hold for any bytes. The programs in `fuzz/` search for bytes that break them; the tests below
//! replay the inputs that they have collected.

use serde_json::Value;

use crate::kernels::read_cell;
use crate::rpc::{self, Call};

/// Checks the reader of JSON-RPC: what it takes has the sender's id, and what it refuses is answered with an error of the protocol.
pub fn rpc(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let sent: Option<Value> = serde_json::from_str(&text).ok();
    // The reader skips what it does not need, and may take what is too deep or too large to be read whole.
    let id = sent.as_ref().and_then(|sent| sent.get("id")).filter(|id| !id.is_null());
    let is_known = sent.is_some();
    match rpc::read(&text) {
        Ok(Call { id: read, .. }) => {
            let Some(read) = read else {
                assert!(id.is_none() || !is_known, "an id was left out");
                return;
            };
            let answers = [rpc::success(&read, &()), rpc::failure(&read, "x")];
            for answer in answers.map(|answer| parsed(&answer)) {
                assert!(answer.get("id") == id || !is_known, "the id is another one");
                assert!(answer.get("result").is_some() != answer.get("error").is_some());
            }
        }
        Err(refusal) => {
            let Some(answer) = refusal.answer else { return };
            let answer = parsed(&answer);
            let code = answer["error"]["code"].as_i64().unwrap_or_default();
            assert!([-32700, -32600, -32601, -32602].contains(&code), "{code} is no code of the protocol");
            assert!(answer["error"]["message"].is_string() && answer.get("result").is_none());
            assert!(
                answer["id"].is_null() || Some(&answer["id"]) == id || !is_known,
                "an id that was not sent"
            );
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_messages_collected_by_fuzzing_hold() {
        replay("legacy_rpc", rpc);
    }

    #[test]
    fn the_cells_collected_by_fuzzing_hold() {
        replay("legacy_cell", cell);
    }

    proptest! {
        #[test]
        fn no_message_makes_a_reader_fall_over(input in proptest::collection::vec(any::<u8>(), 0..200)) {
            rpc(&input);
            cell(&input);
        }

        #[test]
        fn no_parameters_make_the_reader_fall_over(
            method in "(process|terminal|filesystem|codeSnippet)_(subscribe|start|write|resize|read|kill)",
            params in "[\\[\\]{}\":,a0-9e.-]{0,40}",
            id in "\"[a-z]{0,4}\"|-?[0-9]{1,30}|null|[0-9]e[0-9]{1,4}",
        ) {
            rpc(format!(r#"{{"id":{id},"method":"{method}","params":{params}}}"#).as_bytes());
        }
    }

    fn replay(target: &str, check: fn(&[u8])) {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
        let inputs: Vec<_> = std::fs::read_dir(corpus).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(!inputs.is_empty());
        for input in inputs {
            println!("{}", input.display());
            check(&std::fs::read(input).unwrap());
        }
    }
}
