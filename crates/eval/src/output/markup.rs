//! XML, JUnit and HTML.

use serde_json::Value;

use crate::model::{Column, Evaluation, Failure, Row, number};
use crate::template::value::to_text;

/// Text between tags and in attributes.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            // XML has no place for these, not even escaped.
            c if c.is_control() && !matches!(c, '\n' | '\t') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// The result document as XML: a key is an element, an item of a list repeats it.
pub fn xml(document: &Value) -> String {
    let mut out = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<promptfoo>\n".to_owned();
    for key in ["evalId", "results", "config", "shareableUrl"] {
        write_element(key, &document[key], 1, &mut out);
    }
    out.push_str("</promptfoo>\n");
    out
}

/// An element with its content.
pub fn element(name: &str, value: &Value, depth: usize) -> String {
    let mut out = String::new();
    write_element(name, value, depth, &mut out);
    out
}

fn write_element(name: &str, value: &Value, depth: usize, out: &mut String) {
    let fits = |c: char| c.is_alphanumeric() || "_-.".contains(c);
    let mut name: String = name.chars().map(|c| if fits(c) { c } else { '_' }).collect();
    if !name.starts_with(|c: char| c.is_alphabetic() || c == '_') {
        name.insert(0, '_');
    }
    let pad = "  ".repeat(depth);
    match value {
        Value::Array(items) => items.iter().for_each(|item| write_element(&name, item, depth, out)),
        Value::Object(map) => {
            out.push_str(&format!("{pad}<{name}>\n"));
            map.iter().for_each(|(key, value)| write_element(key, value, depth + 1, out));
            out.push_str(&format!("{pad}</{name}>\n"));
        }
        Value::Null => out.push_str(&format!("{pad}<{name}></{name}>\n")),
        scalar => out.push_str(&format!("{pad}<{name}>{}</{name}>\n", escape(&to_text(scalar)))),
    }
}

fn seconds(ms: f64) -> String {
    format!("{:.3}", ms / 1000.0)
}

/// JUnit before its suites, one for each column.
pub fn junit_head(evaluation: &Evaluation) -> String {
    let stats = &evaluation.stats;
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"promptfoo\" tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"0\" time=\"{}\">\n",
        stats.total(),
        stats.failures,
        stats.errors,
        seconds(stats.duration_ms as f64)
    )
}

/// Returns the name of a column's suite: its provider, and its number among the columns of that provider.
pub fn suite_name(columns: &[Column], at: usize) -> String {
    let provider = &columns[at].provider;
    let prompt = columns[..=at].iter().filter(|column| column.provider == *provider).count();
    escape(&format!("[{provider}] prompt {prompt}"))
}

/// A column's suite before and after its cases. `began` is when the run began.
pub fn junit_suite(column: &Column, name: &str, began: &str) -> (String, &'static str) {
    let metrics = &column.metrics;
    let total = metrics.test_pass_count + metrics.test_fail_count + metrics.test_error_count;
    let head = format!(
        "  <testsuite name=\"{name}\" tests=\"{total}\" failures=\"{}\" errors=\"{}\" skipped=\"0\" time=\"{}\" timestamp=\"{}\">\n",
        metrics.test_fail_count,
        metrics.test_error_count,
        seconds(metrics.total_latency_ms),
        escape(began)
    );
    (head, "  </testsuite>\n")
}

/// A row as a case of its column's suite, which has a name.
pub fn junit_case(row: &Row, name: &str) -> String {
    let about = row.description.as_ref().map(|text| format!(": {text}")).unwrap_or_default();
    let case = escape(&format!("test {}{about}", row.test_idx + 1));
    let head =
        format!("    <testcase name=\"{case}\" classname=\"{name}\" time=\"{}\"", seconds(row.latency_ms));
    let reason = escape(row.error.as_deref().unwrap_or_default());
    match (row.success, row.failure_reason) {
        (true, _) => format!("{head}/>\n"),
        (false, Failure::Error) => format!(
            "{head}>\n      <error type=\"error\" message=\"{reason}\">{reason}</error>\n    </testcase>\n"
        ),
        (false, _) => format!(
            "{head}>\n      <failure type=\"assertion\" message=\"Assertion failed\">{}</failure>\n    </testcase>\n",
            escape(&reasons(row))
        ),
    }
}

