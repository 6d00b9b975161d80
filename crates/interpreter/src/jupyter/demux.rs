//! What the messages of a kernel mean for the execution that runs. Pure: messages in, frames out.
//!
//! A kernel answers on two sockets that know nothing of each other: what it publishes, and the reply to the request. An
//! execution is over when the reply has come and the kernel has published that it is idle, in either order; only then has all
//! that was published before come too.

use sandcove_wire::interpreter::ExecutionError;
use serde_json::{Map, Value};

use super::dialect::Dialect;
use super::message::Message;
use crate::kernel::frame::{Frame, Shown, Stream};

/// The execution that runs, if any.
#[derive(Debug, Default)]
pub struct Demux {
    running: Option<Running>,
    /// The language of the kernel, if we know it.
    dialect: Option<Dialect>,
}

#[derive(Debug, Default)]
struct Running {
    /// Id of the request, by which its messages are known.
    request: String,
    started: bool,
    failed: bool,
    idle: bool,
    /// What the kernel replied.
    reply: Option<Map<String, Value>>,
}

impl Demux {
    /// For a kernel of this language.
    pub fn of(dialect: Option<Dialect>) -> Self {
        Self { running: None, dialect }
    }

    /// From now on, messages that belong to `request` are heard.
    pub fn begin(&mut self, request: String) {
        self.running = Some(Running { request, ..Running::default() });
    }

    /// Whether only the word that the kernel is idle is missing.
    pub fn is_nearly_done(&self) -> bool {
        self.running.as_ref().is_some_and(|running| running.reply.is_some() && !running.idle)
    }

    /// Takes a message that was published.
    pub fn published(&mut self, message: &Message) -> Vec<Frame> {
        let dialect = self.dialect;
        let Some(running) = self.meant_by(message) else { return Vec::new() };
        let content = &message.content;
        match message.kind.as_str() {
            "execute_input" => running.start(content),
            "stream" => {
                let stream = if text(content, "name") == "stderr" { Stream::Stderr } else { Stream::Stdout };
                let parts = messages(text(content, "text"), dialect);
                // A flush, because kernels choose what is one message.
                parts.flat_map(|part| [Frame::Text(stream, part.to_owned()), Frame::Flush(stream)]).collect()
            }
            "execute_result" => shown(content, true),
            "display_data" => shown(content, false),
            "error" => running.fail(error(content)),
            "status" if text(content, "execution_state") == "idle" => {
                running.idle = true;
                self.finish()
            }
            // Updates of what was shown, clearing, widgets: clients know nothing of these.
            _ => Vec::new(),
        }
    }

    /// Takes a reply. It may come before what was published earlier, so what it says waits until the end.
    pub fn replied(&mut self, message: &Message) -> Vec<Frame> {
        let Some(running) = self.meant_by(message) else { return Vec::new() };
        if message.kind == "execute_reply" {
            running.reply = Some(message.content.clone());
        }
        self.finish()
    }

    /// Takes a question that nobody can answer.
    pub fn asked(&mut self, message: &Message) -> Vec<Frame> {
        let Some(running) = self.meant_by(message) else { return Vec::new() };
        running.fail(ExecutionError {
            name: "StdinNotImplementedError".to_owned(),
            value: "code cannot read input here: there is nobody to ask".to_owned(),
            traceback: String::new(),
        })
    }

    /// Ends an execution of which only the word that the kernel is idle is missing, and does not come.
    pub fn stop_waiting(&mut self) -> Vec<Frame> {
        if let Some(running) = &mut self.running {
            running.idle = true;
        }
        self.finish()
    }

    fn meant_by(&mut self, message: &Message) -> Option<&mut Running> {
        self.running.as_mut().filter(|running| running.request == message.parent)
    }

    fn finish(&mut self) -> Vec<Frame> {
        let over = self.running.take_if(|running| running.idle && running.reply.is_some());
        over.map(Running::end).unwrap_or_default()
    }
}

impl Running {
    /// Not every kernel says that it begins, but every reply carries the number too.
    fn start(&mut self, content: &Map<String, Value>) -> Vec<Frame> {
        match content.get("execution_count").and_then(Value::as_u64) {
            Some(count) if !std::mem::replace(&mut self.started, true) => vec![Frame::Started(count)],
            _ => Vec::new(),
        }
    }

