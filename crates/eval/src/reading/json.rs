//! JSON with the location of every value. The reader of YAML reads it as well, but keeps a whole document of JSON as tokens.

use std::borrow::Cow;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::{MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use super::diagnostic::Position;
use super::node::{Entry, Kind, Node, plain_number};

/// Deeper documents are left to the reader of YAML.
const MAX_DEPTH: usize = 64;

/// Parses a document. None if the text is not plain JSON; the YAML reader then parses it or reports the error with its location.
pub(super) fn parse(text: &str, file: &Arc<Path>) -> Option<Node> {
    if !text.trim_start().starts_with(['{', '[']) {
        return None;
    }
    let whole: &RawValue = serde_json::from_str(text).ok()?;
    Reader { text, file, offset: 0, line: 1, column: 1 }.node(whole.get(), 0)
}

/// Finds locations; they are asked for in the order of the text.
struct Reader<'t, 'f> {
    text: &'t str,
    file: &'f Arc<Path>,
    offset: usize,
    line: usize,
    column: usize,
}

impl<'t> Reader<'t, '_> {
    fn node(&mut self, raw: &'t str, depth: usize) -> Option<Node> {
        let at = self.position(raw);
        let kind = match raw.as_bytes().first()? {
            _ if depth > MAX_DEPTH => return None,
            b'{' => {
                let Pairs(pairs) = serde_json::from_str(raw).ok()?;
                let mut entries: Vec<Entry> = Vec::with_capacity(pairs.len());
                for (key, value) in pairs {
                    // The YAML reader merges `<<` and reports duplicate keys.
                    if key == "<<" || entries.iter().any(|entry| entry.key == key) {
                        return None;
                    }
                    let at = match &key {
                        // A key starts with its quote.
                        Cow::Borrowed(key) => self.position_at(self.offset_of(key) - 1),
                        Cow::Owned(_) => self.position(value),
                    };
                    entries.push(Entry { key: key.into_owned(), at, value: self.node(value, depth + 1)? });
                }
                Kind::Map(entries)
            }
            b'[' => {
                let items: Vec<&'t RawValue> = serde_json::from_str(raw).ok()?;
                Kind::List(
                    items
                        .into_iter()
                        .map(|item| self.node(item.get(), depth + 1))
                        .collect::<Option<Vec<Node>>>()?,
                )
            }
            b'"' => Kind::Scalar(Value::String(serde_json::from_str(raw).ok()?)),
            b'n' => Kind::Scalar(Value::Null),
            b't' | b'f' => Kind::Scalar(Value::Bool(raw == "true")),
            _ => Kind::Scalar(Value::Number(plain_number(raw)?)),
        };
        Some(Node { kind, at })
    }

    /// The location of a part of the text.
    fn position(&mut self, part: &'t str) -> Position {
        self.position_at(self.offset_of(part))
    }

    fn offset_of(&self, part: &str) -> usize {
        part.as_ptr() as usize - self.text.as_ptr() as usize
    }

    fn position_at(&mut self, offset: usize) -> Position {
        let passed = self.text.get(self.offset..offset).unwrap_or_default();
        for character in passed.chars() {
            match character {
                '\n' => (self.line, self.column) = (self.line + 1, 1),
                _ => self.column += 1,
            }
        }
        self.offset += passed.len();
        Position { file: Arc::clone(self.file), line: self.line, column: self.column }
    }
}

/// The entries of a map in written order, with all of those that have the same key.
struct Pairs<'t>(Vec<(Cow<'t, str>, &'t str)>);

/// A key that borrows from the text where it can.
#[derive(Deserialize)]
struct Key<'t>(#[serde(borrow)] Cow<'t, str>);

impl<'t> Deserialize<'t> for Pairs<'t> {
    fn deserialize<D: serde::Deserializer<'t>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;

        impl<'t> Visitor<'t> for InOrder {
            type Value = Pairs<'t>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map")
            }

            fn visit_map<A: MapAccess<'t>>(self, mut map: A) -> Result<Pairs<'t>, A::Error> {
                let mut pairs = Vec::new();
                while let Some(Key(key)) = map.next_key()? {
                    pairs.push((key, map.next_value::<&'t RawValue>()?.get()));
                }
                Ok(Pairs(pairs))
            }
        }

        deserializer.deserialize_map(InOrder)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(text: &str) -> Option<Node> {
        parse(text, &Arc::from(Path::new("c.json")))
    }

    #[test]
    fn json_is_what_the_reader_of_yaml_makes_of_it() {
        let text = "\n{\"a\": [1, -2.50, 1e3, 1.0, 123456789012345678901], \"é\": {\"b\\u0041\": null, \"c\": true},\n \"t\": \"x\\ny \u{1f600}\", \"e\": {}, \"l\": []}";
        let (node, yaml) =
            (read(text).unwrap(), Node::parse_yaml(text, &Arc::from(Path::new("c.json"))).unwrap());
        assert_eq!(node.to_value(), yaml.to_value());
        assert_eq!(node.to_value()["é"], json!({"bA": null, "c": true}));
        fn places(node: &Node, found: &mut Vec<String>) {
            found.push(node.at.to_string());
            node.items().unwrap_or_default().iter().for_each(|item| places(item, found));
            for entry in node.entries() {
                // A key with an escape has the location of its value.
                if entry.key != "bA" {
                    found.push(entry.at.to_string());
                }
                places(&entry.value, found);
            }
        }
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        places(&node, &mut ours);
        places(&yaml, &mut theirs);
        assert_eq!(ours, theirs);
    }

    #[test]
    fn the_reader_of_yaml_gets_what_is_not_only_json() {
        for text in
            ["{a: 1}", "[1, 2", "{\"a\": 1, \"a\": 2}", "{\"a\": {\"<<\": {}}}", "[1] # one", "text", "{} {}"]
        {
            assert!(read(text).is_none(), "{text}");
        }
        assert!(read(&format!("{}{}", "[".repeat(100), "]".repeat(100))).is_none());
    }
}
