//! Messages of Jupyter, as far as clients send and read them (contract: legacy-v0, section 5).

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// Maximum length of the names that a client gives, bytes.
const MAX_NAME: usize = 256;
/// Maximum length of an error, bytes: it is kept until the end of its cell.
const MAX_ERROR: usize = 1 << 20;

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
    /// Content of the message about the error.
    error: Option<String>,
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

/// A line of the code interpreter (contract: interpreter, section 3). Its values stay text, which goes on as it is: a sandbox chooses what
/// they are, and a value that was read would take many times the memory of its text.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Line<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    execution_count: u64,
    is_main_result: bool,
    #[serde(borrow)]
    name: Option<&'a RawValue>,
    #[serde(borrow)]
    value: Option<&'a RawValue>,
    #[serde(borrow)]
    traceback: Option<&'a RawValue>,
    #[serde(borrow)]
    text: Option<&'a RawValue>,
    #[serde(borrow)]
    html: Option<&'a RawValue>,
    #[serde(borrow)]
    markdown: Option<&'a RawValue>,
    #[serde(borrow)]
    svg: Option<&'a RawValue>,
    #[serde(borrow)]
    png: Option<&'a RawValue>,
    #[serde(borrow)]
    jpeg: Option<&'a RawValue>,
    #[serde(borrow)]
    pdf: Option<&'a RawValue>,
    #[serde(borrow)]
    latex: Option<&'a RawValue>,
    #[serde(borrow)]
    json: Option<&'a RawValue>,
    #[serde(borrow)]
    javascript: Option<&'a RawValue>,
    #[serde(borrow)]
    extra: Option<&'a RawValue>,
}

impl Line<'_> {
    /// The MIME bundle of a result, without what only this interpreter has.
    fn bundle(&self) -> String {
        let members = [
            ("text/plain", self.text),
            ("text/html", self.html),
            ("text/markdown", self.markdown),
            ("image/svg+xml", self.svg),
            ("image/png", self.png),
            ("image/jpeg", self.jpeg),
            ("application/pdf", self.pdf),
            ("text/latex", self.latex),
            ("application/json", self.json),
            ("application/javascript", self.javascript),
        ];
        let extra = self.extra.and_then(|extra| extra.get().strip_prefix('{')?.strip_suffix('}'));
        let mut bundle = format!("{{{}", extra.unwrap_or_default().trim());
        for (mime, value) in members {
            if let Some(value) = value {
                let comma = if bundle.len() > 1 { "," } else { "" };
                bundle.extend([comma, "\"", mime, "\":", value.get()]);
            }
        }
        bundle.push('}');
        bundle
    }
}

/// The consequence of a line of the code interpreter.
#[derive(Debug)]
pub(crate) enum Step {
    /// Messages to the client, of which the last may be as long as the line.
    Messages(Vec<String>),
    /// The end of the cell.
    End,
}

impl Cell {
    fn new(parent: Header) -> Self {
        Self { parent, count: 0, is_started: false, error: None, sent: 0 }
    }

