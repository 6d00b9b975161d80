//! Asks a service of the user's for the verdict.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};

use crate::calling::transport::{Request, send_within};
use crate::grading::{Grader, GradingContext};
use crate::model::GradingResult;
use crate::template::value::{to_number, to_text};

/// The type that asks a service.
pub const GRADERS: &[(&str, Grader)] = &[("webhook", Grader::Async(webhook))];

fn webhook<'a>(cx: &'a GradingContext<'a>) -> BoxFuture<'a, GradingResult> {
    async move {
        let url = cx.value.map(to_text).unwrap_or_default();
        let body = json!({"output": cx.output, "context": {"prompt": cx.prompt, "vars": cx.vars}});
        let limit =
            cx.workers.env().get("WEBHOOK_TIMEOUT").and_then(|text| text.parse().ok()).unwrap_or(5000);
        // A service that is not there gives no verdict: the row says so at once, and not after a minute of attempts.
        let request = Request { max_retries: Some(0), ..Request::json(url, &body) };
        match send_within(&request, Duration::from_millis(limit)).await {
            Ok(reply) if (200..300).contains(&reply.status) => verdict(cx, &reply.text),
            Ok(reply) => {
                GradingResult::failed(format!("Webhook error: Webhook response status: {}", reply.status))
            }
            Err(error) => GradingResult::failed(format!("Webhook error: {error}")),
        }
    }
    .boxed()
}

fn verdict(cx: &GradingContext<'_>, text: &str) -> GradingResult {
    let Ok(reply) = serde_json::from_str::<Value>(text) else {
        return GradingResult::failed("Webhook error: the reply is not JSON");
    };
    let negated = cx.assertion.negated;
    // A reply without `pass` is no objection.
    let pass = reply.get("pass").and_then(Value::as_bool) != Some(negated);
    let score = match reply.get("score").map(to_number) {
        None => f64::from(u8::from(pass)),
        Some(score) if negated => 1.0 - score,
        Some(score) => score,
    };
    let reason = reply.get("reason").and_then(Value::as_str).filter(|reason| !reason.is_empty());
    let reason = match (reason, pass) {
        (Some(reason), _) => reason.to_owned(),
        (None, true) => "Assertion passed".to_owned(),
        (None, false) => format!("Webhook returned {negated}"),
    };
    GradingResult { pass, score, reason, ..GradingResult::default() }
}
