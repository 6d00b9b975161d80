//! Traces: what the provider of a row did, in spans that it sends by OTLP while it answers.
//!
//! A row that is traced has a trace of its own, whose id its provider gets as `traceparent`. The receiver of the run takes spans of
//! such traces only; assertions look at them when the answer is there.

mod collector;
mod otlp;
mod receiver;
mod settings;

pub use collector::{Collector, Traced};
pub use receiver::{Receiver, ReceiverError};
pub use settings::{TraceSettings, port_of};

use serde::Serialize;
use serde_json::Value;

use crate::model::Object;

/// A step of a provider.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Span {
    /// The id of the span, in hexadecimal.
    pub span_id: String,
    /// The id of the span that it is a part of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_span_id: Option<String>,
    /// The name.
    pub name: String,
    /// Milliseconds since 1970 at which it began.
    pub start_time: f64,
    /// Milliseconds since 1970 at which it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_time: Option<f64>,
    /// The attributes, those of the resource and of the scope among them.
    pub attributes: Object,
    /// The code of the status: 1 for a success, 2 for an error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status_code: Option<i64>,
    /// The text of the status.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status_message: Option<String>,
}

/// The spans of a row, as assertions and scripts see them.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Trace {
    /// The id of the trace, in hexadecimal.
    pub trace_id: String,
    /// The id of the run.
    pub evaluation_id: String,
    /// The name of the row's test and column.
    pub test_case_id: String,
    /// The position of the row, its variables, and the settings of the run.
    pub metadata: Object,
    /// The spans.
    pub spans: Vec<Span>,
}

impl Trace {
    /// Returns the names of tools that run commands, which the suite adds to the known ones.
    pub fn command_tools(&self) -> impl Iterator<Item = &str> {
        let names = self.metadata.get("commandToolNames").and_then(Value::as_array);
        names.into_iter().flatten().filter_map(Value::as_str)
    }
}
