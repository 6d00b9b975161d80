//! Aggregating verdicts into one.

use serde_json::{Value, json};

use crate::model::{GradingResult, Object, TokenUsage, number_value};

/// Collects the verdicts of a row or a set, in the order of the configuration.
#[derive(Debug, Default)]
pub struct Aggregate {
    threshold: Option<f64>,
    total: f64,
    weights: f64,
    failed: Option<String>,
    named: Object,
    named_weights: Object,
    tokens: TokenUsage,
    components: Vec<GradingResult>,
    /// A check that means a guard did its work: the row passes.
    guarded: Option<String>,
    row_error: Option<String>,
    is_set: bool,
}

impl Aggregate {
    /// An empty collection, with the threshold of the test or set.
    pub fn new(threshold: Option<f64>) -> Self {
        Self { threshold, tokens: zero_tokens(), ..Self::default() }
    }

    /// As [`new`](Self::new), for a set of assertions: an empty one has a score of 0, and a row without assertions one of 1.
    pub fn of_set(threshold: Option<f64>) -> Self {
        Self { is_set: true, ..Self::new(threshold) }
    }

    /// Adds the verdict of an assertion with this weight and metric.
    pub fn add(&mut self, result: GradingResult, weight: f64, metric: Option<&str>) {
        self.total += result.score * weight;
        self.weights += weight;
        if let Some(metric) = metric {
            self.name(metric, result.score * weight, weight);
        }
        let own_weights = result.named_score_weights.clone().unwrap_or_default();
        // The assertion's own metric is its score, whatever the function says beside.
        let own_scores =
            result.named_scores.iter().flatten().filter(|(name, _)| Some(name.as_str()) != metric);
        for (name, score) in own_scores {
            let own = own_weights.get(name).and_then(Value::as_f64).unwrap_or(1.0);
            let score = score.as_f64().unwrap_or(0.0);
            self.name(name, score * own * weight, own * weight);
        }
        if let Some(tokens) = &result.tokens_used {
            add_tokens(&mut self.tokens, tokens);
        }
        if !result.pass {
            self.failed = Some(result.reason.clone());
            if result.metadata.as_ref().and_then(|metadata| metadata.get("guarded")) == Some(&json!(true)) {
                self.guarded.get_or_insert_with(|| result.reason.clone());
            }
        }
        if self.row_error.is_none() {
            self.row_error.clone_from(&result.row_error);
        }
        let nested = result.component_results.clone().unwrap_or_default();
        let assertion = result.assertion.clone();
        self.components.push(result);
        self.components.extend(nested.into_iter().map(|inner| GradingResult {
            assertion: inner.assertion.clone().or_else(|| assertion.clone()),
            ..inner
        }));
    }

    /// Sets the reason why the row fails, which is otherwise that of its last assertion that does.
    pub fn fail(&mut self, reason: String) {
        self.failed = Some(reason);
    }

    fn name(&mut self, name: &str, score: f64, weight: f64) {
        add(&mut self.named, name, score);
        add(&mut self.named_weights, name, weight);
    }

    /// Returns the verdict.
    pub fn result(self) -> GradingResult {
        if self.components.is_empty() && !self.is_set {
            return GradingResult {
                tokens_used: Some(zero_tokens()),
                ..GradingResult::passed(1.0, "No assertions")
            };
        }
        let score = if self.weights > 0.0 { self.total / self.weights } else { 0.0 };
        let mut pass = self.failed.is_none();
        let mut reason = self.failed.unwrap_or_else(|| "All assertions passed".to_owned());
        if let Some(threshold) = self.threshold {
            pass = score >= threshold;
            let compared = if pass { "≥" } else { "<" };
            reason = format!(
                "Aggregate score {} {compared} {} threshold",
                crate::model::number::with_cents(score),
                crate::model::number::text(threshold)
            );
        }
        if let Some(guarded) = self.guarded {
            pass = true;
            reason = guarded;
        }
        let weights = &self.named_weights;
        let mean = |(name, sum): (&String, &Value)| {
            let weight = weights.get(name).and_then(Value::as_f64).unwrap_or(0.0);
            let sum = sum.as_f64().unwrap_or(0.0);
            (name.clone(), number_value(if weight > 0.0 { sum / weight } else { 0.0 }))
        };
        GradingResult {
            pass,
            score,
            reason,
            named_scores: Some(self.named.iter().map(mean).collect()),
            named_score_weights: Some(self.named_weights.clone()).filter(|weights| !weights.is_empty()),
            tokens_used: Some(self.tokens),
            component_results: Some(self.components),
            row_error: self.row_error,
            ..GradingResult::default()
        }
    }
}

/// Adds to a number in a map.
pub fn add(map: &mut Object, name: &str, n: f64) {
    let before = map.get(name).and_then(Value::as_f64).unwrap_or(0.0);
    map.insert(name.to_owned(), number_value(before + n));
}

/// Returns a usage of no tokens with the details of answers, as rows and sums show it.
pub fn zero_usage() -> TokenUsage {
    const DETAILS: [&str; 5] = [
        "reasoning",
        "acceptedPrediction",
        "rejectedPrediction",
        "cacheReadInputTokens",
        "cacheCreationInputTokens",
    ];
    let details = DETAILS.map(|name| (name.to_owned(), json!(0)));
    TokenUsage { completion_details: Some(details.into_iter().collect()), ..zero_tokens() }
}

/// Returns a usage of no tokens, for answers and for grading them.
pub fn counted_usage() -> TokenUsage {
    TokenUsage { assertions: Some(Box::new(zero_usage())), ..zero_usage() }
}

/// Returns a usage of no tokens.
pub fn zero_tokens() -> TokenUsage {
    TokenUsage {
        total: Some(0.0),
        prompt: Some(0.0),
        completion: Some(0.0),
        cached: Some(0.0),
        num_requests: Some(0.0),
        ..TokenUsage::default()
    }
}

/// Adds up tokens.
pub fn add_tokens(sum: &mut TokenUsage, more: &TokenUsage) {
    let plus =
        |sum: &mut Option<f64>, more: Option<f64>| *sum = Some(sum.unwrap_or(0.0) + more.unwrap_or(0.0));
    plus(&mut sum.total, more.total);
    plus(&mut sum.prompt, more.prompt);
    plus(&mut sum.completion, more.completion);
    plus(&mut sum.cached, more.cached);
    plus(&mut sum.num_requests, more.num_requests);
    for (name, value) in more.completion_details.iter().flatten() {
        add(sum.completion_details.get_or_insert_with(Object::new), name, value.as_f64().unwrap_or(0.0));
    }
    if let Some(more) = &more.assertions {
        add_tokens(sum.assertions.get_or_insert_with(|| Box::new(zero_tokens())), more);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_weighted_means() {
        let mut row = Aggregate::new(None);
        row.add(GradingResult::passed(1.0, "ok"), 3.0, Some("m"));
        row.add(GradingResult::failed("no"), 1.0, Some("m"));
        let result = row.result();
        assert_eq!((result.pass, result.score, result.reason.as_str()), (false, 0.75, "no"));
        assert_eq!(json!(result.named_scores), json!({"m": 0.75}));
        assert_eq!(json!(result.named_score_weights), json!({"m": 4}));
    }

    #[test]
    fn a_threshold_overrules_single_failures() {
        let mut row = Aggregate::new(Some(0.5));
        row.add(GradingResult::passed(1.0, "ok"), 1.0, None);
        row.add(GradingResult::failed("no"), 1.0, None);
        let result = row.result();
        assert!(result.pass);
        assert_eq!(result.reason, "Aggregate score 0.50 ≥ 0.5 threshold");
    }
}
