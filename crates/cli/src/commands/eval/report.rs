//! What a run prints: progress on standard error, results on standard output.

use std::io::IsTerminal;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use sandcove_eval::model::{CodeMetrics, Evaluation, Metrics, Row, TokenUsage, number};
use sandcove_eval::run::Observer;
use sandcove_eval::store::StoreError;
use sandcove_eval::store::recording::{Recorded, Which};

use super::args::{ResultFormat, RunArgs};
use super::table::Table;
use crate::commands::count;
use crate::output::{is_plain, note, plain, write};

/// Printed parts of a run, as the command line and the terminal allow.
#[derive(Debug, Clone, Copy)]
pub struct Shown {
    progress: bool,
    table: bool,
    cell_length: usize,
    colour: bool,
    format: ResultFormat,
}

impl Shown {
    pub fn new(args: &RunArgs) -> Self {
        let terminal = std::io::stdout().is_terminal();
        Self {
            progress: !args.no_progress && std::io::stderr().is_terminal(),
            table: !args.no_table && terminal,
            cell_length: args.cell_length,
            format: args.format,
            colour: terminal && !is_plain(),
        }
    }

    /// Whether somebody reads what is printed, and no other program.
    pub fn for_people(&self) -> bool {
        self.format == ResultFormat::Text && std::io::stderr().is_terminal()
    }

    fn paint(&self, text: &str, code: &str) -> String {
        if self.colour { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }
}

/// Shows how far a run is: a bar on a terminal, and lines about its start and its interruption.
pub struct RunProgress {
    shown: Shown,
    bar: Mutex<Bar>,
}

/// The bar, the numbers of rows that passed and that did not, and the row that began last.
#[derive(Default)]
struct Bar {
    bar: Option<ProgressBar>,
    passed: usize,
    other: usize,
    last: String,
}

impl Bar {
    fn show(&self) {
        if let Some(bar) = &self.bar {
            bar.set_message(format!("{} passed, {} not passed · {}", self.passed, self.other, self.last));
        }
    }
}

impl RunProgress {
    pub fn new(shown: Shown) -> Self {
        Self { shown, bar: Mutex::default() }
    }
}

impl Observer for RunProgress {
    fn begun(&self, rows: usize, concurrency: usize, id: &str) {
        if self.shown.progress {
            let bar = ProgressBar::new(rows as u64);
            if let Ok(style) = ProgressStyle::with_template("{bar:16} {pos}/{len} {elapsed} {wide_msg}") {
                bar.set_style(style);
            }
            // Shown before the first row ends, which with a slow model takes a minute.
            bar.enable_steady_tick(Duration::from_millis(200));
            self.bar.lock().unwrap_or_else(PoisonError::into_inner).bar = Some(bar);
        }
        note!("Running {} (up to {concurrency} at a time), {id}", count(rows, "test case"));
    }

    fn row_started(&self, about: &dyn Fn() -> String) {
        if self.shown.progress {
            let mut bar = self.bar.lock().unwrap_or_else(PoisonError::into_inner);
            bar.last = about();
            bar.show();
        }
    }

    fn row_finished(&self, passed: bool) {
        let mut bar = self.bar.lock().unwrap_or_else(PoisonError::into_inner);
        if passed {
            bar.passed += 1;
        } else {
            bar.other += 1;
        }
        if let Some(shown) = &bar.bar {
            shown.inc(1);
        }
        bar.show();
    }

    fn pausing(&self, in_flight: usize) {
        let rows = count(in_flight, "row");
        note!("Pausing: waiting for {rows} in flight; press Ctrl-C again to give them up.");
    }

    fn ended(&self) {
        if let Some(bar) = self.bar.lock().unwrap_or_else(PoisonError::into_inner).bar.take() {
            bar.finish_and_clear();
        }
    }

    fn warned(&self, text: &str) {
        note!("warning: {}", plain(text));
    }

