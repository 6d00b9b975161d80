//! Checks of XML: whether an answer is some, or has some, and has the elements that are asked for.

use serde_json::{Value, json};

use crate::grading::{Grader, GradingContext};
use crate::model::{GradingResult, Object};

pub const GRADERS: &[(&str, Grader)] =
    &[("is-xml", Grader::Pure(is_xml)), ("contains-xml", Grader::Pure(contains_xml))];

/// Elements deeper than this are read as text.
const MAX_DEPTH: usize = 500;

/// Returns the paths of elements that an answer must have.
fn required(cx: &GradingContext<'_>) -> Vec<String> {
    match cx.value {
        Some(Value::Object(map)) => super::text::list(map.get("requiredElements")),
        other => super::text::list(other),
    }
}

fn is_xml(cx: &GradingContext<'_>) -> GradingResult {
    let text = cx.output_text.trim();
    let required = required(cx);
    let problem = match roxmltree::Document::parse(text) {
        Err(error) => Some(format!("XML parsing error: {error}")),
        Ok(_) => match missing(&tree(text), &required) {
            missing if missing.is_empty() => None,
            missing => Some(format!("XML is missing required elements: {}", missing.join(", "))),
        },
    };
    GradingResult::of(cx.assertion, problem.is_none(), || {
        problem.unwrap_or_else(|| "XML is valid, expected it not to be".to_owned())
    })
}

fn contains_xml(cx: &GradingContext<'_>) -> GradingResult {
    let required = required(cx);
    let found = candidates(cx.output_text);
    let mut seen: Vec<&Span> = Vec::new();
    let mut holds = false;
    for span in &found {
        // What is part of elements that lack something is no element of its own.
        if seen.iter().any(|outer| outer.start <= span.start && span.end <= outer.end) {
            continue;
        }
        if missing(&tree(&cx.output_text[span.start..span.end]), &required).is_empty() {
            holds = true;
            break;
        }
        seen.push(span);
    }
    GradingResult::of(cx.assertion, holds, || {
        let what = if cx.assertion.negated {
            "XML is valid and contains all required elements, expected it not to"
        } else if found.is_empty() {
            "No XML content found in the output"
        } else {
            "No valid XML content found matching the requirements"
        };
        what.to_owned()
    })
}

/// Returns the paths that lead nowhere. A step is the name of an element, `@_name` for an attribute, or the number of an element among
/// those of its name.
fn missing<'r>(tree: &Value, required: &'r [String]) -> Vec<&'r str> {
    let has = |path: &str| {
        let mut at = tree;
        for step in path.split('.') {
            let next = match at {
                Value::Object(map) => map.get(step),
                Value::Array(items) => step
                    .parse::<usize>()
                    .ok()
                    .filter(|at| at.to_string() == step)
                    .and_then(|at| items.get(at)),
                _ => None,
            };
            let Some(next) = next else { return false };
            at = next;
        }
        true
    };
    required.iter().map(String::as_str).filter(|path| !has(path)).collect()
}

/// A tag, by the bytes where it begins and ends.
struct Tag<'t> {
    kind: Kind,
    name: &'t str,
    start: usize,
    end: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Opening,
    Closing,
    Empty,
    /// A comment, CDATA, a declaration or an instruction.
    Other,
}

/// Reads the tag that begins at a byte with `<`; nothing if there is none.
fn tag(text: &str, start: usize) -> Option<Tag<'_>> {
    let rest = &text[start..];
    let whole = |kind, name, length: usize| Some(Tag { kind, name, start, end: start + length });
    for (open, close) in [("<!--", "-->"), ("<![CDATA[", "]]>"), ("<?", "?>")] {
        if let Some(body) = rest.strip_prefix(open) {
            let length = body.find(close).map_or(rest.len(), |at| open.len() + at + close.len());
            return whole(Kind::Other, "", length);
        }
    }
    if rest.starts_with("<!") {
        return whole(Kind::Other, "", declaration(rest));
    }
    let (kind, after) = match rest.strip_prefix("</") {
        Some(after) => (Kind::Closing, after),
        None => (Kind::Opening, &rest[1..]),
    };
    let length = after.find(|c: char| !is_name(c)).unwrap_or(after.len());
    let name = &after[..length];
    if !name.starts_with(|c: char| c.is_alphabetic() || c == '_' || c == ':') {
        return None;
    }
    let mut quote = None;
    for (at, c) in rest.char_indices().skip(1) {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '"' | '\'') => quote = Some(c),
            (None, '<') => return None,
            (None, '>') => {
                let empty = kind == Kind::Opening && rest[..at].trim_end().ends_with('/');
                return whole(if empty { Kind::Empty } else { kind }, name, at + 1);
            }
            _ => {}
        }
    }
    None
}

