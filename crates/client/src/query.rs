//! Parameters that the queries of several calls have.

use jiff::Timestamp;
use sandcove_wire::api::observe::LogLevel;

use crate::server::segment;

/// A filter for the entries of a log; the default matches all, oldest first.
#[derive(Debug, Clone, Default)]
pub struct LogFilter {
    /// Whether the newest entries come first; else the oldest do.
    pub is_backward: bool,
    /// Time at which to begin, in milliseconds: entries of it and, by the direction, after it or before it. All when unset.
    pub cursor: Option<Timestamp>,
    /// Minimum severity; any when unset.
    pub level: Option<LogLevel>,
    /// Maximum number of entries: 1,000 of a sandbox, 100 of a build, which are also the defaults.
    pub limit: Option<u32>,
}

impl LogFilter {
    /// The filter as parameters of a query.
    pub(crate) fn query(&self) -> String {
        let level = self.level.map(|level| match level {
            LogLevel::Debug => "debug",
            LogLevel::Info => "info",
            LogLevel::Warn => "warn",
            LogLevel::Error => "error",
        });
        pairs(&[
            ("direction", Some(if self.is_backward { "backward" } else { "forward" }.to_owned())),
            ("cursor", self.cursor.map(|time| time.as_millisecond().to_string())),
            ("level", level.map(str::to_owned)),
            ("limit", self.limit.map(|limit| limit.to_string())),
        ])
    }
}

/// The parameters of a query that have a value, without a `?` before them.
pub(crate) fn pairs(all: &[(&str, Option<String>)]) -> String {
    let given = all.iter().filter_map(|(name, value)| Some(format!("{name}={}", segment(value.as_ref()?))));
    given.collect::<Vec<_>>().join("&")
}

/// The parameters of a span of time, in Unix seconds.
pub(crate) fn span(from: Option<Timestamp>, to: Option<Timestamp>) -> String {
    let seconds = |time: Option<Timestamp>| time.map(|time| time.as_second().to_string());
    pairs(&[("start", seconds(from)), ("end", seconds(to))])
}
