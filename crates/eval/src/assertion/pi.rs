//! Scores of the service Pi, which answers a question about an answer with a number.

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};

use super::error::{GraderError, Result};
use super::judge;
use crate::calling::transport::{Request, send};
use crate::grading::{Grader, GradingContext};
use crate::model::GradingResult;

/// The type that Pi decides.
pub const GRADERS: &[(&str, Grader)] = &[("pi", Grader::Async(pi))];

const SERVICE: &str = "https://api.withpi.ai/v1/scoring_system/score";

fn pi<'a>(cx: &'a GradingContext<'a>) -> BoxFuture<'a, GradingResult> {
    async move { score(cx).await.unwrap_or_else(judge::failed) }.boxed()
}

async fn score(cx: &GradingContext<'_>) -> Result<GradingResult> {
    let kind = || cx.assertion.full_kind();
    let Some(Value::String(question)) = cx.value else { return Err(GraderError::PiValue(kind())) };
    let set = |name: &str| cx.workers.env().get(name).filter(|value| !value.is_empty());
    let key = set("WITHPI_API_KEY").ok_or_else(|| GraderError::NoPiKey(kind()))?;
    let url = set("WITHPI_API_URL").unwrap_or_else(|| SERVICE.to_owned());
    let body = json!({
        "llm_input": cx.prompt,
        "llm_output": cx.output_text,
        "scoring_spec": [{"question": question}],
    });
    let reply = send(&Request::json(url, &body).header("x-api-key", key)).await?;
    if !(200..300).contains(&reply.status) {
        return Err(GraderError::Pi(format!("{} {}", reply.status, reply.text.trim())));
    }
    let scores: Value = serde_json::from_str(&reply.text).unwrap_or_default();
    let Some(total) = scores.get("total_score").and_then(Value::as_f64) else {
        return Err(GraderError::Pi(format!("the reply has no `total_score`: {}", reply.text.trim())));
    };
    let negated = cx.assertion.negated;
    let threshold = cx.assertion.threshold.unwrap_or(0.5);
    // A score that only reaches the threshold is not enough.
    let enough = total > threshold;
    Ok(GradingResult {
        pass: enough != negated,
        score: if negated { 1.0 - total } else { total },
        reason: format!("Pi score {total:.2} is {} {threshold}", if enough { ">" } else { "<=" }),
        named_scores: scores.get("question_scores").and_then(Value::as_object).cloned(),
        ..GradingResult::default()
    })
}