/// The length of a declaration such as `<!DOCTYPE …>`, which may have one in brackets.
fn declaration(rest: &str) -> usize {
    let (mut quote, mut depth) = (None, 0usize);
    for (at, c) in rest.char_indices().skip(2) {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '"' | '\'') => quote = Some(c),
            (None, '[') => depth += 1,
            (None, ']') => depth = depth.saturating_sub(1),
            (None, '>') if depth == 0 => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | ':')
}

/// All tags of a text.
fn tags(text: &str) -> impl Iterator<Item = Tag<'_>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        while let Some(start) = text[at..].find('<').map(|found| at + found) {
            match tag(text, start) {
                Some(tag) => {
                    at = tag.end;
                    return Some(tag);
                }
                None => at = start + 1,
            }
        }
        None
    })
}

/// The bytes of an element, and where the element around it begins.
#[derive(Debug, Clone, PartialEq)]
struct Span {
    start: usize,
    end: usize,
    parent: Option<usize>,
}

/// Returns the elements of a text that are in no other one: all of them as one piece if there are several, then each.
fn candidates(text: &str) -> Vec<Span> {
    let mut open: Vec<(&str, usize)> = Vec::new();
    let mut all: Vec<Span> = Vec::new();
    for tag in tags(text) {
        let parent = |open: &[(&str, usize)]| open.last().map(|(_, start)| *start);
        match tag.kind {
            Kind::Opening => open.push((tag.name, tag.start)),
            Kind::Empty => all.push(Span { start: tag.start, end: tag.end, parent: parent(&open) }),
            Kind::Closing => match open.last().copied() {
                Some((name, start)) if name == tag.name => {
                    open.pop();
                    all.push(Span { start, end: tag.end, parent: parent(&open) });
                }
                _ => open.clear(),
            },
            Kind::Other => {}
        }
    }
    let starts: std::collections::HashSet<usize> = all.iter().map(|span| span.start).collect();
    let mut outer: Vec<Span> =
        all.into_iter().filter(|span| span.parent.is_none_or(|parent| !starts.contains(&parent))).collect();
    // Siblings of an element that is never closed are one piece too.
    let mut pieces: indexmap::IndexMap<Option<usize>, (usize, usize, usize)> = indexmap::IndexMap::new();
    for span in &outer {
        let piece = pieces.entry(span.parent).or_insert((span.start, span.end, 0));
        *piece = (piece.0.min(span.start), piece.1.max(span.end), piece.2 + 1);
    }
    outer.sort_by_key(|span| (span.start, std::cmp::Reverse(span.end)));
    let several = pieces.into_iter().filter(|(_, (_, _, count))| *count > 1);
    several.map(|(parent, (start, end, _))| Span { start, end, parent }).chain(outer).collect()
}

/// The elements of a text as values: text alone is text, elements of one name are a list, attributes have names with `@_`.
fn tree(text: &str) -> Value {
    let mut open = vec![("", Element::default())];
    let mut at = 0;
    for tag in tags(text) {
        let own = &text[at..tag.start];
        if let Some((_, element)) = open.last_mut() {
            element.text.push_str(own.trim());
        }
        at = tag.end;
        match tag.kind {
            Kind::Opening if open.len() < MAX_DEPTH => open.push((tag.name, Element::of(text, &tag))),
            Kind::Empty => {
                let value = Element::of(text, &tag).into_value();
                if let Some((_, parent)) = open.last_mut() {
                    parent.add(tag.name, value);
                }
            }
            Kind::Closing if open.len() > 1 && open.last().is_some_and(|(name, _)| *name == tag.name) => {
                if let Some((name, element)) = open.pop()
                    && let Some((_, parent)) = open.last_mut()
                {
                    parent.add(name, element.into_value());
                }
            }
            Kind::Other if text[tag.start..].starts_with("<![CDATA[") => {
                if let Some((_, element)) = open.last_mut() {
                    element.text.push_str("CDATA");
                }
            }
            _ => {}
        }
    }
    Value::Object(open.swap_remove(0).1.parts)
}

