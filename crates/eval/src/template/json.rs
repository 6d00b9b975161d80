//! JSON text as `JSON.stringify` writes it.

use serde::Serialize;
use serde_json::Value;
use serde_json::ser::{PrettyFormatter, Serializer};

/// Compact without an indent, else one value a line.
pub fn stringify(value: &Value, indent: &str) -> String {
    if indent.is_empty() {
        return value.to_string();
    }
    let mut out = Vec::new();
    let mut serializer =
        Serializer::with_formatter(&mut out, PrettyFormatter::with_indent(indent.as_bytes()));
    match value.serialize(&mut serializer) {
        Ok(()) => String::from_utf8(out).unwrap_or_default(),
        Err(_) => String::new(),
    }
}