/// Returns all reasons why a row did not pass.
fn reasons(row: &Row) -> String {
    let components = row.grading_result.iter().flat_map(|result| result.component_results.iter().flatten());
    let failed: Vec<&str> =
        components.filter(|result| !result.pass).map(|result| result.reason.as_str()).collect();
    if failed.is_empty() { row.error.clone().unwrap_or_default() } else { failed.join("\n") }
}

const STYLE: &str = "body{font:14px system-ui,sans-serif;margin:2em;color:#1a1a1a;background:#fff}table{border-collapse:collapse;width:100%}\
th,td{border:1px solid #ccc;padding:.4em .6em;vertical-align:top;text-align:left}pre{white-space:pre-wrap;margin:0;font:inherit;max-height:20em;overflow:auto}\
.PASS>b{color:#0a7a2f}.FAIL>b,.ERROR>b{color:#b3261e}details{margin-top:.4em;color:#555}";

/// A page that needs nothing else, before the lines of its table.
pub fn html_head(evaluation: &Evaluation) -> String {
    let stats = &evaluation.stats;
    let title = escape(evaluation.description.as_deref().unwrap_or(&evaluation.id));
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title><style>{STYLE}</style></head><body>\n\
         <h1>{title}</h1>\n<p>{} · {:.2}% passed: {} passed, {} failed, {}</p>\n<table><thead><tr>",
        escape(&evaluation.id),
        stats.pass_rate(),
        stats.successes,
        stats.failures,
        number::count(stats.errors, "error")
    );
    for name in &evaluation.vars {
        out.push_str(&format!("<th>{}</th>", escape(name)));
    }
    for column in &evaluation.columns {
        out.push_str(&format!("<th>[{}] {}</th>", escape(&column.provider), escape(&column.label)));
    }
    out.push_str("</tr></thead><tbody>\n");
    out
}

/// A line of the page's table: one test.
pub fn html_line(evaluation: &Evaluation, group: &[Row]) -> String {
    let mut out = "<tr>".to_owned();
    for name in &evaluation.vars {
        let value = group[0].vars.get(name).map(to_text).unwrap_or_default();
        out.push_str(&format!("<td><pre>{}</pre></td>", escape(&value)));
    }
    for at in 0..evaluation.columns.len() {
        match group.iter().find(|row| row.prompt_idx == at) {
            Some(row) => cell(row, &mut out),
            None => out.push_str("<td></td>"),
        }
    }
    out.push_str("</tr>\n");
    out
}

fn cell(row: &Row, out: &mut String) {
    let output =
        row.response.as_ref().and_then(|response| response.output.as_ref()).map(to_text).unwrap_or_default();
    let word = row.verdict();
    let cost = match row.cost {
        None => " · unknown price".to_owned(),
        Some(0.0) => String::new(),
        Some(cost) => format!(" · ${}", number::text(cost)),
    };
    let reasons = if row.success { String::new() } else { reasons(row) };
    out.push_str(&format!(
        "<td class=\"{word}\"><b>{word}</b> {:.2}{cost}<pre>{}</pre><pre>{}</pre><details><summary>prompt</summary><pre>{}</pre></details></td>",
        row.score, escape(&reasons), escape(&output), escape(&row.prompt.raw)
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suites_are_counted_for_each_provider() {
        let columns =
            ["a", "b", "a"].map(|provider| Column { provider: provider.to_owned(), ..Column::default() });
        let names = [0, 1, 2].map(|at| suite_name(&columns, at));
        assert_eq!(names, ["[a] prompt 1", "[b] prompt 1", "[a] prompt 2"]);
    }
}
