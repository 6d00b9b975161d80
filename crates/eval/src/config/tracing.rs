//! The section `tracing`, checked.

use crate::reading::diagnostic::{Findings, Severity};
use crate::reading::node::Node;
use crate::reading::schema::{check_keys, wrong_shape};
use crate::traces::TraceSettings;

const KEYS: &[&str] =
    &["enabled", "failOnReceiverStartFailure", "commandToolNames", "otlp", "storage", "forwarding"];
const HTTP: &[&str] = &["enabled", "port", "host", "acceptFormats", "redactAttributes"];

/// Reports what is wrong in the section, and what is not supported.
pub fn check(section: &Node, findings: &mut Findings) {
    if !section.is_map() {
        return wrong_shape(section, "`tracing`", "a map", findings);
    }
    check_keys(section, KEYS, "`tracing`", findings);
    let is_on = |node: &Node| node.get("enabled").is_some_and(|on| on.to_value() == true);
    for (key, hint) in [
        ("otlp.grpc", "send spans to `otlp.http`, which exporters call `http/protobuf` or `http/json`"),
        ("forwarding", "have the program export its spans to both places"),
    ] {
        let node = key.split('.').try_fold(section, |node, key| node.get(key));
        if let Some(node) = node.filter(|node| is_on(node)) {
            findings.hint(Severity::Error, Some(&node.at), format!("`tracing.{key}` is not supported"), hint);
        }
    }
    let Some(http) = section.get("otlp").and_then(|otlp| otlp.get("http")).filter(|http| !http.is_null())
    else {
        return;
    };
    check_keys(http, HTTP, "`tracing.otlp.http`", findings);
    if let Some(port) = http.get("port")
        && crate::traces::port_of(&port.to_value()).is_none()
    {
        wrong_shape(port, "`tracing.otlp.http.port`", "a port", findings);
    }
    for format in http.get("acceptFormats").and_then(Node::items).unwrap_or_default() {
        if !matches!(format.text(), Some("json" | "protobuf")) {
            wrong_shape(format, "a format of `acceptFormats`", "`json` or `protobuf`", findings);
        }
    }
}

/// Returns the settings of all configurations together.
pub fn settings(raw: &crate::model::Object) -> TraceSettings {
    raw.get("tracing").map_or_else(TraceSettings::default, TraceSettings::of)
}
