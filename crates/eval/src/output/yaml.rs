//! The result document as YAML.

use serde_json::Value;

/// Every text in quotes, so that none is taken for something else.
pub fn text(value: &Value) -> String {
    let mut out = String::new();
    write(value, 0, &mut out);
    out
}

/// Returns an item of a list.
pub fn item(value: &Value, depth: usize) -> String {
    let mut out = format!("{}-", "  ".repeat(depth));
    nested(value, depth, &mut out);
    out
}

fn write(value: &Value, depth: usize, out: &mut String) {
    let pad = "  ".repeat(depth);
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (key, value) in map {
                let plain = key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
                    && key.starts_with(|c: char| c.is_ascii_alphabetic());
                let key = if plain { key.clone() } else { Value::String(key.clone()).to_string() };
                out.push_str(&format!("{pad}{key}:"));
                nested(value, depth, out);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for value in items {
                out.push_str(&item(value, depth));
            }
        }
        other => out.push_str(&format!("{pad}{other}\n")),
    }
}

fn nested(value: &Value, depth: usize, out: &mut String) {
    let empty = match value {
        Value::Object(map) => map.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => true,
    };
    if empty {
        // JSON scalars are YAML scalars.
        out.push_str(&format!(" {value}\n"));
    } else {
        out.push('\n');
        write(value, depth + 1, out);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let value = json!({"a": [1, "yes", {"b": null, "c d": "x\n: y"}, []], "e": {}});
        let node =
            crate::reading::node::Node::parse(&text(&value), &std::path::Path::new("x").into()).unwrap();
        assert_eq!(node.to_value(), value);
    }
}
