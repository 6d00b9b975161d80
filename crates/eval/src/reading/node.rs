//! YAML and JSON with the location of every value, read the way JavaScript's YAML reader reads it.

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Span, Tag};
use serde_json::{Number, Value};

use super::diagnostic::{Diagnostic, Position, Severity};
use crate::model::number;

/// A value and its location.
#[derive(Debug, Clone)]
pub struct Node {
    /// The value.
    pub kind: Kind,
    /// The location of the value.
    pub at: Position,
}

/// The shapes of values.
#[derive(Debug, Clone)]
pub enum Kind {
    /// null, true, 1, "text"
    Scalar(Value),
    /// A list.
    List(Vec<Node>),
    /// A map in written order.
    Map(Vec<Entry>),
}

/// One key of a map.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// The location of the key.
    pub at: Position,
    /// The value.
    pub value: Node,
}

/// Anchors may be used many times; beyond this many values a document is a trap, not a configuration.
const MAX_NODES: usize = 5_000_000;
const MAX_DEPTH: usize = 200;

impl Node {
    /// Makes a node of a value that has no text of its own; all of it is located at `at`.
    pub fn of(value: Value, at: Position) -> Self {
        let kind = match value {
            Value::Array(items) => {
                Kind::List(items.into_iter().map(|item| Self::of(item, at.clone())).collect())
            }
            Value::Object(map) => Kind::Map(
                map.into_iter()
                    .map(|(key, value)| Entry { key, at: at.clone(), value: Self::of(value, at.clone()) })
                    .collect(),
            ),
            scalar => Kind::Scalar(scalar),
        };
        Self { kind, at }
    }

    /// Parses a document. Several documents in one text are an error.
    ///
    /// # Errors
    /// When the text is not YAML, with the location.
    pub fn parse(text: &str, file: &Arc<Path>) -> Result<Self, Diagnostic> {
        match super::json::parse(text, file) {
            Some(node) => Ok(node),
            None => Self::parse_yaml(text, file),
        }
    }

    /// Parses a document as YAML, which JSON is.
    pub(super) fn parse_yaml(text: &str, file: &Arc<Path>) -> Result<Self, Diagnostic> {
        let mut reader =
            Reader { parser: Parser::new_from_str(text), file, anchors: HashMap::new(), nodes: 0 };
        reader.document()
    }

    /// Returns the value without its locations.
    pub fn to_value(&self) -> Value {
        match &self.kind {
            Kind::Scalar(value) => value.clone(),
            Kind::List(items) => Value::Array(items.iter().map(Self::to_value).collect()),
            Kind::Map(entries) => Value::Object(
                entries.iter().map(|entry| (entry.key.clone(), entry.value.to_value())).collect(),
            ),
        }
    }

    /// Turns the node into its value, as [`to_value`](Self::to_value) does without a copy.
    pub fn into_value(self) -> Value {
        match self.kind {
            Kind::Scalar(value) => value,
            Kind::List(items) => Value::Array(items.into_iter().map(Self::into_value).collect()),
            Kind::Map(entries) => Value::Object(
                entries.into_iter().map(|entry| (entry.key, entry.value.into_value())).collect(),
            ),
        }
    }

    /// Removes a key and returns its value.
    pub fn take(&mut self, key: &str) -> Option<Node> {
        let Kind::Map(entries) = &mut self.kind else { return None };
        let at = entries.iter().position(|entry| entry.key == key)?;
        Some(entries.remove(at).value)
    }

    /// Returns the value of a key.
    pub fn get(&self, key: &str) -> Option<&Node> {
        self.entries().iter().find(|entry| entry.key == key).map(|entry| &entry.value)
    }

    /// Returns the entries of a map; none for any other value.
    pub fn entries(&self) -> &[Entry] {
        match &self.kind {
            Kind::Map(entries) => entries,
            _ => &[],
        }
    }

    /// Returns the items of a list.
    pub fn items(&self) -> Option<&[Node]> {
        match &self.kind {
            Kind::List(items) => Some(items),
            _ => None,
        }
    }

    /// Returns the text of a string.
    pub fn text(&self) -> Option<&str> {
        match &self.kind {
            Kind::Scalar(Value::String(text)) => Some(text),
            _ => None,
        }
    }

    /// Whether the value is a map.
    pub fn is_map(&self) -> bool {
        matches!(self.kind, Kind::Map(_))
    }

