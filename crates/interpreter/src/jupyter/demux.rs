//! What the messages of a kernel mean for the running execution. Pure: messages in, frames out.
//!
//! A kernel answers on two sockets without a common order: one for what it publishes, one for the reply to the request. An
//! execution is over when the reply has come and the kernel has published that it is idle, in either order; only then has
//! everything it published before arrived too.

use sandcove_wire::interpreter::ExecutionError;
use serde_json::{Map, Value};

use super::dialect::Dialect;
use super::message::Message;
use crate::kernel::frame::{Bundle, Frame, Stream};

/// Assigns messages to the running execution, if there is one.
#[derive(Debug, Default)]
pub struct Demux {
    running: Option<Running>,
    /// The dialect of the kernel, if its language is known.
    dialect: Option<Dialect>,
}

#[derive(Debug, Default)]
struct Running {
    /// Id of the request, which its messages carry.
    request: String,
    started: bool,
    failed: bool,
    idle: bool,
    /// Content of the reply.
    reply: Option<Map<String, Value>>,
}

impl Demux {
    /// A demultiplexer for a kernel of this dialect.
    pub fn of(dialect: Option<Dialect>) -> Self {
        Self { running: None, dialect }
    }

    /// Begins an execution: from now on, messages that belong to `request` become frames.
    pub fn begin(&mut self, request: String) {
        self.running = Some(Running { request, ..Running::default() });
    }

    /// Whether only the message that the kernel is idle is missing.
    pub fn is_nearly_done(&self) -> bool {
        self.running.as_ref().is_some_and(|running| running.reply.is_some() && !running.idle)
    }

    /// Takes a published message.
    pub fn published(&mut self, message: &Message) -> Vec<Frame> {
        let dialect = self.dialect;
        let Some(running) = self.running_for(message) else { return Vec::new() };
        let content = &message.content;
        match message.kind.as_str() {
            "execute_input" => running.start(content),
            "stream" => {
                let stream = if text(content, "name") == "stderr" { Stream::Stderr } else { Stream::Stdout };
                let parts = messages(text(content, "text"), dialect);
                // Flushed, because kernels choose what is one message.
                parts
                    .flat_map(|part| [Frame::Output(stream, part.to_owned()), Frame::Flush(stream)])
                    .collect()
            }
            "execute_result" => result(content, true),
            "display_data" => result(content, false),
            "error" => running.fail(error(content)),
            "status" if text(content, "execution_state") == "idle" => {
                running.idle = true;
                self.finish()
            }
            // Display updates, clearing and widgets have no event.
            _ => Vec::new(),
        }
    }

    /// Takes a reply, which may overtake what was published earlier, so its content waits until the end.
    pub fn replied(&mut self, message: &Message) -> Vec<Frame> {
        let Some(running) = self.running_for(message) else { return Vec::new() };
        if message.kind == "execute_reply" {
            running.reply = Some(message.content.clone());
        }
        self.finish()
    }

    /// Takes a request for input, which nobody can answer.
    pub fn asked(&mut self, message: &Message) -> Vec<Frame> {
        let Some(running) = self.running_for(message) else { return Vec::new() };
        running.fail(ExecutionError {
            name: "StdinNotImplementedError".to_owned(),
            value: "code cannot read input here: there is nobody to ask".to_owned(),
            traceback: String::new(),
        })
    }

    /// Ends an execution for which only the message that the kernel is idle is missing, and does not come.
    pub fn stop_waiting(&mut self) -> Vec<Frame> {
        if let Some(running) = &mut self.running {
            running.idle = true;
        }
        self.finish()
    }

    fn running_for(&mut self, message: &Message) -> Option<&mut Running> {
        self.running.as_mut().filter(|running| running.request == message.parent)
    }

    fn finish(&mut self) -> Vec<Frame> {
        let over = self.running.take_if(|running| running.idle && running.reply.is_some());
        over.map(Running::end).unwrap_or_default()
    }
}

