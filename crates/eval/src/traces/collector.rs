//! The spans that have arrived for the rows in work.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::{Span, Trace, TraceSettings};
use crate::reading::Env;

/// The most spans of a trace that are kept.
const MAX_SPANS: usize = 10_000;

/// Spans by the trace of their row. Spans of other traces are not kept.
#[derive(Debug, Default)]
pub struct Collector {
    traces: Mutex<HashMap<String, Vec<Span>>>,
    /// Texts in the names of attributes whose values are not kept.
    redacted: Vec<String>,
}

impl Collector {
    /// A collector without traces.
    pub fn new(settings: &TraceSettings) -> Arc<Self> {
        Arc::new(Self { redacted: settings.redacted.clone(), ..Self::default() })
    }

    /// Begins the trace of a row, whose spans are kept until the value is dropped.
    pub fn begin(self: &Arc<Self>) -> Traced {
        let id = hex(&rand::random::<[u8; 16]>());
        let parent = format!("00-{id}-{}-01", hex(&rand::random::<[u8; 8]>()));
        if let Ok(mut traces) = self.traces.lock() {
            traces.insert(id.clone(), Vec::new());
        }
        Traced { id, parent, collector: Arc::clone(self) }
    }

    /// Adds a span, if its trace is that of a row. One that was there is replaced.
    pub(super) fn add(&self, trace: &str, mut span: Span) {
        let Ok(mut traces) = self.traces.lock() else { return };
        let Some(spans) = traces.get_mut(trace) else { return };
        self.redact(&mut span);
        let is_full = spans.len() >= MAX_SPANS;
        match spans.iter_mut().find(|known| known.span_id == span.span_id) {
            Some(known) => *known = span,
            None if !is_full => spans.push(span),
            None => {}
        }
    }

    /// Takes out the values of redacted attributes, and where the name or the status repeats one.
    fn redact(&self, span: &mut Span) {
        let is_redacted = |name: &str| {
            let name = name.to_lowercase();
            self.redacted.iter().any(|text| name.contains(text))
        };
        let mut gone = Vec::new();
        for (name, value) in span.attributes.iter_mut() {
            if is_redacted(name) {
                gone.extend(value.as_str().map(str::to_owned));
                *value = json!(REDACTED);
            } else {
                redact_within(value, &is_redacted);
            }
        }
        for text in std::iter::once(&mut span.name).chain(&mut span.status_message) {
            if gone.contains(text) {
                REDACTED.clone_into(text);
            }
        }
    }
}

const REDACTED: &str = "[REDACTED]";

fn redact_within(value: &mut Value, is_redacted: &dyn Fn(&str) -> bool) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| redact_within(item, is_redacted)),
        Value::Object(map) => {
            for (name, value) in map {
                match is_redacted(name) {
                    true => *value = json!(REDACTED),
                    false => redact_within(value, is_redacted),
                }
            }
        }
        _ => {}
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The trace of a row in work.
#[derive(Debug)]
pub struct Traced {
    id: String,
    parent: String,
    collector: Arc<Collector>,
}

impl Drop for Traced {
    fn drop(&mut self) {
        if let Ok(mut traces) = self.collector.traces.lock() {
            traces.remove(&self.id);
        }
    }
}

impl Traced {
    /// Returns the id, in hexadecimal.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns what the provider sends on as `traceparent`.
    pub fn parent(&self) -> &str {
        &self.parent
    }

    fn spans(&self) -> Vec<Span> {
        let traces = self.collector.traces.lock();
        traces.ok().and_then(|traces| traces.get(&self.id).cloned()).unwrap_or_default()
    }

    /// Returns the spans, when no more seem to come: exporters send some of them after the answer.
    pub async fn collected(&self, env: &Env) -> Vec<Span> {
        let number = |name: &str, default: u64, least: u64, most: u64| {
            let set = env.get(name).and_then(|text| text.trim().parse().ok());
            set.unwrap_or(default).clamp(least, most)
        };
        let tries = number("PROMPTFOO_TRACE_FETCH_MAX_ATTEMPTS", 6, 1, 30);
        let pause = Duration::from_millis(number("PROMPTFOO_TRACE_FETCH_RETRY_DELAY_MS", 250, 0, 5000));
        let enough = number("PROMPTFOO_TRACE_FETCH_STABLE_POLLS", 2, 1, 10);
        let (mut last, mut stable) = (0, 0);
        for left in (0..tries).rev() {
            let spans = self.spans();
            stable = match spans.len() {
                0 => 0,
                count if count == last => stable + 1,
                _ => 1,
            };
            last = spans.len();
            if stable >= enough || left == 0 {
                return spans;
            }
            tokio::time::sleep(pause).await;
        }
        Vec::new()
    }

    /// Returns the trace of these spans, for the row at a position of a run.
    pub fn trace(
        &self,
        spans: Vec<Span>,
        run: &str,
        test_case: String,
        metadata: Map<String, Value>,
    ) -> Trace {
        Trace {
            trace_id: self.id.clone(),
            evaluation_id: run.to_owned(),
            test_case_id: test_case,
            metadata,
            spans,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(id: &str, name: &str) -> Span {
        Span {
            span_id: id.to_owned(),
            parent_span_id: None,
            name: name.to_owned(),
            start_time: 1.0,
            end_time: None,
            attributes: Map::new(),
            status_code: None,
            status_message: None,
        }
    }

    #[test]
    fn spans_of_traces_that_nobody_began_are_not_kept() {
        let collector = Collector::new(&TraceSettings::default());
        let traced = collector.begin();
        assert!(traced.parent().starts_with(&format!("00-{}-", traced.id())));
        collector.add(traced.id(), span("a", "one"));
        collector.add(traced.id(), span("a", "again"));
        collector.add("other", span("b", "two"));
        assert_eq!(traced.spans(), [span("a", "again")]);
        drop(traced);
        assert!(collector.traces.lock().unwrap().is_empty());
    }

    #[test]
    fn redacted_attributes_are_gone_wherever_they_are_repeated() {
        let collector = Collector { redacted: vec!["key".to_owned()], ..Collector::default() };
        let mut one = span("a", "s3cret");
        one.attributes =
            json!({"api_KEY": "s3cret", "args": [{"key": 1, "q": "x"}]}).as_object().unwrap().clone();
        collector.redact(&mut one);
        assert_eq!(one.name, REDACTED);
        assert_eq!(
            Value::Object(one.attributes),
            json!({"api_KEY": REDACTED, "args": [{"key": REDACTED, "q": "x"}]})
        );
    }
}
