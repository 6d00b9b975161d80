//! OTLP: the spans of an export request, in JSON or protobuf.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value};
use prost::Message;
use serde_json::{Value, json};

use super::Span;
use crate::model::Object;

/// Names of the kinds of spans, by their number.
const KINDS: [&str; 6] = ["unspecified", "internal", "server", "client", "producer", "consumer"];

/// A span with the id of its trace.
pub type OfTrace = (String, Span);

/// Adds what is known of the scope and the kind to the attributes of a span.
fn describe(attributes: &mut Object, scope: (Value, Value), kind: Option<i64>) {
    let name = kind.and_then(|kind| usize::try_from(kind).ok()).and_then(|kind| KINDS.get(kind));
    let more = [
        ("otel.scope.name", scope.0),
        ("otel.scope.version", scope.1),
        ("otel.span.kind", json!(name.unwrap_or(&KINDS[0]))),
        ("otel.span.kind_code", json!(kind)),
    ];
    attributes.extend(more.into_iter().filter(|(_, v)| !v.is_null()).map(|(name, v)| (name.to_owned(), v)));
}

/// Reads a request in protobuf.
///
/// # Errors
/// When it is malformed.
pub fn from_protobuf(body: &[u8]) -> Result<Vec<OfTrace>, prost::DecodeError> {
    let request = ExportTraceServiceRequest::decode(body)?;
    let mut found = Vec::new();
    for resource in request.resource_spans {
        let shared = attributes(resource.resource.map(|resource| resource.attributes).unwrap_or_default());
        for scope in resource.scope_spans {
            let about = scope
                .scope
                .map_or((Value::Null, Value::Null), |scope| (json!(scope.name), json!(scope.version)));
            for span in scope.spans {
                let mut all = shared.clone();
                all.extend(attributes(span.attributes));
                describe(&mut all, about.clone(), Some(i64::from(span.kind)));
                let status = span.status;
                let one = Span {
                    span_id: hex(&span.span_id),
                    parent_span_id: Some(hex(&span.parent_span_id)).filter(|id| !id.is_empty()),
                    name: span.name,
                    start_time: span.start_time_unix_nano as f64 / 1e6,
                    end_time: Some(span.end_time_unix_nano as f64 / 1e6),
                    attributes: all,
                    status_code: status.as_ref().map(|status| i64::from(status.code)),
                    status_message: status.map(|status| status.message),
                };
                found.push((hex(&span.trace_id), one));
            }
        }
    }
    Ok(found)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn attributes(pairs: Vec<KeyValue>) -> Object {
    let read = |pair: KeyValue| Some((pair.key, value_of(pair.value)?));
    pairs.into_iter().filter_map(read).collect()
}

fn value_of(value: Option<AnyValue>) -> Option<Value> {
    Some(match value?.value? {
        any_value::Value::StringValue(text) => json!(text),
        any_value::Value::BoolValue(truth) => json!(truth),
        any_value::Value::IntValue(number) => json!(number),
        any_value::Value::DoubleValue(number) => json!(number),
        any_value::Value::BytesValue(bytes) => json!(STANDARD.encode(bytes)),
        any_value::Value::ArrayValue(list) => {
            list.values.into_iter().map(|item| value_of(Some(item)).unwrap_or_default()).collect()
        }
        any_value::Value::KvlistValue(list) => Value::Object(attributes(list.values)),
        any_value::Value::StringValueStrindex(_) => return None,
    })
}

/// Reads a request in JSON. Parts that are not there count as empty.
pub fn from_json(body: &Value) -> Vec<OfTrace> {
    let mut found = Vec::new();
    for resource in items(body, "resourceSpans") {
        let shared = json_attributes(resource.get("resource"));
        for scope in items(resource, "scopeSpans") {
            let about = |key: &str| scope.pointer(&format!("/scope/{key}")).cloned().unwrap_or_default();
            for span in items(scope, "spans") {
                let text = |key: &str| span.get(key).and_then(Value::as_str).unwrap_or_default();
                let mut all = shared.clone();
                all.extend(json_attributes(Some(span)));
                describe(
                    &mut all,
                    (about("name"), about("version")),
                    span.get("kind").and_then(Value::as_i64),
                );
                let one = Span {
                    span_id: id(text("spanId"), 16),
                    parent_span_id: Some(id(text("parentSpanId"), 16)).filter(|id| !id.is_empty()),
                    name: text("name").to_owned(),
                    start_time: span.get("startTimeUnixNano").and_then(milliseconds).unwrap_or_default(),
                    end_time: span.get("endTimeUnixNano").and_then(milliseconds),
                    attributes: all,
                    status_code: span.pointer("/status/code").and_then(Value::as_i64),
                    status_message: span
                        .pointer("/status/message")
                        .and_then(Value::as_str)
                        .map(str::to_owned),
                };
                found.push((id(text("traceId"), 32), one));
            }
        }
    }
    found
}

fn items<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn json_attributes(holder: Option<&Value>) -> Object {
    let pairs = holder.map_or(&[][..], |holder| items(holder, "attributes"));
    let read = |pair: &Value| Some((pair.get("key")?.as_str()?.to_owned(), json_value(pair.get("value")?)?));
    pairs.iter().filter_map(read).collect()
}

fn json_value(value: &Value) -> Option<Value> {
    let (kind, given) = value.as_object()?.iter().next()?;
    match kind.as_str() {
        // Exporters write 64 bits as text.
        "intValue" => Some(
            given
                .as_str()
                .and_then(|text| text.parse::<i64>().ok())
                .map_or_else(|| given.clone(), |n| json!(n)),
        ),
        "stringValue" | "doubleValue" | "boolValue" | "bytesValue" => Some(given.clone()),
        "arrayValue" => {
            Some(items(given, "values").iter().map(|item| json_value(item).unwrap_or_default()).collect())
        }
        "kvlistValue" => {
            let read =
                |pair: &Value| Some((pair.get("key")?.as_str()?.to_owned(), json_value(pair.get("value")?)?));
            Some(Value::Object(items(given, "values").iter().filter_map(read).collect()))
        }
        _ => None,
    }
}

/// Returns milliseconds of nanoseconds that are a number, or a number as text.
fn milliseconds(value: &Value) -> Option<f64> {
    let nanos = value.as_f64().or_else(|| value.as_str()?.parse().ok())?;
    Some(nanos / 1e6)
}

/// Returns an id in hexadecimal, which JSON has in hexadecimal or, from some exporters, in base64.
fn id(text: &str, length: usize) -> String {
    let is_hex = |text: &str| text.len() == length && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_hex(text) {
        return text.to_lowercase();
    }
    let Ok(bytes) = STANDARD.decode(text) else { return text.to_lowercase() };
    match std::str::from_utf8(&bytes) {
        Ok(text) if is_hex(text) => text.to_lowercase(),
        _ if bytes.len() * 2 == length => hex(&bytes),
        _ => text.to_lowercase(),
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span as ProtoSpan};

    use super::*;

    #[test]
    fn json_and_protobuf_give_the_same_span() {
        let attribute = |key: &str, value| KeyValue {
            key: key.to_owned(),
            value: Some(AnyValue { value: Some(value) }),
            ..KeyValue::default()
        };
        let span = ProtoSpan {
            trace_id: vec![0xab; 16],
            span_id: vec![1; 8],
            name: "work".to_owned(),
            kind: 1,
            start_time_unix_nano: 2_000_000,
            end_time_unix_nano: 5_000_000,
            attributes: vec![attribute("n", any_value::Value::IntValue(3))],
            ..ProtoSpan::default()
        };
        let scope_spans = vec![ScopeSpans { spans: vec![span], ..ScopeSpans::default() }];
        let request = ExportTraceServiceRequest {
            resource_spans: vec![ResourceSpans { scope_spans, ..ResourceSpans::default() }],
        };
        let written = json!({"resourceSpans": [{"scopeSpans": [{"spans": [{
            "traceId": "ab".repeat(16), "spanId": "01".repeat(8), "name": "work", "kind": 1,
            "startTimeUnixNano": "2000000", "endTimeUnixNano": 5_000_000,
            "attributes": [{"key": "n", "value": {"intValue": "3"}}],
        }]}]}]});
        let found = from_json(&written);
        assert_eq!(found, from_protobuf(&request.encode_to_vec()).unwrap());
        assert_eq!(found[0].0, "ab".repeat(16));
        assert_eq!((found[0].1.start_time, found[0].1.end_time), (2.0, Some(5.0)));
        assert_eq!(
            Value::Object(found[0].1.attributes.clone()),
            json!({"n": 3, "otel.span.kind": "internal", "otel.span.kind_code": 1})
        );
    }

    #[test]
    fn ids_may_be_base64() {
        assert_eq!(id(&STANDARD.encode([0xcd; 8]), 16), "cd".repeat(8));
        assert_eq!(id(&STANDARD.encode("ab".repeat(16)), 32), "ab".repeat(16));
        assert_eq!(id("AB12", 16), "ab12");
    }

    #[test]
    fn anything_else_has_no_spans() {
        assert_eq!(from_json(&json!({"resourceSpans": [{"scopeSpans": 1}, 2]})), []);
        assert!(from_protobuf(b"\xff\xff").is_err());
    }
}