#[derive(Default)]
struct Element {
    parts: Object,
    text: String,
}

impl Element {
    /// An element with the attributes of its tag.
    fn of(text: &str, tag: &Tag<'_>) -> Self {
        let mut element = Self::default();
        let mut rest = &text[tag.start + 1 + tag.name.len()..tag.end - 1];
        loop {
            rest = rest.trim_start_matches(|c: char| c.is_whitespace() || c == '/' || c == '=');
            let length = rest.find(|c: char| c.is_whitespace() || "=/".contains(c)).unwrap_or(rest.len());
            if length == 0 {
                return element;
            }
            element.parts.insert(format!("@_{}", &rest[..length]), json!(""));
            rest = rest[length..].trim_start();
            if let Some(value) = rest.strip_prefix('=').map(str::trim_start) {
                let quote = value.chars().next().filter(|c| matches!(c, '"' | '\''));
                let end = quote.and_then(|quote| value[1..].find(quote)).map(|end| end + 2);
                rest = end.map_or(value, |end| &value[end..]);
            }
        }
    }

    fn add(&mut self, name: &str, value: Value) {
        match self.parts.get_mut(name) {
            Some(Value::Array(items)) => items.push(value),
            Some(first) => *first = Value::Array(vec![first.take(), value]),
            None => drop(self.parts.insert(name.to_owned(), value)),
        }
    }

    fn into_value(mut self) -> Value {
        if self.parts.is_empty() {
            return Value::String(self.text);
        }
        if !self.text.is_empty() {
            self.parts.insert("#text".to_owned(), Value::String(self.text));
        }
        Value::Object(self.parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has(text: &str, paths: &[&str]) -> bool {
        let paths: Vec<String> = paths.iter().map(|path| (*path).to_owned()).collect();
        missing(&tree(text), &paths).is_empty()
    }

    #[test]
    fn elements_are_found_by_their_paths() {
        let text = "<?xml version=\"1.0\"?><r a='1' b><item><n>1</n></item><item/>text<!-- <no/> --></r>";
        let found = tree(text);
        let expected = json!({"r": {"@_a": "", "@_b": "", "item": [{"n": "1"}, ""], "#text": "text"}});
        assert_eq!(found, expected);
        assert!(has(text, &["r", "r.item", "r.item.0.n", "r.item.1", "r.@_a"]));
        let text = "<root><item/><item>x</item></root>";
        assert!(has(text, &["root.item.1"]) && !has(text, &["root.item.1", "root.none"]));
        for path in ["r.item.n", "r.item.01", "r.item.2", "r.no", "x", "r.item.0.n.1"] {
            assert!(!has(text, &[path]), "{path}");
        }
    }

    #[test]
    fn several_roots_are_one_piece_first() {
        let spans = |text: &'static str| -> Vec<&str> {
            candidates(text).into_iter().map(|span| &text[span.start..span.end]).collect()
        };
        assert_eq!(spans("say <a><b/></a> & done"), ["<a><b/></a>"]);
        assert_eq!(spans("<a>1</a> and <a>2</a>"), ["<a>1</a> and <a>2</a>", "<a>1</a>", "<a>2</a>"]);
        assert_eq!(spans("1 < 2 and <p>x"), Vec::<&str>::new());
        assert_eq!(spans("<open><a/><b/>"), ["<a/><b/>", "<a/>", "<b/>"]);
        assert_eq!(spans("<a t='>'>x</a></b>"), ["<a t='>'>x</a>"]);
    }

    #[test]
    fn anything_can_be_read() {
        for text in
            ["<", "<a", "<a =", "<a/", "</a>", "<![CDATA[", "<!x[", "<é>ü</é>", "<a b=\"<\">", "<a b=é/>"]
        {
            tree(text);
            candidates(text);
        }
        let deep = "<a>".repeat(5000) + &"</a>".repeat(5000);
        assert!(has(&deep, &["a"]));
    }
}
