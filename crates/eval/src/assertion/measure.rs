//! Checks of what an answer took, and of what the provider says about it.

use crate::grading::{Grader, GradingContext};
use crate::model::{GradingResult, number};
use crate::template::value::to_text;

pub const GRADERS: &[(&str, Grader)] = &[
    ("latency", Grader::Pure(latency)),
    ("cost", Grader::Pure(cost)),
    ("perplexity", Grader::Pure(perplexity)),
    ("perplexity-score", Grader::Pure(perplexity_score)),
    ("finish-reason", Grader::Pure(finish_reason)),
    ("guardrails", Grader::Pure(guardrails)),
];

fn latency(cx: &GradingContext<'_>) -> GradingResult {
    let Some(threshold) = cx.assertion.threshold else {
        return GradingResult::broken("`latency` needs a `threshold`");
    };
    let cached = if cx.response.cached == Some(true) { " (the answer came from the cache)" } else { "" };
    GradingResult::of(cx.assertion, cx.latency_ms <= threshold, || {
        let compared = if cx.assertion.negated { "less than or equal to" } else { "greater than" };
        format!("Latency {}ms is {compared} threshold {threshold}ms{cached}", number::text(cx.latency_ms))
    })
}

fn cost(cx: &GradingContext<'_>) -> GradingResult {
    let Some(threshold) = cx.assertion.threshold else {
        return GradingResult::broken("`cost` needs a `threshold`");
    };
    if cx.response.has_unknown_price() {
        let reason = "The price of the model is unknown: set `config.inputCost` and `config.outputCost`, in dollars for a token";
        return GradingResult::failed(reason);
    }
    let Some(cost) = cx.response.cost else {
        return GradingResult::broken("`cost` was asked for, but the provider tells no cost");
    };
    GradingResult::of(cx.assertion, cost <= threshold, || {
        let compared = if cx.assertion.negated { "less than or equal to" } else { "greater than" };
        // Two digits that count, as people write them.
        let digits = (1.0 - cost.abs().log10().floor()).clamp(0.0, 20.0) as usize;
        format!("Cost {cost:.digits$} is {compared} threshold {}", number::text(threshold))
    })
}

fn mean_log_prob(cx: &GradingContext<'_>) -> Option<f64> {
    let log_probs = cx.response.log_probs.as_ref().filter(|list| !list.is_empty())?;
    Some(log_probs.iter().sum::<f64>() / log_probs.len() as f64)
}

fn perplexity(cx: &GradingContext<'_>) -> GradingResult {
    let Some(mean) = mean_log_prob(cx) else {
        return GradingResult::broken("`perplexity` needs log probabilities, and the provider gave none");
    };
    let perplexity = (-mean).exp();
    let holds = cx.assertion.threshold.is_none_or(|threshold| perplexity <= threshold);
    GradingResult::of(cx.assertion, holds, || {
        let compared = if cx.assertion.negated { "less than or equal to" } else { "greater than" };
        format!(
            "Perplexity {perplexity:.2} is {compared} threshold {}",
            cx.assertion.threshold.unwrap_or_default()
        )
    })
}

fn perplexity_score(cx: &GradingContext<'_>) -> GradingResult {
    let Some(mean) = mean_log_prob(cx) else {
        return GradingResult::broken(
            "`perplexity-score` needs log probabilities, and the provider gave none",
        );
    };
    let score = 1.0 / (1.0 + (-mean).exp());
    let pass = cx.assertion.threshold.is_none_or(|threshold| score >= threshold) != cx.assertion.negated;
    let score = if cx.assertion.negated { 1.0 - score } else { score };
    if pass {
        return GradingResult::passed(score, "Assertion passed");
    }
    let reason = format!(
        "Perplexity score {score:.2} is less than threshold {}",
        cx.assertion.threshold.unwrap_or_default()
    );
    GradingResult { score, ..GradingResult::failed(reason) }
}

fn finish_reason(cx: &GradingContext<'_>) -> GradingResult {
    let wanted = cx.value.map(to_text).unwrap_or_default();
    let Some(reason) = &cx.response.finish_reason else {
        let missing = || "Provider did not supply stop/finish reason".to_owned();
        return GradingResult::of(cx.assertion, false, missing);
    };
    GradingResult::of(cx.assertion, reason.to_lowercase() == wanted.to_lowercase(), || {
        let not = if cx.assertion.negated { "not " } else { "" };
        format!("Expected stop reason {not}\"{wanted}\" but got \"{reason}\"")
    })
}

/// Whether the provider's guard let everything pass. A provider without a guard has nothing to object to.
fn guardrails(cx: &GradingContext<'_>) -> GradingResult {
    let guardrails = cx.response.guardrails.clone().unwrap_or_default();
    let flagged = guardrails.flagged == Some(true);
    let pass = flagged == cx.assertion.negated;
    let what = match (guardrails.flagged_input, guardrails.flagged_output) {
        (Some(true), _) => "Prompt",
        (_, Some(true)) => "Output",
        _ => "Content",
    };
    let failed = guardrails.reason.unwrap_or_else(|| format!("{what} failed safety checks"));
    let reason = match (flagged, cx.assertion.negated) {
        (true, true) => format!("Guardrail blocked as expected: {failed}"),
        (true, false) => failed,
        (false, true) => "Content was not blocked by a guardrail".to_owned(),
        (false, false) => "Content passed safety checks".to_owned(),
    };
    GradingResult { pass, score: f64::from(u8::from(pass)), reason, ..GradingResult::default() }
}