    /// The last frames: what the reply says and nothing published has said, and the end.
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

    /// Kernels tell of a failure twice.
    fn fail(&mut self, error: ExecutionError) -> Vec<Frame> {
        if std::mem::replace(&mut self.failed, true) { Vec::new() } else { vec![Frame::Failed(error)] }
    }
}

/// The messages that what a kernel wrote at once becomes. `println` of the original's Java (11) writes its line end by itself, and
/// that of later ones does not; clients compare the messages (contract: interpreter, section 7).
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

fn shown(content: &Map<String, Value>, main: bool) -> Vec<Frame> {
    match content.get("data") {
        Some(Value::Object(data)) => vec![Frame::Shown(Shown { main, data: data.clone() })],
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

/// The text without the escape sequences by which terminals colour (contract: interpreter, section 5.1).
fn without_colours(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("\u{1b}[") {
        plain.push_str(before);
        rest = after.trim_start_matches(|c: char| c.is_ascii_digit() || c == ';');
        match rest.strip_prefix('m') {
            Some(coloured) => rest = coloured,
            // Something else: what it means is the reader's business.
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
        let written = [Frame::Text(Stream::Stderr, "a\n".into()), Frame::Flush(Stream::Stderr)];
        assert_eq!(demux.published(&stream), written);
        for (kind, main) in [("execute_result", true), ("display_data", false)] {
            let frames = demux.published(&message(kind, json!({ "data": { "text/plain": "x" } })));
            let data = Map::from_iter([("text/plain".to_owned(), json!("x"))]);
            assert_eq!(frames, [Frame::Shown(Shown { main, data })]);
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
                Frame::Text(Stream::Stdout, text) => Some(text.clone()),
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
    fn a_failure_is_told_once_and_without_colours() {
        let mut demux = running();
        let failure = json!({
            "status": "error", "ename": "E", "evalue": "\u{1b}[31mv\u{1b}[0m",
            "traceback": ["\u{1b}[1;32ma\u{1b}[m\n", "b\u{1b}[K", 5],
        });
        let expected =
            ExecutionError { name: "E".into(), value: "v".into(), traceback: "a\nb\u{1b}[K".into() };
        let (reply, done) = (message("execute_reply", failure.clone()), Frame::Done { leaving: false });
        assert_eq!(demux.replied(&reply), [], "a reply can overtake what was published");
        assert_eq!(demux.published(&message("error", failure)), [Frame::Failed(expected.clone())]);
        assert_eq!(demux.published(&idle()), std::slice::from_ref(&done));
        // A kernel that only replies has failed as well.
        let mut demux = running();
        demux.published(&idle());
        assert_eq!(demux.replied(&reply), [Frame::Failed(expected), done]);
    }

    #[test]
    fn code_that_was_not_run_and_questions_are_failures() {
        let name = |frames: Vec<Frame>| match &frames[..] {
            [Frame::Failed(error), ..] => error.name.clone(),
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
    fn an_idle_word_that_does_not_come_is_not_waited_for_for_ever() {
        let mut demux = running();
        assert!(!demux.is_nearly_done());
        demux.replied(&reply());
        assert!(demux.is_nearly_done());
        assert_eq!(demux.stop_waiting(), [Frame::Started(7), Frame::Done { leaving: false }]);
        assert_eq!(demux.stop_waiting(), []);
        assert_eq!(demux.published(&idle()), []);
    }

    #[test]
    fn messages_of_others_are_not_heard() {
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
        /// Whatever a kernel says, in whatever order: one start and one failure at most, and nothing after the end, which
        /// comes exactly when reply and idle have.
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
                failures += frames.iter().filter(|frame| matches!(frame, Frame::Failed(_))).count();
                let done = frames.iter().filter(|frame| matches!(frame, Frame::Done { .. })).count();
                prop_assert_eq!(done == 1, idle && replied && !ended);
                ended |= done == 1;
            }
            prop_assert!(starts <= 1 && failures <= 1);
        }
    }
}
