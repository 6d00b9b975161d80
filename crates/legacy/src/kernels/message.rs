//! Messages of Jupyter, as far as clients send and read them (contract: legacy-v0, section 5).

use sandcove_wire::interpreter::{Event, ExecutionError};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// Maximum length of the names that a client gives, bytes.
const MAX_NAME: usize = 256;

/// A message of a client.
#[derive(Debug)]
pub(crate) enum Reading {
    /// Code to run.
    Cell(Cell, String),
    /// A message that asks for nothing that is known here, or cannot be read.
    Unknown(String),
}

/// A cell: what is sent for it, in the order that clients need.
#[derive(Debug)]
pub(crate) struct Cell {
    /// The header of the request.
    parent: Header,
    count: u64,
    is_started: bool,
    error: Option<ExecutionError>,
    sent: u64,
}

#[derive(Debug, Deserialize)]
struct Header {
    msg_id: String,
    #[serde(default)]
    session: String,
    msg_type: String,
}

#[derive(Deserialize)]
struct Message<'a> {
    header: Header,
    #[serde(borrow)]
    content: &'a RawValue,
}

#[derive(Deserialize)]
struct Execute {
    code: String,
}

/// Reads a message.
pub(crate) fn read(text: &str) -> Reading {
    let message: Message<'_> = match serde_json::from_str(text) {
        Ok(message) => message,
        Err(error) => return Reading::Unknown(error.to_string()),
    };
    let Header { msg_id, session, msg_type } = &message.header;
    if msg_id.len() > MAX_NAME || session.len() > MAX_NAME {
        return Reading::Unknown(format!("a name of more than {MAX_NAME} bytes"));
    }
    if msg_type != "execute_request" {
        return Reading::Unknown(msg_type.chars().take(64).collect());
    }
    match serde_json::from_str::<Execute>(message.content.get()) {
        Ok(Execute { code }) => Reading::Cell(Cell::new(message.header), code),
        Err(error) => Reading::Unknown(error.to_string()),
    }
}

impl Cell {
    fn new(parent: Header) -> Self {
        Self { parent, count: 0, is_started: false, error: None, sent: 0 }
    }

    /// The messages for an event.
    pub(crate) fn event(&mut self, event: Event) -> Vec<String> {
        if let Event::NumberOfExecutions { execution_count } = event {
            if self.is_started {
                return Vec::new();
            }
            self.count = execution_count;
        }
        let mut messages = self.start();
        match event {
            Event::Stdout(output) => {
                messages.push(self.message("stream", json!({ "name": "stdout", "text": output.text })));
            }
            Event::Stderr(output) => {
                messages.push(self.message("stream", json!({ "name": "stderr", "text": output.text })));
            }
            Event::Result(result) => {
                let (kind, is_main) =
                    if result.is_main_result { ("execute_result", true) } else { ("display_data", false) };
                let mut content = json!({ "data": result.into_bundle(), "metadata": {} });
                if is_main {
                    content["execution_count"] = self.count.into();
                }
                messages.push(self.message(kind, content));
            }
            Event::Error(error) => {
                messages.push(self.message("error", shown(&error)));
                self.error = Some(error);
            }
            Event::NumberOfExecutions { .. } | Event::Keepalive | Event::EndOfExecution => {}
        }
        messages
    }

    /// The messages at the end.
    pub(crate) fn end(&mut self) -> Vec<String> {
        let mut messages = self.start();
        let mut content = match &self.error {
            Some(error) => shown(error),
            None => json!({ "status": "ok", "user_expressions": {}, "payload": [] }),
        };
        content["execution_count"] = self.count.into();
        messages.push(self.message("execute_reply", content));
        messages.push(self.message("status", json!({ "execution_state": "idle" })));
        messages
    }

    /// The messages when the cell cannot be run to its end.
    pub(crate) fn failed(&mut self, why: &str) -> Vec<String> {
        let error =
            ExecutionError { name: "KernelError".into(), value: why.to_owned(), traceback: String::new() };
        let mut messages = self.event(Event::Error(error));
        messages.extend(self.end());
        messages
    }