impl Running {
    /// Reports the start once. Not every kernel publishes it, but every reply carries the number too.
    fn start(&mut self, content: &Map<String, Value>) -> Vec<Frame> {
        match content.get("execution_count").and_then(Value::as_u64) {
            Some(count) if !std::mem::replace(&mut self.started, true) => vec![Frame::Started(count)],
            _ => Vec::new(),
        }
    }

    /// The last frames: what only the reply says, and the end.
    fn end(mut self) -> Vec<Frame> {
        let reply = self.reply.take().unwrap_or_default();
        let mut frames = self.start(&reply);
        frames.extend(match text(&reply, "status") {
            "error" => self.fail(error(&reply)),
            "aborted" | "abort" => self.fail(ExecutionError {
                name: "ExecutionAborted".to_owned(),
                value: "the kernel did not run the code".to_owned(),
                traceback: String::new(),
            }),
            _ => Vec::new(),
        });
        frames.push(Frame::Done { leaving: asks_to_leave(&reply) });
        frames
    }

    /// Reports a failure once. Kernels both publish it and reply with it.
    fn fail(&mut self, error: ExecutionError) -> Vec<Frame> {
        if std::mem::replace(&mut self.failed, true) { Vec::new() } else { vec![Frame::Error(error)] }
    }
}

/// Splits text that was written at once into messages. `println` of the Java in the original service (11) writes its line end
/// separately, later ones do not; clients compare the messages (contract: interpreter, section 7).
fn messages(text: &str, dialect: Option<Dialect>) -> impl Iterator<Item = &str> {
    let apart = match dialect {
        Some(Dialect::Java) => text.strip_suffix('\n').filter(|line| !line.is_empty()),
        _ => None,
    };
    let (first, end) = apart.map_or((text, None), |line| (line, Some("\n")));
    std::iter::once(first).chain(end)
}

fn text<'a>(content: &'a Map<String, Value>, key: &str) -> &'a str {
    content.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn result(content: &Map<String, Value>, main: bool) -> Vec<Frame> {
    match content.get("data") {
        Some(Value::Object(data)) => vec![Frame::Result(Bundle { main, data: data.clone() })],
        _ => Vec::new(),
    }
}

fn error(content: &Map<String, Value>) -> ExecutionError {
    let frames = content.get("traceback").and_then(Value::as_array).into_iter().flatten();
    ExecutionError {
        name: text(content, "ename").to_owned(),
        value: without_colours(text(content, "evalue")),
        traceback: frames.filter_map(Value::as_str).map(without_colours).collect(),
    }
}

/// Removes the escape sequences by which terminals colour text (contract: interpreter, section 5.1).
fn without_colours(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("\u{1b}[") {
        plain.push_str(before);
        rest = after.trim_start_matches(|c: char| c.is_ascii_digit() || c == ';');
        match rest.strip_prefix('m') {
            Some(coloured) => rest = coloured,
            // Another sequence: left to the client.
            None => {
                plain.push_str("\u{1b}[");
                rest = after;
            }
        }
    }
    plain.push_str(rest);
    plain
}

