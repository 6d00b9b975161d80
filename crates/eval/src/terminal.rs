//! What a person sees while a run goes on and when it ends.

use std::io::{self, ErrorKind, IsTerminal, Write};

use indicatif::{ProgressBar, ProgressStyle};

use crate::model::{Evaluation, Failure, Row, TokenUsage, number};
use crate::store::recording::{Recorded, Which};
use crate::table::Table;

/// Prints on standard output. A reader that went away (`| head`) is no failure of the run.
///
/// # Errors
/// When standard output takes nothing for another reason, such as a full disk.
pub fn print(text: &str) -> Result<(), String> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(format!("failed to write to standard output: {error}"))
        }
        _ => Ok(()),
    }
}

/// Prints a line on standard error. Nobody can be told when that fails.
pub fn note(line: impl std::fmt::Display) {
    let _ = io::stderr().lock().write_all(format!("{line}\n").as_bytes());
}

/// A number with its noun in singular or plural.
pub fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// What the results look like.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Format {
    /// A table, or the rows that did not pass.
    #[default]
    Text,
    /// Lines for programs that read the Test Anything Protocol.
    Tap,
    /// Marks that GitHub shows beside a change.
    GitHub,
}

/// What is shown.
#[derive(Debug, Clone, Copy)]
pub struct Shown {
    progress: bool,
    table: bool,
    cell_length: usize,
    colour: bool,
    format: Format,
}

impl Shown {
    /// As the command line and the terminal want it.
    pub fn new(no_progress: bool, no_table: bool, cell_length: usize, format: Format) -> Self {
        let terminal = std::io::stdout().is_terminal();
        Self {
            progress: !no_progress && std::io::stderr().is_terminal(),
            table: !no_table && terminal,
            cell_length,
            format,
            colour: terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
        }
    }

    /// Says what begins, and shows how far it is.
    pub fn begin(&self, rows: usize, id: &str, concurrency: usize) -> Progress {
        let bar = self.progress.then(|| {
            let bar = ProgressBar::new(rows as u64);
            if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} {elapsed} {msg}") {
                bar.set_style(style);
            }
            bar
        });
        note(format!("Running {} (up to {concurrency} at a time), {id}", count(rows, "test case")));
        Progress { bar, counts: std::cell::Cell::new((0, 0)) }
    }

    fn paint(&self, text: &str, code: &str) -> String {
        if self.colour { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }
}

/// How far a run is.
pub struct Progress {
    bar: Option<ProgressBar>,
    counts: std::cell::Cell<(usize, usize)>,
}

impl Progress {
    /// A row is finished.
    pub fn row(&self, success: bool) {
        let (mut passed, mut other) = self.counts.get();
        if success {
            passed += 1;
        } else {
            other += 1;
        }
        self.counts.set((passed, other));
        if let Some(bar) = &self.bar {
            bar.inc(1);
            bar.set_message(format!("{passed} passed, {other} not passed"));
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// A word for a row's verdict.
pub fn word(row: &Row) -> &'static str {
    match (row.success, row.failure_reason) {
        (true, _) => "PASS",
        (false, Failure::Error) => "ERROR",
        (false, _) => "FAIL",
    }
}

/// Prints the results.
///
/// # Errors
/// When the rows cannot be read.
pub async fn report(evaluation: &Evaluation, rows: &mut Recorded, shown: &Shown) -> Result<(), String> {
    let say = |text: String| print(&text);
    if shown.format == Format::Tap {
        say(format!("TAP version 13\n1..{}\n", evaluation.stats.total()))?;
        let mut number = 0;
        rows.each(Which::All, |row| {
            number += 1;
            say(tap(number, &row))
        })
        .await?;
        return say(sums(evaluation).trim().lines().map(|line| format!("# {line}\n")).collect());
    }
    if shown.format == Format::GitHub {
        rows.each(Which::Failed, |row| say(annotation(&row))).await?;
    } else if shown.table {
        let paint = |text: &str, code: &str| shown.paint(text, code);
        let table = Table::new(evaluation, shown.cell_length, &paint);
        say(table.head())?;
        rows.tests(|group| say(table.test(group))).await?;
        say(table.foot())?;
    } else {
        rows.each(Which::Failed, |row| say(failure(&row, shown))).await?;
    }
    say(sums(evaluation))
}

/// The row's column and test.
fn place(row: &Row) -> String {
    let about = row.description.clone().unwrap_or_else(|| format!("test {}", row.test_idx));
    let column = if row.provider.label.is_empty() { &row.provider.id } else { &row.provider.label };
    format!("[{column}] {about}")
}

/// A row that did not pass, in a line.
fn failure(row: &Row, shown: &Shown) -> String {
    let reason = row.error.as_deref().unwrap_or_default().replace('\n', " ");
    let reason: String = reason.chars().take(shown.cell_length).collect();
    format!("{} {}: {reason}\n", shown.paint(&format!("[{}]", word(row)), "31"), place(row))
}

/// A row as a test point, with its reason as YAML when it did not pass.
fn tap(number: usize, row: &Row) -> String {
    // `#` begins a directive.
    let place = place(row).replace(['\n', '#'], " ");
    if row.success {
        return format!("ok {number} - {place}\n");
    }
    let reason = serde_json::json!(row.error.as_deref().unwrap_or_default());
    format!("not ok {number} - {place}\n  ---\n  verdict: {}\n  message: {reason}\n  ...\n", word(row))
}

/// A row that did not pass, as an error of a workflow.
fn annotation(row: &Row) -> String {
    let data = |text: &str| text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A");
    let title = data(&format!("{} {}", word(row), place(row))).replace(':', "%3A").replace(',', "%2C");
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
    if cost > 0.0 {
        out.push_str(&format!("Cost: ${cost:.4}\n"));
    }
    for column in evaluation.columns.iter().filter(|column| !column.metrics.named_scores.is_empty()) {
        let scores: Vec<String> = column
            .metrics
            .named_scores
            .iter()
            .map(|(name, sum)| {
                let weight = column.metrics.named_score_weights.get(name).and_then(serde_json::Value::as_f64);
                let sum = sum.as_f64().unwrap_or(0.0);
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
    out.push_str(&format!("Duration: {:.2} s\n", stats.duration_ms as f64 / 1000.0));
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