    /// The messages before any others.
    fn start(&mut self) -> Vec<String> {
        if std::mem::replace(&mut self.is_started, true) {
            return Vec::new();
        }
        let busy = self.message("status", json!({ "execution_state": "busy" }));
        // The code is known to the client, and may be large.
        let input = self.message("execute_input", json!({ "code": "", "execution_count": self.count }));
        vec![busy, input]
    }

    fn message(&mut self, kind: &str, content: Value) -> String {
        self.sent += 1;
        let Header { msg_id, session, msg_type } = &self.parent;
        let own_id = format!("{msg_id}_{}", self.sent);
        let channel = if kind == "execute_reply" { "shell" } else { "iopub" };
        let header = |id: &str, kind: &str| json!({ "msg_id": id, "msg_type": kind, "session": session, "username": "e2b", "version": "5.3" });
        let message = json!({
            "header": header(&own_id, kind),
            "msg_id": own_id,
            "msg_type": kind,
            "parent_header": header(msg_id, msg_type),
            "metadata": {},
            "content": content,
            "buffers": [],
            "channel": channel,
        });
        message.to_string()
    }
}

fn shown(error: &ExecutionError) -> Value {
    json!({ "status": "error", "ename": error.name, "evalue": error.value, "traceback": [error.traceback] })
}

#[cfg(test)]
mod tests {
    use sandcove_wire::interpreter::{Output, ResultData};

    use super::*;

    const REQUEST: &str = r#"{"header": {"msg_id": "m1", "username": "e2b", "session": "s", "msg_type": "execute_request",
        "version": "5.3"}, "parent_header": {}, "metadata": {}, "content": {"code": "1", "silent": false}}"#;

    fn cell() -> Cell {
        let Reading::Cell(cell, code) = read(REQUEST) else { panic!() };
        assert_eq!(code, "1");
        cell
    }

    fn kinds(messages: &[String]) -> Vec<String> {
        let values = messages.iter().map(|text| serde_json::from_str::<Value>(text).unwrap());
        let kind = |value: Value| {
            assert_eq!(value["parent_header"]["msg_id"], "m1");
            let state = value["content"]["execution_state"].as_str().unwrap_or_default();
            format!("{} {state}", value["msg_type"].as_str().unwrap()).trim().to_owned()
        };
        values.map(kind).collect()
    }

    #[test]
    fn a_cell_is_busy_starts_and_is_idle_once() {
        let mut cell = cell();
        let output = Output { text: "x".into(), timestamp: String::new() };
        let mut messages = cell.event(Event::NumberOfExecutions { execution_count: 3 });
        messages.extend(cell.event(Event::Stdout(output)));
        messages.extend(cell.event(Event::Result(Box::new(ResultData {
            text: Some("1".into()),
            is_main_result: true,
            ..ResultData::default()
        }))));
        messages.extend(cell.end());
        let expected =
            ["status busy", "execute_input", "stream", "execute_result", "execute_reply", "status idle"];
        assert_eq!(kinds(&messages), expected);
        let input: Value = serde_json::from_str(&messages[1]).unwrap();
        assert_eq!(input["content"]["execution_count"], 3);
        let result: Value = serde_json::from_str(&messages[3]).unwrap();
        assert_eq!(result["content"]["data"], json!({ "text/plain": "1" }));
    }

    #[test]
    fn a_failure_before_the_start_ends_a_cell_too() {
        let messages = cell().failed("gone");
        assert_eq!(
            kinds(&messages),
            ["status busy", "execute_input", "error", "execute_reply", "status idle"]
        );
        let reply: Value = serde_json::from_str(&messages[3]).unwrap();
        assert_eq!(
            (&reply["content"]["status"], &reply["content"]["evalue"]),
            (&json!("error"), &json!("gone"))
        );
    }

    #[test]
    fn what_is_no_cell_is_left_out() {
        let long = REQUEST.replace("m1", &"m".repeat(257));
        let kind = REQUEST.replace("execute_request", "kernel_info_request");
        let code = REQUEST.replace(r#""code": "1""#, r#""code": 1"#);
        for text in ["", "{", "[]", "null", r#"{"header":{}}"#, &long, &kind, &code] {
            assert!(matches!(read(text), Reading::Unknown(_)), "{text}");
        }
    }
}
