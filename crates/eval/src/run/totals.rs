//! Adding up rows: columns, statistics, derived metrics.

use std::collections::BTreeMap;

use serde_json::Value;

use super::code_totals::{self, CodeShare};
use crate::config::DerivedMetric;
use crate::expression;
use crate::grading::aggregate::{add, add_tokens, counted_usage, zero_usage};
use crate::model::{
    Column, Evaluation, Failure, GradingResult, Metrics, Object, Row, Stats, TokenUsage, number_value,
};
use crate::template::{Templates, is_template};

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
    cost: Option<f64>,
    token_usage: Option<TokenUsage>,
    asserts_passed: usize,
    asserts_failed: usize,
    named: Vec<Named>,
    described: bool,
    code: Option<CodeShare>,
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
            let count = verdict.map_or(1.0, |verdict| contributions(verdict, name, &row.vars));
            Named { name: name.clone(), score, weight, count }
        });
        Self {
            outcome,
            score: row.score,
            latency_ms: row.latency_ms,
            cost: row.cost,
            token_usage: row.token_usage.clone().map(share_of_tokens),
            asserts_passed: passed,
            asserts_failed: components().count() - passed,
            named: scores.collect(),
            described: row.description.is_some(),
            code: CodeShare::of(row),
        }
    }
}

/// Returns the tokens of a row for the sums, which do not count the requests of grading. Zeros that the sums begin with are left out.
fn share_of_tokens(mut usage: TokenUsage) -> TokenUsage {
    let zero = zero_usage().completion_details.unwrap_or_default();
    let is_zero = |details: &mut Object| {
        details.iter().all(|(name, count)| count.as_f64() == Some(0.0) && zero.contains_key(name))
    };
    usage.completion_details.take_if(is_zero);
    if let Some(grading) = &mut usage.assertions {
        grading.num_requests = None;
        grading.completion_details.take_if(is_zero);
    }
    let is_nothing = |grading: &mut Box<TokenUsage>| {
        let counts = [grading.total, grading.prompt, grading.completion, grading.cached];
        counts.iter().all(|count| count.unwrap_or(0.0) == 0.0)
            && grading.completion_details.is_none()
            && grading.assertions.is_none()
    };
    usage.assertions.take_if(is_nothing);
    usage
}

impl Tally {
    /// Whether the row passed.
    pub fn passed(&self) -> bool {
        self.outcome == Failure::None
    }
}

/// The shares of rows, by test and column.
pub type Tallies = BTreeMap<(usize, usize), Tally>;

/// Adds rows to their columns and to the whole, and returns warnings about derived metrics.
pub fn add_up(evaluation: &mut Evaluation, tallies: &Tallies, derived: &[DerivedMetric]) -> Vec<String> {
    let mut stats = Stats { token_usage: counted_usage(), ..Stats::default() };
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
        metrics.cost += tally.cost.unwrap_or(0.0);
        metrics.unknown_cost_count += usize::from(tally.cost.is_none());
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
    for (at, column) in evaluation.columns.iter_mut().enumerate() {
        let shares = tallies.iter().filter(|((_, column), _)| *column == at);
        column.metrics.code = code_totals::sum(shares.filter_map(|(_, tally)| tally.code.as_ref()));
    }
    let mut warnings: Vec<String> =
        evaluation.columns.iter_mut().flat_map(|column| derive(column, derived)).collect();
    warnings.dedup();
    evaluation.described = tallies.values().any(|tally| tally.described);
    evaluation.stats = stats;
    warnings
}

/// The number of assertions whose metric has a name, which may be a template.
fn contributions(verdict: &GradingResult, name: &str, vars: &Object) -> f64 {
    let of_metric = |component: &&GradingResult| {
        let metric = component.assertion.as_ref().and_then(|assertion| assertion.get("metric"));
        let metric = metric.and_then(Value::as_str);
        metric == Some(name)
            || metric.is_some_and(|metric| {
                is_template(metric)
                    && Templates::new(Object::new()).render(metric, vars).is_ok_and(|metric| metric == name)
            })
    };
    (verdict.component_results.iter().flatten().filter(of_metric).count() as f64).max(1.0)
}

/// Computes the derived metrics of a column, and returns what is wrong with those that are 0 because they have no value.
fn derive(column: &mut Column, derived: &[DerivedMetric]) -> Vec<String> {
    let metrics = &mut column.metrics;
    let count = metrics.test_pass_count + metrics.test_fail_count + metrics.test_error_count;
    let mut warnings = Vec::new();
    for metric in derived {
        let scores = &metrics.named_scores;
        let known = |name: &str| match scores.get(name) {
            Some(score) => Some(score.as_f64().unwrap_or(f64::NAN)),
            None => (name == "__count").then_some(count as f64),
        };
        let value = expression::parse(&metric.value).and_then(|parsed| expression::evaluate(&parsed, &known));
        let value = value.unwrap_or_else(|error| {
            warnings.push(format!("the derived metric `{}` is 0: {error}", metric.name));
            0.0
        });
        metrics.named_scores.insert(metric.name.clone(), number_value(value));
    }
    warnings
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn assertions_are_counted_by_the_rendered_name_of_their_metric() {
        let part = |metric: &str| GradingResult {
            assertion: Some(json!({"type": "contains", "metric": metric})),
            ..GradingResult::passed(1.0, "ok")
        };
        let parts = ["{{ name }}", "Tone", "{{ other }}", "Length"].map(part);
        let verdict = GradingResult { component_results: Some(parts.into()), ..GradingResult::default() };
        let vars = json!({"name": "Tone", "other": "Style"});
        assert_eq!(contributions(&verdict, "Tone", vars.as_object().unwrap()), 2.0);
    }

    #[test]
    fn sums_are_the_same_without_the_zeros_they_begin_with() {
        let details = |value: Value| value.as_object().cloned();
        let spent = TokenUsage {
            total: Some(3.0),
            completion_details: details(json!({"reasoning": 2})),
            ..zero_usage()
        };
        let unknown =
            TokenUsage { completion_details: details(json!({"audio": 0, "reasoning": 0})), ..zero_usage() };
        for usage in [counted_usage(), spent.clone(), unknown.clone(), TokenUsage::default()] {
            for grading in [None, Some(zero_usage()), Some(spent.clone()), Some(unknown.clone())] {
                let mut usage = TokenUsage { assertions: grading.map(Box::new), ..usage.clone() };
                if let Some(grading) = &mut usage.assertions {
                    grading.num_requests = None;
                }
                let (mut whole, mut short) = (counted_usage(), counted_usage());
                add_tokens(&mut whole, &usage);
                add_tokens(&mut short, &share_of_tokens(usage));
                assert_eq!(short, whole);
            }
        }
        assert_eq!(share_of_tokens(counted_usage()).assertions, None);
    }

    #[test]
    fn metrics_are_derived_from_sums_and_from_each_other() {
        let mut column = Column::default();
        column.metrics.test_pass_count = 3;
        column.metrics.named_scores.insert("a".to_owned(), json!(2.5));
        let derived =
            [("mean", "round(a / __count, 2)"), ("twice", "mean * 2"), ("odd", "0 / 0"), ("none", "b")];
        let derived = derived.map(|(name, value)| DerivedMetric { name: name.into(), value: value.into() });
        let warnings = derive(&mut column, &derived);
        let scores = Value::Object(column.metrics.named_scores);
        assert_eq!(scores, json!({"a": 2.5, "mean": 0.83, "twice": 1.66, "odd": null, "none": 0}));
        assert_eq!(warnings, ["the derived metric `none` is 0: no metric is named `b`"]);
    }
}
