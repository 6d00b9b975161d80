//! Events of code that runs, as far as agents read them. What else an event has is not read into memory: a sandbox chooses what that is.

use serde::Deserialize;
use serde_json::value::RawValue;

/// An event of an execution.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ExecutionEvent {
    /// Text that was written.
    Output(String),
    /// A result that is a picture.
    Picture { kind: &'static str, base64: String },
    /// A result that is something else.
    Text(String),
    /// The traceback of an error, or its name and message.
    Failure(String),
    /// The end of the execution.
    End,
    /// An event that is longer than what is read.
    TooLong,
    /// Nothing that is shown.
    Other,
}

/// A line of the answer (contract: interpreter, section 3), with the text of each member.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Line<'a> {
    #[serde(borrow, rename = "type")]
    kind: Option<&'a RawValue>,
    #[serde(borrow)]
    text: Option<&'a RawValue>,
    #[serde(borrow)]
    png: Option<&'a RawValue>,
    #[serde(borrow)]
    jpeg: Option<&'a RawValue>,
    #[serde(borrow)]
    markdown: Option<&'a RawValue>,
    #[serde(borrow)]
    latex: Option<&'a RawValue>,
    #[serde(borrow)]
    html: Option<&'a RawValue>,
    #[serde(borrow)]
    svg: Option<&'a RawValue>,
    #[serde(borrow)]
    json: Option<&'a RawValue>,
    #[serde(borrow)]
    name: Option<&'a RawValue>,
    #[serde(borrow)]
    value: Option<&'a RawValue>,
    #[serde(borrow)]
    traceback: Option<&'a RawValue>,
}

impl ExecutionEvent {
    /// The event of a line; `None` stands for one that is too long.
    pub(crate) fn of(line: Option<&[u8]>) -> Self {
        let Some(line) = line else { return Self::TooLong };
        let Ok(line) = serde_json::from_slice::<Line<'_>>(line) else { return Self::Other };
        match words(line.kind).as_deref() {
            Some("stdout" | "stderr") => Self::Output(words(line.text).unwrap_or_default()),
            Some("result") => line.result(),
            Some("error") => {
                let traceback = words(line.traceback).filter(|traceback| !traceback.is_empty());
                let word = |member| words(member).unwrap_or_default();
                let name = || format!("{}: {}", word(line.name), word(line.value));
                Self::Failure(traceback.unwrap_or_else(name))
            }
            Some("end_of_execution") => Self::End,
            _ => Self::Other,
        }
    }
}

impl Line<'_> {
    /// The form of a result that agents read: a picture, or else text.
    fn result(&self) -> ExecutionEvent {
        for (kind, data) in [("image/png", self.png), ("image/jpeg", self.jpeg)] {
            if let Some(base64) = words(data) {
                return ExecutionEvent::Picture { kind, base64 };
            }
        }
        let texts = [self.text, self.markdown, self.latex, self.html, self.svg];
        let found = texts.into_iter().find_map(words);
        ExecutionEvent::Text(
            found.or_else(|| self.json.map(|json| json.get().to_owned())).unwrap_or_default(),
        )
    }
}

/// A member that is a string.
fn words(member: Option<&RawValue>) -> Option<String> {
    serde_json::from_str(member?.get()).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn events_are_read_as_far_as_agents_see_them() {
        let text = |text: &str| ExecutionEvent::Text(text.into());
        for (line, wanted) in [
            (
                json!({"type": "stdout", "text": "a\n", "timestamp": "t"}),
                ExecutionEvent::Output("a\n".into()),
            ),
            (json!({"type": "stderr", "text": "b"}), ExecutionEvent::Output("b".into())),
            (
                json!({"type": "result", "text": "7", "html": "<b>", "extra": {}, "is_main_result": true}),
                text("7"),
            ),
            (json!({"type": "result", "html": "<b>"}), text("<b>")),
            (json!({"type": "result", "text": null, "json": {"a": [1]}}), text(r#"{"a":[1]}"#)),
            (
                json!({"type": "result", "text": "figure", "png": "iVBOR", "chart": {"a": [[[]]]}}),
                ExecutionEvent::Picture { kind: "image/png", base64: "iVBOR".into() },
            ),
            (
                json!({"type": "error", "name": "A", "value": "b", "traceback": "at"}),
                ExecutionEvent::Failure("at".into()),
            ),
            (
                json!({"type": "error", "name": "A", "value": "b", "traceback": ""}),
                ExecutionEvent::Failure("A: b".into()),
            ),
            (json!({"type": "end_of_execution"}), ExecutionEvent::End),
            (json!({"type": "number_of_executions", "execution_count": 1}), ExecutionEvent::Other),
            (json!({"type": "keepalive"}), ExecutionEvent::Other),
        ] {
            assert_eq!(ExecutionEvent::of(Some(line.to_string().as_bytes())), wanted, "{line}");
        }
        assert_eq!(ExecutionEvent::of(Some(b"")), ExecutionEvent::Other);
        assert_eq!(ExecutionEvent::of(None), ExecutionEvent::TooLong);
    }
}
