//! Checks by models that label a text: classifiers and moderators.

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::Value;

use super::judge::Judge;
use crate::grading::{Grader, GradingContext};
use crate::model::{GradingResult, number};
use crate::template::value::to_text;

/// The types that label.
pub const GRADERS: &[(&str, Grader)] =
    &[("classifier", Grader::Async(classifier)), ("moderation", Grader::Async(moderation))];

fn classifier<'a>(cx: &'a GradingContext<'a>) -> BoxFuture<'a, GradingResult> {
    async move {
        let mut judge = Judge::new(cx);
        let classes = judge.classes(cx.output_text).await;
        judge.verdict(classes.map(|classes| {
            let wanted = cx.value.filter(|value| !value.is_null()).map(to_text);
            let (name, score) = match &wanted {
                Some(class) => (
                    format!("Classification {class}"),
                    classes.get(class).and_then(Value::as_f64).unwrap_or(0.0),
                ),
                None => {
                    let best = classes.values().filter_map(Value::as_f64).fold(0.0, f64::max);
                    ("Maximum classification".to_owned(), best)
                }
            };
            let threshold = cx.assertion.threshold.unwrap_or(1.0);
            let enough = score >= threshold - f64::EPSILON;
            let negated = cx.assertion.negated;
            let compared = if enough { ">=" } else { "<" };
            GradingResult {
                pass: enough != negated,
                score: if negated { 1.0 - score } else { score },
                reason: format!("{name} has score {score:.2} {compared} {}", number::text(threshold)),
                ..GradingResult::default()
            }
        }))
    }
    .boxed()
}

fn moderation<'a>(cx: &'a GradingContext<'a>) -> BoxFuture<'a, GradingResult> {
    async move {
        if cx.output_text.is_empty() {
            return GradingResult::of(cx.assertion, true, || "No output to moderate".to_owned());
        }
        let mut judge = Judge::new(cx);
        let flags = judge.flags(&last_message(cx.prompt), cx.output_text).await;
        judge.verdict(flags.map(|flags| {
            let wanted = super::text::list(cx.value);
            let text = |flag: &Value, key: &str| flag.get(key).map(to_text).unwrap_or_default();
            let counted = |flag: &&Value| wanted.is_empty() || wanted.contains(&text(flag, "code"));
            let found: Vec<String> =
                flags.iter().filter(counted).map(|flag| text(flag, "description")).collect();
            let reason = match found.is_empty() {
                true => "No moderation flags detected".to_owned(),
                false => format!("Moderation flags detected: {}", found.join(", ")),
            };
            GradingResult { reason, ..GradingResult::of(cx.assertion, found.is_empty(), String::new) }
        }))
    }
    .boxed()
}

/// Returns the last message of the user in a prompt that is a chat; else the whole prompt.
fn last_message(prompt: &str) -> String {
    let chat = serde_json::from_str::<Value>(prompt).ok();
    let last = chat.as_ref().and_then(Value::as_array).and_then(|messages| messages.last());
    last.and_then(|message| message.get("content")).map_or_else(|| prompt.to_owned(), to_text)
}
