//! Messages as JSON (contract: envd, section 1.1).

use serde::de::DeserializeOwned;
use serde_json::{Error, Value};

/// Floats up to here have exactly one integer each.
const MAX_WHOLE: f64 = 9e15;

/// Reads a message. Generated code reads the forms that clients write; the others of proto3 are put into these: `null` for what is not set, and
/// `1.0` for an integer.
///
/// # Errors
/// If the text is no such message.
pub(super) fn decode<M: DeserializeOwned>(text: &[u8]) -> Result<M, Error> {
    serde_json::from_slice(text).or_else(|error| match serde_json::from_slice(text) {
        Ok(value) if error.is_data() => serde_json::from_value(usual(value)).map_err(|_| error),
        _ => Err(error),
    })
}

fn usual(value: Value) -> Value {
    match value {
        Value::Object(members) => {
            let set = members.into_iter().filter(|(_, value)| !value.is_null());
            set.map(|(name, value)| (name, usual(value))).collect()
        }
        Value::Array(elements) => elements.into_iter().map(usual).collect(),
        Value::Number(number) => {
            let float = number
                .as_f64()
                .filter(|float| number.is_f64() && float.fract() == 0.0 && float.abs() < MAX_WHOLE);
            Value::Number(float.and_then(|float| format!("{float:.0}").parse().ok()).unwrap_or(number))
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use sandcove_wire::envd::filesystem::ListDirRequest;
    use sandcove_wire::envd::process::StartRequest;

    use super::*;

    #[test]
    fn null_is_what_is_not_set() {
        let start: StartRequest =
            decode(br#"{"process":{"cmd":"pwd","args":null,"envs":null,"cwd":null},"tag":null}"#).unwrap();
        let process = start.process.unwrap();
        assert_eq!((process.cmd.as_str(), process.args.len(), process.envs.len()), ("pwd", 0, 0));
        let list: ListDirRequest = decode(br#"{"path":"/home","depth":null}"#).unwrap();
        assert_eq!(list.depth, 0);
    }

    #[test]
    fn an_integer_may_be_written_as_a_float() {
        let depth = |text: &str| decode::<ListDirRequest>(format!(r#"{{"depth":{text}}}"#).as_bytes());
        assert_eq!(depth("1.0").unwrap().depth, 1);
        assert_eq!(depth("2e1").unwrap().depth, 20);
        assert!(depth("1.5").is_err() && depth("-1").is_err() && depth("1e300").is_err());
    }
}