    /// Whether the value is null.
    pub fn is_null(&self) -> bool {
        matches!(self.kind, Kind::Scalar(Value::Null))
    }

    /// Returns the name of the value's type, for messages.
    pub fn describe(&self) -> &'static str {
        match &self.kind {
            Kind::Scalar(Value::Null) => "nothing",
            Kind::Scalar(Value::Bool(_)) => "a boolean",
            Kind::Scalar(Value::Number(_)) => "a number",
            Kind::Scalar(_) => "text",
            Kind::List(_) => "a list",
            Kind::Map(_) => "a map",
        }
    }
}

struct Reader<'t, 'f> {
    parser: Parser<'t, saphyr_parser::StrInput<'t>>,
    file: &'f Arc<Path>,
    anchors: HashMap<usize, Node>,
    nodes: usize,
}

impl<'t> Reader<'t, '_> {
    fn document(&mut self) -> Result<Node, Diagnostic> {
        let mut root = None;
        loop {
            let (event, span) = self.next()?;
            match event {
                Event::StreamEnd => break,
                Event::StreamStart | Event::DocumentStart(_) | Event::DocumentEnd | Event::Nothing => {}
                _ if root.is_some() => return Err(self.wrong(span.start, "a second document begins here")),
                event => root = Some(self.node(event, span, 0)?),
            }
        }
        let start = Position { file: Arc::clone(self.file), line: 1, column: 1 };
        Ok(root.unwrap_or(Node { kind: Kind::Scalar(Value::Null), at: start }))
    }

    fn next(&mut self) -> Result<(Event<'t>, Span), Diagnostic> {
        match self.parser.next_event() {
            Some(Ok(next)) => Ok(next),
            Some(Err(error)) => Err(self.wrong(*error.marker(), error.info())),
            None => Ok((Event::StreamEnd, Span::empty(Marker::new(0, 1, 0)))),
        }
    }

    fn node(&mut self, event: Event<'t>, span: Span, depth: usize) -> Result<Node, Diagnostic> {
        let at = self.position(span.start);
        self.nodes += 1;
        if self.nodes > MAX_NODES || depth > MAX_DEPTH {
            return Err(self.wrong(span.start, "the document is too large or too deeply nested"));
        }
        let (kind, anchor) = match event {
            Event::Alias(anchor) => {
                let node = self.anchors.get(&anchor).cloned();
                let Some(node) = node else {
                    return Err(self.wrong(span.start, "unknown alias"));
                };
                self.nodes += count(&node);
                return Ok(node);
            }
            Event::Scalar(text, style, anchor, tag) => {
                (Kind::Scalar(scalar(text, style, tag.as_deref())), anchor)
            }
            Event::SequenceStart(anchor, _) => (self.list(depth)?, anchor),
            Event::MappingStart(anchor, _) => (self.map(depth)?, anchor),
            _ => return Err(self.wrong(span.start, "a value was expected here")),
        };
        let node = Node { kind, at };
        if anchor > 0 {
            self.anchors.insert(anchor, node.clone());
        }
        Ok(node)
    }

    fn list(&mut self, depth: usize) -> Result<Kind, Diagnostic> {
        let mut items = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, _) => return Ok(Kind::List(items)),
                (event, span) => items.push(self.node(event, span, depth + 1)?),
            }
        }
    }

    fn map(&mut self, depth: usize) -> Result<Kind, Diagnostic> {
        let mut entries: Vec<Entry> = Vec::new();
        let mut merged = Vec::new();
        loop {
            let (event, span) = match self.next()? {
                (Event::MappingEnd, _) => break,
                next => next,
            };
            let key = self.node(event, span, depth + 1)?;
            let (event, value_span) = self.next()?;
            let value = self.node(event, value_span, depth + 1)?;
            let text = match &key.kind {
                Kind::Scalar(Value::String(text)) => text.clone(),
                Kind::Scalar(other) => other.to_string(),
                _ => return Err(self.wrong(span.start, "a key must be text")),
            };
            if text == "<<" {
                merged.push(value);
            } else if entries.iter().any(|entry| entry.key == text) {
                return Err(self.wrong(span.start, &format!("duplicate key `{text}`")));
            } else {
                entries.push(Entry { key: text, at: key.at, value });
            }
        }
        for source in merged {
            let sources = match source.kind {
                Kind::List(items) => items,
                _ => vec![source],
            };
            for entry in sources.iter().flat_map(|source| source.entries()) {
                if !entries.iter().any(|own| own.key == entry.key) {
                    entries.push(entry.clone());
                }
            }
        }
        // Most maps are small, and there may be very many.
        entries.shrink_to_fit();
        Ok(Kind::Map(entries))
    }

    fn position(&self, marker: Marker) -> Position {
        Position { file: Arc::clone(self.file), line: marker.line(), column: marker.col() + 1 }
    }

    fn wrong(&self, marker: Marker, message: &str) -> Diagnostic {
        let hint = message
            .contains("simple key")
            .then(|| "put quotes around text that has a colon, and check the indentation".to_owned());
        Diagnostic {
            severity: Severity::Error,
            at: Some(self.position(marker)),
            message: message.to_owned(),
            hint,
        }
    }
}

