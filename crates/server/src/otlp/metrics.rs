//! Metrics, at an interval: the ones that `GET /metrics` has. They are kept for Prometheus, and read here from the same text, so that both
//! always say the same.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{HeaderName, HeaderValue, Request, Uri, header};
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint, ResourceMetrics,
    ScopeMetrics, Sum, metric, number_data_point,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message;
use sandcove_wire::secret::Secret;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::post::Post;
use super::{InvalidEndpoint, SERVICE, collector, resource};

/// Time between two reports unless `OTEL_METRIC_EXPORT_INTERVAL`, milliseconds, says otherwise.
const INTERVAL: Duration = Duration::from_secs(60);
/// Variables with headers for the collector; the later wins.
const HEADERS: [&str; 2] = ["OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_METRICS_HEADERS"];

/// Sends what `read` returns, metrics in the text format of OpenMetrics, to `endpoint` until `stopping`, and once more then.
///
/// # Errors
/// When the endpoint is no URL of a collector.
pub(crate) async fn send(
    endpoint: &Secret,
    read: impl Fn() -> BoxFuture<'static, String>,
    stopping: CancellationToken,
) -> Result<(), InvalidEndpoint> {
    let uri = collector("metrics", endpoint)?;
    let every = std::env::var("OTEL_METRIC_EXPORT_INTERVAL").ok().and_then(|text| text.parse().ok());
    let every = every.filter(|millis| *millis > 0).map_or(INTERVAL, Duration::from_millis);
    let headers: Vec<_> = HEADERS.iter().filter_map(|name| std::env::var(name).ok()).collect();
    let (post, began, mut ticks, mut reached) = (Post::default(), now(), interval(every), true);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // The first tick comes at once, when there is nothing to say.
    ticks.tick().await;
    loop {
        let is_last = stopping.run_until_cancelled(ticks.tick()).await.is_none();
        let body = request(&read().await, began, now()).encode_to_vec();
        let sent = post_to(&post, &uri, &headers, body).await;
        match sent {
            Ok(()) if reached => {}
            Ok(()) => tracing::warn!(collector = %uri, "the collector takes metrics again"),
            Err(ref error) if reached => {
                tracing::warn!(collector = %uri, %error, "the collector did not take metrics");
            }
            Err(_) => {}
        }
        reached = sent.is_ok();
        if is_last {
            return Ok(());
        }
    }
}

async fn post_to(post: &Post, uri: &Uri, headers: &[String], body: Vec<u8>) -> Result<(), HttpError> {
    let mut request = Request::new(Bytes::from(body));
    *request.method_mut() = http::Method::POST;
    *request.uri_mut() = uri.clone();
    for (name, value) in headers.iter().flat_map(|list| header_list(list)) {
        request.headers_mut().insert(name, value);
    }
    request.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
    let answer = post.send_bytes(request).await?;
    if answer.status().is_success() { Ok(()) } else { Err(format!("it answered {}", answer.status()).into()) }
}

/// The headers of a variable: `name=value` pairs, separated by commas, with values in the encoding of URLs.
fn header_list(text: &str) -> impl Iterator<Item = (HeaderName, HeaderValue)> {
    text.split(',').filter_map(|pair| {
        let (name, value) = pair.split_once('=')?;
        let value = percent_encoding::percent_decode_str(value.trim()).collect::<Vec<u8>>();
        let mut value = HeaderValue::from_bytes(&value).ok()?;
        // Headers for a collector are mostly keys.
        value.set_sensitive(true);
        Some((name.trim().parse().ok()?, value))
    })
}

/// Nanoseconds since 1970.
fn now() -> u64 {
    let passed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(passed.as_nanos()).unwrap_or(u64::MAX)
}

/// The message with the metrics of `text`, which are counted since `began`.
fn request(text: &str, began: u64, at: u64) -> ExportMetricsServiceRequest {
    let attributes = resource().iter().map(|(key, value)| attribute(key.as_str(), &value.as_str())).collect();
    let scope = InstrumentationScope {
        name: SERVICE.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..InstrumentationScope::default()
    };
    ExportMetricsServiceRequest {
        resource_metrics: vec![ResourceMetrics {
            resource: Some(Resource { attributes, ..Resource::default() }),
            scope_metrics: vec![ScopeMetrics {
                scope: Some(scope),
                metrics: families(text).iter().map(|family| family.metric(began, at)).collect(),
                ..ScopeMetrics::default()
            }],
            ..ResourceMetrics::default()
        }],
    }
}