fn asks_to_leave(content: &Map<String, Value>) -> bool {
    let payloads = content.get("payload").and_then(Value::as_array).into_iter().flatten();
    payloads.filter_map(Value::as_object).any(|payload| text(payload, "source") == "ask_exit")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    const REQUEST: &str = "request";

    fn message(kind: &str, content: Value) -> Message {
        let Value::Object(content) = content else { panic!("content is an object") };
        Message { kind: kind.to_owned(), parent: REQUEST.to_owned(), content }
    }

    fn running() -> Demux {
        let mut demux = Demux::default();
        demux.begin(REQUEST.to_owned());
        demux
    }

    fn idle() -> Message {
        message("status", json!({ "execution_state": "idle" }))
    }

    fn reply() -> Message {
        message("execute_reply", json!({ "status": "ok", "execution_count": 7 }))
    }

    #[test]
    fn what_is_published_becomes_frames() {
        let mut demux = running();
        let input = message("execute_input", json!({ "execution_count": 3, "code": "1" }));
        assert_eq!(demux.published(&input), [Frame::Started(3)]);
        let stream = message("stream", json!({ "name": "stderr", "text": "a\n" }));
        let written = [Frame::Output(Stream::Stderr, "a\n".into()), Frame::Flush(Stream::Stderr)];
        assert_eq!(demux.published(&stream), written);
        for (kind, main) in [("execute_result", true), ("display_data", false)] {
            let frames = demux.published(&message(kind, json!({ "data": { "text/plain": "x" } })));
            let data = Map::from_iter([("text/plain".to_owned(), json!("x"))]);
            assert_eq!(frames, [Frame::Result(Bundle { main, data })]);
        }
        for kind in ["update_display_data", "clear_output", "comm_msg", "status"] {
            assert_eq!(demux.published(&message(kind, json!({ "data": {} }))), [], "{kind}");
        }
        assert_eq!(demux.replied(&reply()), []);
        assert!(demux.is_nearly_done());
        assert_eq!(demux.published(&idle()), [Frame::Done { leaving: false }]);
    }

    #[test]
    fn the_line_end_of_java_is_a_message_of_its_own() {
        let written = |dialect, text: &str| {
            let mut demux = Demux::of(dialect);
            demux.begin(REQUEST.to_owned());
            let frames = demux.published(&message("stream", json!({ "name": "stdout", "text": text })));
            let texts = frames.iter().filter_map(|frame| match frame {
                Frame::Output(Stream::Stdout, text) => Some(text.clone()),
                _ => None,
            });
            let texts: Vec<String> = texts.collect();
            assert_eq!(frames.len(), 2 * texts.len(), "each is flushed");
            texts
        };
        for (text, parts) in [
            ("hello\n", &["hello", "\n"][..]),
            ("a\nb\n", &["a\nb", "\n"]),
            ("a\n\n", &["a\n", "\n"]),
            ("\n", &["\n"]),
            ("hello", &["hello"]),
        ] {
            assert_eq!(written(Some(Dialect::Java), text), parts);
            assert_eq!(written(Some(Dialect::R), text), [text]);
            assert_eq!(written(None, text), [text]);
        }
    }

    #[test]
    fn a_failure_is_reported_once_and_without_colours() {
        let mut demux = running();
        let failure = json!({
            "status": "error", "ename": "E", "evalue": "\u{1b}[31mv\u{1b}[0m",
            "traceback": ["\u{1b}[1;32ma\u{1b}[m\n", "b\u{1b}[K", 5],
        });
        let expected =
            ExecutionError { name: "E".into(), value: "v".into(), traceback: "a\nb\u{1b}[K".into() };
        let (reply, done) = (message("execute_reply", failure.clone()), Frame::Done { leaving: false });
        assert_eq!(demux.replied(&reply), [], "a reply can overtake what was published");
        assert_eq!(demux.published(&message("error", failure)), [Frame::Error(expected.clone())]);
        assert_eq!(demux.published(&idle()), std::slice::from_ref(&done));
        // A kernel that only replies has failed as well.
        let mut demux = running();
        demux.published(&idle());
        assert_eq!(demux.replied(&reply), [Frame::Error(expected), done]);
    }

    #[test]
    fn code_that_was_not_run_and_questions_are_failures() {
        let name = |frames: Vec<Frame>| match &frames[..] {
            [Frame::Error(error), ..] => error.name.clone(),
            other => panic!("unexpected {other:?}"),
        };
        let mut demux = running();
        demux.published(&idle());
        let aborted = message("execute_reply", json!({ "status": "aborted" }));
        assert_eq!(name(demux.replied(&aborted)), "ExecutionAborted");
        let question = message("input_request", json!({ "prompt": "?" }));
        assert_eq!(name(running().asked(&question)), "StdinNotImplementedError");
    }

    #[test]
    fn the_reply_carries_the_number_if_nothing_else_does() {
        let mut demux = running();
        demux.published(&idle());
        assert_eq!(demux.replied(&reply()), [Frame::Started(7), Frame::Done { leaving: false }]);
    }

    #[test]
    fn code_can_ask_the_kernel_to_end() {
        let mut demux = running();
        demux.published(&idle());
        let leaving = json!({ "status": "ok", "payload": [{ "source": "page" }, { "source": "ask_exit" }] });
        assert_eq!(demux.replied(&message("execute_reply", leaving)), [Frame::Done { leaving: true }]);
    }

    #[test]
    fn a_missing_idle_message_does_not_block_for_ever() {
        let mut demux = running();
        assert!(!demux.is_nearly_done());
        demux.replied(&reply());
        assert!(demux.is_nearly_done());
        assert_eq!(demux.stop_waiting(), [Frame::Started(7), Frame::Done { leaving: false }]);
        assert_eq!(demux.stop_waiting(), []);
        assert_eq!(demux.published(&idle()), []);
    }

    #[test]
    fn messages_of_other_requests_are_ignored() {
        let mut demux = running();
        for parent in ["", "another"] {
            let foreign = |message: Message| Message { parent: parent.to_owned(), ..message };
            assert_eq!(demux.replied(&foreign(reply())), []);
            assert_eq!(demux.published(&foreign(idle())), []);
            let stream = message("stream", json!({ "name": "stdout", "text": "a" }));
            assert_eq!(demux.published(&foreign(stream)), []);
        }
        assert!(!demux.is_nearly_done());
        assert_eq!(Demux::default().published(&idle()), []);
    }

    fn any_message() -> impl Strategy<Value = (bool, Message)> {
        let kinds = prop::sample::select(vec![
            "execute_input",
            "stream",
            "execute_result",
            "display_data",
            "error",
            "status",
            "execute_reply",
            "clear_output",
        ]);
        let contents = prop::sample::select(vec![
            json!({}),
            json!({ "execution_state": "idle" }),
            json!({ "execution_state": "busy" }),
            json!({ "status": "ok", "execution_count": 1 }),
            json!({ "status": "error", "ename": 4, "traceback": "no list" }),
            json!({ "name": "stdout", "text": "a", "data": { "text/plain": "a" } }),
            json!({ "name": [], "text": {}, "data": [], "execution_count": -1, "payload": 5 }),
        ]);
        (any::<bool>(), kinds, contents, prop::sample::select(vec![REQUEST, "another", ""])).prop_map(
            |(published, kind, content, parent)| {
                (published, Message { parent: parent.to_owned(), ..message(kind, content) })
            },
        )
    }

    proptest! {
        /// For any messages in any order: at most one start and one failure, and nothing after the end, which comes exactly
        /// when reply and idle have come.
        #[test]
        fn an_execution_has_one_end(messages in prop::collection::vec(any_message(), 0..40)) {
            let mut demux = running();
            let (mut idle, mut replied, mut ended) = (false, false, false);
            let (mut starts, mut failures) = (0, 0);
            for (published, message) in &messages {
                let frames = if *published { demux.published(message) } else { demux.replied(message) };
                prop_assert!(!ended || frames.is_empty());
                if message.parent == REQUEST && !ended {
                    idle |= *published && message.kind == "status" && message.content.get("execution_state") == Some(&json!("idle"));
                    replied |= !*published && message.kind == "execute_reply";
                }
                starts += frames.iter().filter(|frame| matches!(frame, Frame::Started(_))).count();
                failures += frames.iter().filter(|frame| matches!(frame, Frame::Error(_))).count();
                let done = frames.iter().filter(|frame| matches!(frame, Frame::Done { .. })).count();
                prop_assert_eq!(done == 1, idle && replied && !ended);
                ended |= done == 1;
            }
            prop_assert!(starts <= 1 && failures <= 1);
        }
    }
}
