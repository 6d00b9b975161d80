//! `metrics.md`: what `GET /metrics` shows, from the source that registers it. The registry itself leaves out what has not been
//! counted yet.

use super::{cell, check, read, table};

const INTRODUCTION: &str = "\
# Metrics

What `GET /metrics` shows, in the text format of Prometheus, or as OpenMetrics to clients that accept it. It needs the admin token, as
`X-Admin-Token` or as a bearer token. A metric with labels that has not been counted yet is left out. This page is generated from the program.

";

const SOURCE: &str = "crates/server/src/telemetry.rs";

/// String literals and names of a call's arguments, in their order.
fn arguments(call: &str) -> (Vec<&str>, &str) {
    let end = call.find(");").unwrap_or(call.len());
    let literals: Vec<&str> = call[..end].split('"').skip(1).step_by(2).collect();
    let last = call[..end].trim_end().trim_end_matches(',').rsplit([',', '\n']).next().unwrap_or_default();
    (literals, last.trim().trim_end_matches(".clone()"))
}

fn page(source: &str) -> String {
    let mut rows = Vec::new();
    // Tests register nothing.
    let source = source.split("#[cfg(test)]").next().unwrap_or_default();
    for call in source.split("registry.register").skip(1) {
        let (literals, field) = arguments(call);
        let [name, about] = literals[..] else { panic!("unknown form of registration: {call:.80}") };
        // A field of the struct has the kind, or the variable; what a function makes is a counter.
        let begins =
            [format!("    {field}: "), format!("        let {field}: "), format!("        let {field} = ")];
        let declared = begins
            .iter()
            .find_map(|begin| source.lines().find_map(|line| line.strip_prefix(begin.as_str())))
            .unwrap_or("Counter,");
        let unit = match call.split(");").next() {
            Some(call) if call.contains("Unit::Bytes") => "_bytes",
            Some(call) if call.contains("Unit::Seconds") => "_seconds",
            _ => "",
        };
        let (kind, suffix) = match declared {
            kind if kind.contains("Counter") => ("counter", "_total"),
            kind if kind.contains("Gauge") => ("gauge", ""),
            _ => ("histogram", ""),
        };
        let labels =
            declared.strip_prefix("Family<").and_then(|rest| rest.split_once(',')).map(|(labels, _)| labels);
        let labels: Vec<String> = labels.map(|labels| fields(source, labels)).unwrap_or_default();
        rows.push([
            format!("`sandcove_{name}{unit}{suffix}`"),
            kind.to_owned(),
            labels.join(", "),
            cell(about),
        ]);
    }
    assert!(rows.len() > 5, "metrics are registered in {SOURCE}");
    format!("{INTRODUCTION}{}", table(["metric", "kind", "labels", "meaning"], &rows))
}

fn fields(source: &str, name: &str) -> Vec<String> {
    let body = source.split_once(&format!("struct {name} {{")).and_then(|(_, rest)| rest.split_once('}'));
    let lines = body.map_or("", |(body, _)| body).lines();
    lines.filter_map(|line| line.trim().split_once(": ")).map(|(field, _)| format!("`{field}`")).collect()
}

#[test]
fn the_page_is_what_the_server_counts() {
    check("metrics.md", &page(&read(SOURCE)));
}