fn attribute(key: &str, value: &str) -> KeyValue {
    let value = AnyValue { value: Some(any_value::Value::StringValue(value.to_owned())) };
    KeyValue { key: key.to_owned(), value: Some(value), ..KeyValue::default() }
}

/// Labels of samples.
type Labels = Vec<(String, String)>;

/// A value of a metric.
#[derive(Debug)]
struct Sample<'a> {
    /// End of the sample's name, after that of the metric: nothing, `_total`, `_sum`, `_count` or `_bucket`.
    part: &'a str,
    /// The upper bound of a bucket.
    bound: Option<f64>,
    value: f64,
}

/// A metric with its samples.
#[derive(Debug, Default)]
struct Family<'a> {
    name: &'a str,
    kind: &'a str,
    unit: &'a str,
    help: &'a str,
    samples: BTreeMap<Labels, Vec<Sample<'a>>>,
}

/// The metrics of a text of OpenMetrics that this program has written.
fn families(text: &str) -> Vec<Family<'_>> {
    let mut families: Vec<Family<'_>> = Vec::new();
    for line in text.lines() {
        let described = |start: &str| line.strip_prefix(start).and_then(|rest| rest.split_once(' '));
        if let Some((name, help)) = described("# HELP ") {
            families.push(Family { name, help: help.trim_end_matches('.'), ..Family::default() });
        } else if let (Some((_, kind)), Some(family)) = (described("# TYPE "), families.last_mut()) {
            family.kind = kind;
        } else if let (Some((_, unit)), Some(family)) = (described("# UNIT "), families.last_mut()) {
            family.unit = unit;
        } else if let (false, Some(family)) = (line.starts_with('#'), families.last_mut()) {
            family.add(line);
        }
    }
    families.retain(|family| !family.samples.is_empty());
    families
}

impl<'a> Family<'a> {
    /// Adds the sample of a line: a name, labels in braces, and a value.
    fn add(&mut self, line: &'a str) {
        let Some((name, value)) = line.rsplit_once(' ') else { return };
        let (name, labels) = name.split_once('{').unwrap_or((name, "}"));
        let (Some(part), Ok(value)) = (name.strip_prefix(self.name), value.parse()) else { return };
        let mut labels = labels_of(labels);
        let bound = labels.iter().position(|(label, _)| label == "le").map(|at| labels.remove(at).1);
        let bound = bound.map(|bound| bound.parse().unwrap_or(f64::INFINITY));
        self.samples.entry(labels).or_default().push(Sample { part, bound, value });
    }

    fn metric(&self, began: u64, at: u64) -> Metric {
        let temporality = AggregationTemporality::Cumulative.into();
        let numbers = |part: &str| {
            let points = self.samples.iter().filter_map(|(labels, samples)| {
                Some(NumberDataPoint {
                    attributes: attributes(labels),
                    start_time_unix_nano: began,
                    time_unix_nano: at,
                    value: Some(number_data_point::Value::AsDouble(value(samples, part)?)),
                    ..NumberDataPoint::default()
                })
            });
            points.collect()
        };
        let data = match self.kind {
            "counter" => metric::Data::Sum(Sum {
                data_points: numbers("_total"),
                aggregation_temporality: temporality,
                is_monotonic: true,
            }),
            "histogram" => metric::Data::Histogram(Histogram {
                data_points: self
                    .samples
                    .iter()
                    .map(|(labels, samples)| distribution(labels, samples, began, at))
                    .collect(),
                aggregation_temporality: temporality,
            }),
            _ => metric::Data::Gauge(Gauge { data_points: numbers("") }),
        };
        // Units by the codes of UCUM.
        let unit = match self.unit {
            "seconds" => "s",
            "bytes" => "By",
            _ => "1",
        };
        Metric {
            name: self.name.to_owned(),
            description: self.help.to_owned(),
            unit: unit.to_owned(),
            data: Some(data),
            ..Metric::default()
        }
    }
}

