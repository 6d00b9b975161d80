//! The section `tracing` of a configuration.

use serde_json::Value;

/// The port of OTLP over HTTP.
const PORT: u16 = 4318;

/// How rows are traced.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TraceSettings {
    /// Whether all rows are traced, and not only those whose tests say so.
    pub all: bool,
    /// The host and the port of the receiver; nothing if there is none.
    pub address: Option<(String, u16)>,
    /// Whether the receiver takes JSON.
    pub json: bool,
    /// Whether the receiver takes protobuf.
    pub protobuf: bool,
    /// Texts in the names of attributes whose values are not kept, in lower case.
    pub redacted: Vec<String>,
    /// Names of tools that run commands, beside the known ones.
    pub command_tools: Vec<String>,
    /// Whether a run without a receiver, because its port is taken, goes on.
    pub optional: bool,
}

impl TraceSettings {
    /// Reads the section, in which values that are no settings were reported before.
    pub fn of(section: &Value) -> Self {
        let list = |value: Option<&Value>| {
            let items = value.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
            items.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty()).collect::<Vec<_>>()
        };
        let http = section.pointer("/otlp/http").filter(|http| !http.is_null());
        let http = http.filter(|http| http.get("enabled") != Some(&Value::Bool(false)));
        let get = |key: &str| http.and_then(|http| http.get(key));
        let host = get("host").and_then(Value::as_str).unwrap_or("127.0.0.1").to_owned();
        let formats = list(get("acceptFormats"));
        let takes = |format: &str| formats.is_empty() || formats.iter().any(|taken| taken == format);
        Self {
            all: section.get("enabled") == Some(&Value::Bool(true)),
            address: http.map(|http| (host, http.get("port").and_then(port_of).unwrap_or(PORT))),
            json: takes("json"),
            protobuf: takes("protobuf"),
            redacted: list(get("redactAttributes")).iter().map(|text| text.to_lowercase()).collect(),
            command_tools: list(section.get("commandToolNames")),
            optional: section.get("failOnReceiverStartFailure") == Some(&Value::Bool(false)),
        }
    }
}

/// Returns the port that a value stands for: a number, or one in a variable of the environment.
pub fn port_of(value: &Value) -> Option<u16> {
    match value {
        Value::String(text) => text.trim().parse().ok(),
        number => number.as_u64().and_then(|port| port.try_into().ok()),
    }
    .filter(|port| *port != 0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_section_says_where_spans_are_received() {
        let settings = TraceSettings::of(&json!({
            "enabled": true, "commandToolNames": ["bash"],
            "otlp": {"http": {"enabled": true, "port": "5318", "acceptFormats": ["json"], "redactAttributes": [" Secret "]}},
        }));
        assert!(settings.all && settings.json && !settings.protobuf && !settings.optional);
        assert_eq!(settings.address, Some(("127.0.0.1".to_owned(), 5318)));
        assert_eq!(
            (settings.redacted, settings.command_tools),
            (vec!["secret".to_owned()], vec!["bash".to_owned()])
        );
        assert_eq!(
            TraceSettings::of(&json!({"otlp": {"http": {}}})).address.map(|(_, port)| port),
            Some(4318)
        );
        assert_eq!(TraceSettings::of(&json!({"otlp": {"http": {"enabled": false}}})).address, None);
        assert_eq!(TraceSettings::of(&Value::Null).address, None);
    }
}
