//! What rows add up to: columns, statistics, derived metrics.

use serde_json::{Value, json};

use crate::assertion::aggregate::{add, add_tokens, zero_tokens};
use crate::config::DerivedMetric;
use crate::javascript;
use crate::model::{Column, Failure, Object, Row, Stats, TestCase, number_value};

/// The names of all variables, in the order they appear.
pub fn variable_names(tests: &[TestCase]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for name in tests.iter().flat_map(|test| test.vars.keys()) {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    names
}

/// Adds rows to their columns and to the whole.
pub fn add_up(mut columns: Vec<Column>, rows: &[Row], derived: &[DerivedMetric]) -> (Vec<Column>, Stats) {
    let mut stats = Stats { token_usage: zero_tokens(), ..Stats::default() };
    stats.token_usage.assertions = Some(Box::new(zero_tokens()));
    for column in &mut columns {
        column.metrics.token_usage.clone_from(&stats.token_usage);
    }
    for row in rows {
        let metrics = &mut columns[row.prompt_idx].metrics;
        let (column_count, all_count) = match (row.success, row.failure_reason) {
            (true, _) => (&mut metrics.test_pass_count, &mut stats.successes),
            (false, Failure::Error) => (&mut metrics.test_error_count, &mut stats.errors),
            (false, _) => (&mut metrics.test_fail_count, &mut stats.failures),
        };
        *column_count += 1;
        *all_count += 1;
        metrics.score += row.score;
        metrics.total_latency_ms += row.latency_ms;
        metrics.cost += row.cost;
        if let Some(usage) = &row.token_usage {
            add_tokens(&mut metrics.token_usage, usage);
            add_tokens(&mut stats.token_usage, usage);
        }
        let Some(verdict) = &row.grading_result else { continue };
        for component in verdict.component_results.iter().flatten() {
            let count =
                if component.pass { &mut metrics.assert_pass_count } else { &mut metrics.assert_fail_count };
            *count += 1;
        }
        for (name, score) in verdict.named_scores.iter().flatten() {
            let weights = verdict.named_score_weights.as_ref();
            let weight = weights.and_then(|weights| weights.get(name)).and_then(Value::as_f64).unwrap_or(1.0);
            add(&mut metrics.named_scores, name, score.as_f64().unwrap_or(0.0) * weight);
            add(&mut metrics.named_score_weights, name, weight);
            add(&mut metrics.named_scores_count, name, contributions(verdict, name));
        }
    }
    for column in &mut columns {
        derive(column, derived);
    }
    (columns, stats)
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
