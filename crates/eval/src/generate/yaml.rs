//! YAML for people: texts without quotes where that is safe, and lines below each other.

use serde_json::Value;

use crate::model::Object;

/// Returns the items of a list, each at this column.
pub fn list(items: &[Value], column: usize) -> String {
    let mut out = String::new();
    write_list(items, column, &mut out);
    out
}

/// Returns a map with one key, whose value is a list.
pub fn of_list(key: &str, items: &[Value]) -> String {
    if items.is_empty() { format!("{key}: []\n") } else { format!("{key}:\n{}", list(items, 2)) }
}

fn write_list(items: &[Value], column: usize, out: &mut String) {
    for item in items {
        out.push_str(&format!("{:column$}-", ""));
        match item {
            Value::Object(map) if !map.is_empty() => {
                out.push(' ');
                write_map(map, column + 2, true, out);
            }
            other => write_value(other, column, out),
        }
    }
}

fn write_map(map: &Object, column: usize, after_dash: bool, out: &mut String) {
    for (at, (key, value)) in map.iter().enumerate() {
        if at > 0 || !after_dash {
            out.push_str(&format!("{:column$}", ""));
        }
        out.push_str(&scalar(key));
        out.push(':');
        write_value(value, column, out);
    }
}

/// Writes the value after a key or a dash.
fn write_value(value: &Value, column: usize, out: &mut String) {
    let inner = column + 2;
    match value {
        Value::Object(map) if !map.is_empty() => {
            out.push('\n');
            write_map(map, inner, false, out);
        }
        Value::Array(items) if !items.is_empty() => {
            out.push('\n');
            write_list(items, inner, out);
        }
        Value::String(text) if is_block(text) => {
            out.push_str(if text.ends_with('\n') { " |\n" } else { " |-\n" });
            for line in text.lines() {
                match line {
                    "" => out.push('\n'),
                    line => out.push_str(&format!("{:inner$}{line}\n", "")),
                }
            }
        }
        Value::String(text) => out.push_str(&format!(" {}\n", scalar(text))),
        // Scalars of JSON are scalars of YAML.
        other => out.push_str(&format!(" {other}\n")),
    }
}

/// Whether a text can be written line by line.
fn is_block(text: &str) -> bool {
    let plain = text.chars().all(|c| c == '\n' || c == '\t' || !c.is_control());
    let begins = text.starts_with(|c: char| !c.is_whitespace());
    text.trim_end_matches('\n').contains('\n') && plain && begins && !text.ends_with("\n\n")
}

/// A text on one line, in quotes unless it can be taken for nothing else.
fn scalar(text: &str) -> String {
    const WORDS: [&str; 9] = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"];
    let begins = text.starts_with(|c: char| c.is_alphabetic());
    let plain = text.chars().all(|c| c.is_alphanumeric() || " _-.,;!?'()/+".contains(c));
    let is_word = WORDS.contains(&text.to_lowercase().as_str());
    if begins && plain && !is_word && !text.ends_with(' ') {
        text.to_owned()
    } else {
        Value::String(text.to_owned()).to_string()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;

    use super::*;
    use crate::reading::node::Node;

    #[test]
    fn lists_are_read_again() {
        let items = json!([
            {"vars": {"a": "x", "b": "yes", "c": " y", "d": "a: b", "é": "# no", "e": "", "f": "- z", "g": "1", "h": "~"}},
            {"type": "python", "value": "import re\n\nif x:\n    return {'pass': True}\nreturn 1"},
            {"keep": "one\ntwo\n", "more": "one\n\n\n", "indented": "  one\ntwo", "tab": "a\tb\nc", "return": "a\r\nb"},
            "text", 1, null, [], {}, [[1, 2], ["x\ny"]],
        ]);
        let text = of_list("tests", items.as_array().unwrap());
        let node =
            Node::parse(&text, &Path::new("x").into()).unwrap_or_else(|error| panic!("{error}\n{text}"));
        assert_eq!(node.to_value(), json!({"tests": items}), "{text}");
    }

    #[test]
    fn texts_are_easy_to_read() {
        let text = of_list(
            "assert",
            &[json!({"type": "python", "value": "n = 1\nreturn n", "metric": "Is it so?"})],
        );
        assert_eq!(
            text,
            "assert:\n  - type: python\n    value: |-\n      n = 1\n      return n\n    metric: Is it so?\n"
        );
    }
}
