//! JSON of kernels that goes beyond what this process reads: numbers beyond 64-bit floats, and nesting beyond 128 levels.

use std::collections::BTreeMap;

use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// Number of levels of objects of which members are left out: a message, its bundle, and the representations in it.
const LEVELS: usize = 3;

/// Reads JSON. What cannot be read is left out if it is a member of an object near the top: a value keeps its other representations.
pub(crate) fn readable(text: &[u8]) -> Option<Value> {
    part(std::str::from_utf8(text).ok()?, LEVELS)
}

fn part(text: &str, levels: usize) -> Option<Value> {
    if let Ok(value) = serde_json::from_str(text) {
        return Some(value);
    }
    let members: BTreeMap<String, &RawValue> = serde_json::from_str(text).ok().filter(|_| levels > 0)?;
    let read = members.into_iter().filter_map(|(name, member)| Some((name, part(member.get(), levels - 1)?)));
    Some(Value::Object(read.collect::<Map<_, _>>()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_cannot_be_read_is_left_out() {
        let deep = format!("{}1{}", "[".repeat(200), "]".repeat(200));
        let huge = "9".repeat(400);
        let text = format!(
            r#"{{"main":true,"data":{{"text/plain":"x","json":{deep},"html":"<p>","data":{{"n":[{huge}]}}}}}}"#
        );
        let read = readable(text.as_bytes()).unwrap();
        assert_eq!(read, json!({"main": true, "data": {"text/plain": "x", "html": "<p>", "data": {}}}));
        assert_eq!(readable(br#"{"a":[1,{"b":2.5}]}"#), Some(json!({"a": [1, {"b": 2.5}]})));
        for bad in [&b"{"[..], b"", b"[1e999]", b"\xff", br#"{"a":1}x"#] {
            assert_eq!(readable(bad), None, "{}", String::from_utf8_lossy(bad));
        }
    }
}