    fn hook_printed(&self, text: &str) {
        note!("{text}");
    }
}

impl Drop for RunProgress {
    fn drop(&mut self) {
        self.ended();
    }
}

/// Prints text on standard output. That it takes nothing any more is reported when the command ends.
fn print(text: &str) {
    let _ = write(text.as_bytes());
}

/// Prints the results.
///
/// # Errors
/// When the rows cannot be read.
pub async fn report(evaluation: &Evaluation, rows: &mut Recorded, shown: &Shown) -> Result<(), StoreError> {
    let each = |text: String| {
        print(&text);
        Ok::<_, StoreError>(())
    };
    match shown.format {
        ResultFormat::Tap => {
            print(&format!("TAP version 13\n1..{}\n", evaluation.stats.total()));
            let mut number = 0;
            let point = |row: Row| {
                number += 1;
                each(tap(number, &row))
            };
            rows.each(Which::All, point).await?;
            for line in sums(evaluation).trim().lines() {
                print(&format!("# {line}\n"));
            }
            return Ok(());
        }
        ResultFormat::GitHub => rows.each(Which::Failed, |row| each(annotation(&row))).await?,
        ResultFormat::Text if shown.table => {
            let paint = |text: &str, code: &str| shown.paint(text, code);
            let mut table = Table::new(evaluation, shown.cell_length, &paint);
            rows.tests(|group| each(table.test(group))).await?;
            print(&table.foot());
        }
        ResultFormat::Text => rows.each(Which::Failed, |row| each(failure(&row, shown))).await?,
    }
    print(&sums(evaluation));
    Ok(())
}

/// The column and the test of a row.
fn place(row: &Row) -> String {
    let about = row.about();
    let column = if row.provider.label.is_empty() { &row.provider.id } else { &row.provider.label };
    plain(&format!("[{column}] {about}"))
}

/// A row that did not pass, in a line.
fn failure(row: &Row, shown: &Shown) -> String {
    let reason = plain(row.error.as_deref().unwrap_or_default()).replace('\n', " ");
    let reason: String = reason.chars().take(shown.cell_length).collect();
    format!("{} {}: {reason}\n", shown.paint(&format!("[{}]", row.verdict()), "31"), place(row))
}

/// A row as a test point, with its reason as YAML when it did not pass.
fn tap(number: usize, row: &Row) -> String {
    // `#` begins a directive.
    let place = place(row).replace(['\n', '#'], " ");
    if row.success {
        return format!("ok {number} - {place}\n");
    }
    let reason = serde_json::json!(plain(row.error.as_deref().unwrap_or_default()));
    format!("not ok {number} - {place}\n  ---\n  verdict: {}\n  message: {reason}\n  ...\n", row.verdict())
}

/// A row that did not pass, as an error of a workflow.
fn annotation(row: &Row) -> String {
    let data = |text: &str| plain(text).replace('%', "%25").replace('\n', "%0A");
    let title = data(&format!("{} {}", row.verdict(), place(row))).replace(':', "%3A").replace(',', "%2C");
    format!("::error title={title}::{}\n", data(row.error.as_deref().unwrap_or_default()))
}

fn sums(evaluation: &Evaluation) -> String {
    let mut out = String::new();
    let stats = &evaluation.stats;
    let rate = stats.pass_rate();
    out.push_str(&format!("\n{} evaluation complete\n", evaluation.id));
    out.push_str(&tokens(&stats.token_usage));
    out.push_str(&format!(
        "Results: {} passed ({rate:.2}%), {} failed, {}\n",
        stats.successes,
        stats.failures,
        count(stats.errors, "error")
    ));
    let cost: f64 = evaluation.columns.iter().map(|column| column.metrics.cost).sum();
    let unknown: usize = evaluation.columns.iter().map(|column| column.metrics.unknown_cost_count).sum();
    match (cost > 0.0, unknown) {
        (false, 0) => {}
        (true, 0) => out.push_str(&format!("Cost: ${cost:.4}\n")),
        (_, unknown) => {
            let answers = count(unknown, "answer");
            out.push_str(&format!("Cost: ${cost:.4}, and {answers} of unknown price\n"));
        }
    }
    out.push_str(&providers(evaluation));
    for column in evaluation.columns.iter().filter(|column| !column.metrics.named_scores.is_empty()) {
        let scores: Vec<String> = column
            .metrics
            .named_scores
            .iter()
            .map(|(name, sum)| {
                let weight = column.metrics.named_score_weights.get(name).and_then(serde_json::Value::as_f64);
                let sum = sum.as_f64().unwrap_or(f64::NAN);
                format!(
                    "{name} {}",
                    number::text(
                        (sum / weight.filter(|weight| *weight > 0.0).unwrap_or(1.0) * 1e4).round() / 1e4
                    )
                )
            })
            .collect();
        out.push_str(&format!("Metrics [{}]: {}\n", column.provider, scores.join(", ")));
    }
    for column in &evaluation.columns {
        if let Some(code) = &column.metrics.code {
            out.push_str(&format!("Code [{}]: {}\n", column.provider, code_line(code)));
        }
    }
    out.push_str(&format!("Duration: {:.2} s\n", stats.duration_ms as f64 / 1000.0));
    out
}

/// How well a column writes code, in a line.
fn code_line(code: &CodeMetrics) -> String {
    let percent = |share: f64| share * 100.0;
    let mut parts: Vec<String> = code
        .pass_at
        .iter()
        .map(|at| {
            let (rate, low, high) = (percent(at.rate), percent(at.low), percent(at.high));
            format!("pass@{} {rate:.1}% ({low:.1} to {high:.1})", at.k)
        })
        .collect();
    parts.push(count(code.tasks, "task"));
    if let (Some(middle), Some(slow)) = (code.p50_ms, code.p95_ms) {
        parts.push(format!("case p50 {middle:.0} ms, p95 {slow:.0} ms"));
    }
    if let (Some(middle), Some(large)) = (code.p50_memory_mb, code.p95_memory_mb) {
        parts.push(format!("memory p50 {middle:.1} MiB, p95 {large:.1} MiB"));
    }
    if code.flaky > 0 {
        parts.push(format!("{} flaky", code.flaky));
    }
    parts.extend(
        code.limits.iter().map(|(limit, cases)| format!("{} at the {limit} limit", count(*cases, "case"))),
    );
    parts.join(", ")
}

/// The sums of each provider, where there are several of them or tokens were used.
fn providers(evaluation: &Evaluation) -> String {
    let mut all: Vec<(&str, Metrics)> = Vec::new();
    for column in &evaluation.columns {
        let own = &column.metrics;
        let at = all.iter().position(|(name, _)| *name == column.provider).unwrap_or_else(|| {
            all.push((&column.provider, Metrics::default()));
            all.len() - 1
        });
        let sum = &mut all[at].1;
        sum.test_pass_count += own.test_pass_count;
        sum.test_fail_count += own.test_fail_count;
        sum.test_error_count += own.test_error_count;
        sum.total_latency_ms += own.total_latency_ms;
        sum.cost += own.cost;
        sum.unknown_cost_count += own.unknown_cost_count;
        let total = sum.token_usage.total.unwrap_or(0.0) + own.token_usage.total.unwrap_or(0.0);
        sum.token_usage.total = Some(total);
    }
    let used = |metrics: &Metrics| metrics.token_usage.total.unwrap_or(0.0);
    if all.len() < 2 && all.iter().all(|(_, metrics)| used(metrics) == 0.0) {
        return String::new();
    }
    let mut out = "Providers:\n".to_owned();
    for (name, metrics) in &all {
        let passed = metrics.test_pass_count;
        let rows = passed + metrics.test_fail_count + metrics.test_error_count;
        let mut parts = vec![format!("{passed} of {rows} passed")];
        if metrics.test_error_count > 0 {
            parts.push(count(metrics.test_error_count, "error"));
        }
        if used(metrics) > 0.0 {
            parts.push(format!("{} tokens", number::text(used(metrics))));
        }
        match (metrics.cost > 0.0, metrics.unknown_cost_count > 0) {
            (true, false) => parts.push(format!("${:.4}", metrics.cost)),
            (true, true) => parts.push(format!("${:.4} and more", metrics.cost)),
            (false, true) => parts.push("price unknown".to_owned()),
            (false, false) => {}
        }
        if rows > 0 {
            parts.push(format!("{:.0} ms on average", metrics.total_latency_ms / rows as f64));
        }
        out.push_str(&format!("  {name}: {}\n", parts.join(", ")));
    }
    out
}

fn tokens(usage: &TokenUsage) -> String {
    let n = |n: Option<f64>| number::text(n.unwrap_or(0.0));
    let grading = usage.assertions.as_ref().and_then(|usage| usage.total).unwrap_or(0.0);
    if usage.total.unwrap_or(0.0) + grading + usage.cached.unwrap_or(0.0) == 0.0 {
        return String::new();
    }
    format!(
        "Tokens: {} ({} prompt, {} completion, {} cached), {} for grading\n",
        n(usage.total),
        n(usage.prompt),
        n(usage.completion),
        n(usage.cached),
        number::text(grading)
    )
}