    /// Reads a line of the code interpreter.
    ///
    /// # Errors
    /// If the line is no event.
    pub(crate) fn line(&mut self, line: &[u8]) -> serde_json::Result<Step> {
        if line.is_empty() {
            return Ok(Step::Messages(Vec::new()));
        }
        let line: Line<'_> = serde_json::from_slice(line)?;
        let text = |member: Option<&RawValue>| member.map_or("\"\"", RawValue::get).to_owned();
        let (kind, content) = match line.kind {
            "number_of_executions" if self.is_started => return Ok(Step::Messages(Vec::new())),
            "number_of_executions" => {
                self.count = line.execution_count;
                return Ok(Step::Messages(self.start()));
            }
            "stdout" | "stderr" => {
                ("stream", format!(r#"{{"name":"{}","text":{}}}"#, line.kind, text(line.text)))
            }
            "result" if line.is_main_result => (
                "execute_result",
                format!(r#"{{"data":{},"metadata":{{}},"execution_count":{}}}"#, line.bundle(), self.count),
            ),
            "result" => ("display_data", format!(r#"{{"data":{},"metadata":{{}}}}"#, line.bundle())),
            "error" => {
                let parts = [line.name, line.value, line.traceback];
                let length: usize = parts.iter().flatten().map(|part| part.get().len()).sum();
                return Ok(Step::Messages(match length > MAX_ERROR {
                    true => self.kernel_error("the error takes more than 1 MiB"),
                    false => self.error(parts.map(text)),
                }));
            }
            "end_of_execution" => return Ok(Step::End),
            _ => return Ok(Step::Messages(Vec::new())),
        };
        let mut messages = self.start();
        messages.push(self.message(kind, &content));
        Ok(Step::Messages(messages))
    }

    /// The messages for an event that is too long to be read.
    pub(crate) fn left_out(&mut self) -> Vec<String> {
        let mut messages = self.start();
        let text = "an output of more than 8 MiB was left out\n";
        messages.push(self.message("stream", &json!({ "name": "stderr", "text": text }).to_string()));
        messages
    }

    /// The messages at the end.
    pub(crate) fn end(&mut self) -> Vec<String> {
        let mut messages = self.start();
        let count = self.count;
        let content = self.error.take().unwrap_or_else(|| {
            json!({ "status": "ok", "user_expressions": {}, "payload": [], "execution_count": count })
                .to_string()
        });
        messages.push(self.message("execute_reply", &content));
        messages.push(self.message("status", &json!({ "execution_state": "idle" }).to_string()));
        messages
    }

    /// The messages when the cell cannot be run to its end.
    pub(crate) fn failed(&mut self, why: &str) -> Vec<String> {
        let mut messages = self.kernel_error(why);
        messages.extend(self.end());
        messages
    }

    fn kernel_error(&mut self, why: &str) -> Vec<String> {
        self.error(["KernelError", why, ""].map(|part| Value::from(part).to_string()))
    }

    /// The messages for an error of this name, value and traceback, each as JSON.
    fn error(&mut self, [name, value, traceback]: [String; 3]) -> Vec<String> {
        let mut messages = self.start();
        let content = format!(
            r#"{{"status":"error","ename":{name},"evalue":{value},"traceback":[{traceback}],"execution_count":{}}}"#,
            self.count
        );
        messages.push(self.message("error", &content));
        self.error = Some(content);
        messages
    }

    /// The messages before any others.
    fn start(&mut self) -> Vec<String> {
        if std::mem::replace(&mut self.is_started, true) {
            return Vec::new();
        }
        let busy = self.message("status", &json!({ "execution_state": "busy" }).to_string());
        // The code is known to the client, and may be large.
        let input = json!({ "code": "", "execution_count": self.count }).to_string();
        vec![busy, self.message("execute_input", &input)]
    }

    /// A message whose content is JSON.
    fn message(&mut self, kind: &str, content: &str) -> String {
        self.sent += 1;
        let Header { msg_id, session, msg_type } = &self.parent;
        let own_id = format!("{msg_id}_{}", self.sent);
        let channel = if kind == "execute_reply" { "shell" } else { "iopub" };
        let header = |id: &str, kind: &str| json!({ "msg_id": id, "msg_type": kind, "session": session, "username": "e2b", "version": "5.3" });
        let (own, parent) = (header(&own_id, kind), header(msg_id, msg_type));
        let own_id = Value::from(own_id);
        format!(
            r#"{{"header":{own},"msg_id":{own_id},"msg_type":"{kind}","parent_header":{parent},"metadata":{{}},"content":{content},"buffers":[],"channel":"{channel}"}}"#
        )
    }
}

#[cfg(test)]
mod tests {
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

    fn step(cell: &mut Cell, line: &str) -> Vec<String> {
        let Step::Messages(messages) = cell.line(line.as_bytes()).unwrap() else { panic!() };
        messages
    }

    #[test]
    fn a_cell_is_busy_starts_and_is_idle_once() {
        let mut cell = cell();
        let mut messages = Vec::new();
        for line in [
            "",
            r#"{"type":"number_of_executions","execution_count":3}"#,
            r#"{"type":"keepalive"}"#,
            r#"{"type":"stdout","text":"x","timestamp":"t"}"#,
            r#"{"type":"result","text":"1","html":null,"data":{"a":[1]},"extra":{},"is_main_result":true}"#,
        ] {
            messages.extend(step(&mut cell, line));
        }
        assert!(matches!(cell.line(br#"{"type":"end_of_execution"}"#), Ok(Step::End)));
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
    fn values_of_events_go_on_as_they_are() {
        let mut cell = cell();
        let line =
            r#"{"type":"result","json":{"a": [1, 2]},"extra":{ "x/y": {"z": 1} },"is_main_result":false}"#;
        let messages = step(&mut cell, line);
        assert_eq!(kinds(&messages), ["status busy", "execute_input", "display_data"]);
        let content =
            r#""content":{"data":{"x/y": {"z": 1},"application/json":{"a": [1, 2]}},"metadata":{}}"#;
        assert!(messages[2].contains(content), "{}", messages[2]);
        // Deeper than values can be read.
        let deep = format!("{}{}", "[".repeat(1000), "]".repeat(1000));
        let messages = step(&mut cell, &format!(r#"{{"type":"result","json":{deep},"extra":{{}}}}"#));
        assert!(messages[0].contains(&format!(r#""data":{{"application/json":{deep}}}"#)));
        for line in ["{", "7", r#"{"type":3}"#, r#"{"type":"result","json":}"#] {
            assert!(cell.line(line.as_bytes()).is_err(), "{line}");
        }
    }

    #[test]
    fn an_error_is_repeated_at_the_end_unless_it_is_too_long() {
        for (value, expected) in [("é", "é"), (&"x".repeat(MAX_ERROR), "the error takes more than 1 MiB")] {
            let mut cell = cell();
            let line = format!(r#"{{"type":"error","name":"A","value":"{value}","traceback":"at"}}"#);
            let mut messages = step(&mut cell, &line);
            messages.extend(cell.end());
            for (at, kind) in [(2, "error"), (3, "execute_reply")] {
                let message: Value = serde_json::from_str(&messages[at]).unwrap();
                assert_eq!(
                    (&message["msg_type"], &message["content"]["evalue"]),
                    (&json!(kind), &json!(expected))
                );
            }
        }
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