fn count(node: &Node) -> usize {
    1 + match &node.kind {
        Kind::Scalar(_) => 0,
        Kind::List(items) => items.iter().map(count).sum(),
        Kind::Map(entries) => entries.iter().map(|entry| count(&entry.value)).sum(),
    }
}

/// Returns the value of a scalar: quoted text is text, the rest follows the core schema.
fn scalar(text: Cow<'_, str>, style: ScalarStyle, tag: Option<&Tag>) -> Value {
    if style != ScalarStyle::Plain || tag.is_some_and(|tag| tag.suffix == "str") {
        return Value::String(text.into_owned());
    }
    match &*text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "true" | "True" | "TRUE" => return Value::Bool(true),
        "false" | "False" | "FALSE" => return Value::Bool(false),
        _ => {}
    }
    plain_number(&text).map_or_else(|| Value::String(text.into_owned()), Value::Number)
}

pub(super) fn plain_number(text: &str) -> Option<Number> {
    let (sign, digits) = match text.as_bytes().first()? {
        b'-' => (-1.0, &text[1..]),
        b'+' => (1.0, &text[1..]),
        _ => (1.0, text),
    };
    if !digits.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return None;
    }
    for (prefix, radix) in [("0x", 16), ("0o", 8), ("0b", 2)] {
        if let Some(rest) = digits.strip_prefix(prefix) {
            return i64::from_str_radix(rest, radix).ok().map(|n| number(sign * n as f64));
        }
    }
    if digits.bytes().all(|b| b.is_ascii_digit()) {
        return text
            .trim_start_matches('+')
            .parse::<i64>()
            .ok()
            .map(Number::from)
            .or_else(|| text.parse::<f64>().ok().map(number));
    }
    let shaped = digits.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'-' | b'+'));
    if !shaped || !digits.contains(|c: char| c.is_ascii_digit()) {
        return None;
    }
    digits.parse::<f64>().ok().filter(|n| n.is_finite()).map(|n| number(sign * n))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse(text: &str) -> Result<Node, Diagnostic> {
        Node::parse(text, &Arc::from(Path::new("c.yaml")))
    }

    #[test]
    fn scalars_follow_the_core_schema() {
        let node = parse("[1, -2, 1.5, 1e3, 0x1f, '1', yes, true, ~, 1.0, 12abc, 1-2]").unwrap();
        assert_eq!(node.to_value(), json!([1, -2, 1.5, 1000, 31, "1", "yes", true, null, 1, "12abc", "1-2"]));
    }

    #[test]
    fn values_know_their_place() {
        let node = parse("a: 1\nb:\n  - x\n  - key: v\n").unwrap();
        let item = &node.get("b").unwrap().items().unwrap()[1];
        assert_eq!(item.at.to_string(), "c.yaml:4:5");
        assert_eq!(item.entries()[0].value.at.to_string(), "c.yaml:4:10");
    }

    #[test]
    fn anchors_and_merge_keys_work() {
        let node = parse("base: &b {x: 1, y: 2}\nuse: {<<: *b, y: 3}\n").unwrap();
        assert_eq!(node.to_value()["use"], json!({"y": 3, "x": 1}));
    }

    #[test]
    fn mistakes_have_a_place() {
        assert_eq!(parse("a: 1\na: 2\n").unwrap_err().to_string(), "c.yaml:2:1: error: duplicate key `a`");
        assert_eq!(parse("a: [1\nb: 2\n").unwrap_err().at.unwrap().line, 2);
    }
}