/// The value of the sample with that part in its name.
fn value(samples: &[Sample<'_>], part: &str) -> Option<f64> {
    samples.iter().find(|sample| sample.part == part).map(|sample| sample.value)
}

/// A histogram's point. Buckets of OpenMetrics contain those before them; those of OTLP do not.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counts are whole numbers")]
fn distribution(labels: &Labels, samples: &[Sample<'_>], began: u64, at: u64) -> HistogramDataPoint {
    let buckets = samples.iter().filter_map(|sample| Some((sample.bound?, sample.value as u64)));
    let (bounds, counts): (Vec<f64>, Vec<u64>) = buckets.unzip();
    let before = std::iter::once(&0).chain(&counts);
    HistogramDataPoint {
        attributes: attributes(labels),
        start_time_unix_nano: began,
        time_unix_nano: at,
        count: value(samples, "_count").unwrap_or_default() as u64,
        sum: value(samples, "_sum"),
        bucket_counts: counts
            .iter()
            .zip(before)
            .map(|(count, before)| count.saturating_sub(*before))
            .collect(),
        explicit_bounds: bounds.into_iter().filter(|bound| bound.is_finite()).collect(),
        ..HistogramDataPoint::default()
    }
}

fn attributes(labels: &Labels) -> Vec<KeyValue> {
    labels.iter().map(|(key, value)| attribute(key, value)).collect()
}

/// The labels of `a="b",c="d"}`.
fn labels_of(text: &str) -> Labels {
    let mut labels = Labels::new();
    let mut rest = text;
    while let Some((key, after)) = rest.split_once("=\"") {
        let (mut value, mut end, mut is_escaped) = (String::new(), after.len(), false);
        for (at, letter) in after.char_indices() {
            match letter {
                '\\' if !is_escaped => is_escaped = true,
                '"' if !is_escaped => {
                    end = at + 1;
                    break;
                }
                _ => {
                    value.push(if is_escaped && letter == 'n' { '\n' } else { letter });
                    is_escaped = false;
                }
            }
        }
        labels.push((key.trim_start_matches(',').to_owned(), value));
        rest = &after[end..];
    }
    labels
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"# HELP s_starts Starts.
# TYPE s_starts counter
s_starts_total{result="a \"b\", \\n"} 3
s_starts_total{result="failed",template="x"} 1
# HELP s_memory_bytes Memory.
# TYPE s_memory_bytes gauge
# UNIT s_memory_bytes bytes
s_memory_bytes 4096
# HELP s_start_seconds Time of starts.
# TYPE s_start_seconds histogram
# UNIT s_start_seconds seconds
s_start_seconds_sum 1.5
s_start_seconds_count 4
s_start_seconds_bucket{le="0.1"} 1
s_start_seconds_bucket{le="0.2"} 3
s_start_seconds_bucket{le="+Inf"} 4
# HELP s_none Nothing yet.
# TYPE s_none counter
# EOF
"#;

    fn metrics() -> Vec<Metric> {
        let ExportMetricsServiceRequest { mut resource_metrics } = request(TEXT, 5, 9);
        resource_metrics.remove(0).scope_metrics.remove(0).metrics
    }

    #[test]
    fn counters_keep_their_labels_and_metrics_without_samples_are_left_out() {
        let metrics = metrics();
        assert_eq!(metrics.len(), 3);
        let Some(metric::Data::Sum(sum)) = &metrics[0].data else { panic!("{:?}", metrics[0]) };
        assert!(sum.is_monotonic);
        let labels: Vec<_> = sum.data_points.iter().map(|point| point.attributes.clone()).collect();
        assert_eq!(labels[0], [attribute("result", r#"a "b", \n"#)]);
        assert_eq!(labels[1], [attribute("result", "failed"), attribute("template", "x")]);
        assert_eq!(sum.data_points[0].value, Some(number_data_point::Value::AsDouble(3.0)));
        assert_eq!((sum.data_points[0].start_time_unix_nano, sum.data_points[0].time_unix_nano), (5, 9));
    }

    #[test]
    fn gauges_have_units_and_texts() {
        let metrics = metrics();
        let about = (metrics[1].name.as_str(), metrics[1].unit.as_str(), metrics[1].description.as_str());
        assert_eq!(about, ("s_memory_bytes", "By", "Memory"));
        assert!(matches!(&metrics[1].data, Some(metric::Data::Gauge(gauge)) if gauge.data_points.len() == 1));
    }

    #[test]
    fn buckets_of_histograms_do_not_contain_those_before() {
        let metrics = metrics();
        let Some(metric::Data::Histogram(histogram)) = &metrics[2].data else { panic!("{:?}", metrics[2]) };
        let point = &histogram.data_points[0];
        assert_eq!((point.count, point.sum), (4, Some(1.5)));
        assert_eq!(point.bucket_counts, [1, 2, 1]);
        assert_eq!(point.explicit_bounds, [0.1, 0.2]);
    }

    #[test]
    fn headers_are_read_as_opentelemetry_writes_them() {
        let found: Vec<_> = header_list("authorization=Bearer%20x, x-b = c,nonsense,bad name=1").collect();
        let texts: Vec<_> =
            found.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
        assert_eq!(texts, [("authorization", "Bearer x"), ("x-b", "c")]);
    }
}
