//! Adding up rows: columns, statistics, derived metrics.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::config::DerivedMetric;
use crate::grading::aggregate::{add, add_tokens, zero_tokens};
use crate::javascript;
use crate::model::{Column, Evaluation, Failure, Metrics, Object, Row, Stats, TokenUsage, number_value};

/// Returns the names of all variables, in the order they appear.
pub fn variable_names(tests: &[Object]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for name in tests.iter().filter_map(|test| test.get("vars")?.as_object()).flat_map(Object::keys) {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    names
}

/// The share of a row in the sums. Sums are made at the end, in the order of the rows, because fractions that are added in another
/// order have another sum.
#[derive(Debug)]
pub struct Tally {
    outcome: Failure,
    score: f64,
    latency_ms: f64,
    cost: f64,
    token_usage: Option<TokenUsage>,
    asserts_passed: usize,
    asserts_failed: usize,
    named: Vec<Named>,
    described: bool,
}

/// A named score of a row.
#[derive(Debug)]
struct Named {
    name: String,
    score: f64,
    weight: f64,
    count: f64,
}

impl From<&Row> for Tally {
    fn from(row: &Row) -> Self {
        let outcome = match (row.success, row.failure_reason) {
            (true, _) => Failure::None,
            (false, Failure::Error) => Failure::Error,
            (false, _) => Failure::Assertion,
        };
        let components =
            || row.grading_result.iter().flat_map(|verdict| verdict.component_results.iter().flatten());
        let passed = components().filter(|component| component.pass).count();
        let verdict = row.grading_result.as_ref();
        let weights = verdict.and_then(|verdict| verdict.named_score_weights.as_ref());
        let scores = row.named_scores.iter().map(|(name, score)| {
            let weight = weights.and_then(|weights| weights.get(name)).and_then(Value::as_f64).unwrap_or(1.0);
            let score = score.as_f64().unwrap_or(0.0) * weight;
            let count = verdict.map_or(1.0, |verdict| contributions(verdict, name));
            Named { name: name.clone(), score, weight, count }
        });
        Self {
            outcome,
            score: row.score,
            latency_ms: row.latency_ms,
            cost: row.cost,
            token_usage: row.token_usage.clone(),
            asserts_passed: passed,
            asserts_failed: components().count() - passed,
            named: scores.collect(),
            described: row.description.is_some(),
        }
    }
}

impl Tally {
    /// Whether the row passed.
    pub fn passed(&self) -> bool {
        self.outcome == Failure::None
    }
}

/// The shares of rows, by test and column.
pub type Tallies = BTreeMap<(usize, usize), Tally>;

/// Adds rows to their columns and to the whole.
pub fn add_up(evaluation: &mut Evaluation, tallies: &Tallies, derived: &[DerivedMetric]) {
    let mut stats = Stats { token_usage: zero_tokens(), ..Stats::default() };
    stats.token_usage.assertions = Some(Box::new(zero_tokens()));
    for column in &mut evaluation.columns {
        column.metrics = Metrics { token_usage: stats.token_usage.clone(), ..Metrics::default() };
    }
    for ((_, column), tally) in tallies {
        let metrics = &mut evaluation.columns[*column].metrics;
        let (column_count, all_count) = match tally.outcome {
            Failure::None => (&mut metrics.test_pass_count, &mut stats.successes),
            Failure::Error => (&mut metrics.test_error_count, &mut stats.errors),
            Failure::Assertion => (&mut metrics.test_fail_count, &mut stats.failures),
        };
        *column_count += 1;
        *all_count += 1;
        metrics.score += tally.score;
        metrics.total_latency_ms += tally.latency_ms;
        metrics.cost += tally.cost;
        if let Some(usage) = &tally.token_usage {
            add_tokens(&mut metrics.token_usage, usage);
            add_tokens(&mut stats.token_usage, usage);
        }
        metrics.assert_pass_count += tally.asserts_passed;
        metrics.assert_fail_count += tally.asserts_failed;
        for named in &tally.named {
            add(&mut metrics.named_scores, &named.name, named.score);
            add(&mut metrics.named_score_weights, &named.name, named.weight);
            add(&mut metrics.named_scores_count, &named.name, named.count);
        }
    }
    for column in &mut evaluation.columns {
        derive(column, derived);
    }
    evaluation.described = tallies.values().any(|tally| tally.described);
    evaluation.stats = stats;
}

fn contributions(verdict: &crate::model::GradingResult, name: &str) -> f64 {
    let of_metric = |component: &&crate::model::GradingResult| {
        component.assertion.as_ref().and_then(|assertion| assertion.get("metric")).and_then(Value::as_str)
            == Some(name)
    };
    (verdict.component_results.iter().flatten().filter(of_metric).count() as f64).max(1.0)
}

fn derive(column: &mut Column, derived: &[DerivedMetric]) {
    let metrics = &mut column.metrics;
    let count = metrics.test_pass_count + metrics.test_fail_count + metrics.test_error_count;
    for metric in derived {
        let mut known: Object = metrics.named_scores.clone();
        known.insert("__count".to_owned(), json!(count));
        let value = match evaluate(&metric.value, &known) {
            Ok(value) => value,
            Err(error) => {
                tracing::warn!(metric = %metric.name, %error, "a derived metric is 0: its expression failed");
                0.0
            }
        };
        metrics.named_scores.insert(metric.name.clone(), number_value(value));
    }
}

/// An arithmetic expression over names.
fn evaluate(expression: &str, known: &Object) -> Result<f64, String> {
    let code = format!(
        "function (known) {{ const {{abs, ceil, cbrt, cos, exp, floor, log, log10, log2, max, min, pow, round, sin, sqrt, tan, PI: pi, E: e}} = Math;\
         const mean = (...all) => all.flat().reduce((a, b) => a + b, 0) / all.flat().length;\
         const sum = (...all) => all.flat().reduce((a, b) => a + b, 0);\
         const f = new Function('known', 'abs', 'ceil', 'exp', 'floor', 'log', 'max', 'min', 'pow', 'round', 'sqrt', 'mean', 'sum', 'with (known) {{ return (' + {} + ') }}');\
         return Number(f(known, abs, ceil, exp, floor, log, max, min, pow, round, sqrt, mean, sum)) }}",
        json!(expression.replace('^', "**"))
    );
    match javascript::call(&code, &[Value::Object(known.clone())]) {
        Ok(value) => value.as_f64().ok_or_else(|| "it gives no number".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_computed() {
        let known = json!({"a": 3, "b": 4, "__count": 2});
        let known = known.as_object().unwrap();
        assert_eq!(evaluate("sqrt(a^2 + b^2)", known), Ok(5.0));
        assert_eq!(evaluate("a / __count", known), Ok(1.5));
        assert_eq!(evaluate("a > b ? 1 : max(a, b)", known), Ok(4.0));
        assert!(evaluate("missing * 2", known).is_err());
    }
}
