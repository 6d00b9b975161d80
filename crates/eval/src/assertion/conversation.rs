//! Whether the answers of a conversation have to do with what was said before.

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};

use super::error::{GraderError, Result};
use super::judge::Judge;
use super::structured::objects;
use crate::grading::{Grader, GradingContext};
use crate::model::GradingResult;
use crate::template::value::to_text;

/// The type about conversations.
pub const GRADERS: &[(&str, Grader)] = &[("conversation-relevance", Grader::Async(relevance))];

const VERDICT: &str = "Decide whether the last answer in a conversation has to do with what the user said in it. Greetings and the like do.\n\n\
<conversation>\n{% for message in messages %}User: {{ message.input }}\nAssistant: {{ message.output }}\n{% endfor %}</conversation>\n\n\
Answer with one JSON object and nothing else: {\"verdict\": \"yes\" or \"no\", \"reason\": text, only for no}";

fn relevance<'a>(cx: &'a GradingContext<'a>) -> BoxFuture<'a, GradingResult> {
    async move {
        let turns = match cx.vars.get("_conversation").and_then(Value::as_array) {
            Some(turns) if !turns.is_empty() => turns.clone(),
            _ => vec![json!({"input": cx.prompt, "output": cx.output_text})],
        };
        let size = cx.assertion.config.as_ref().and_then(|config| config.get("windowSize")?.as_u64());
        let size =
            size.filter(|size| *size > 0).map_or(5, |size| usize::try_from(size).unwrap_or(usize::MAX));
        let mut judge = Judge::new(cx);
        let mut relevant = 0usize;
        let mut problems = Vec::new();
        for end in 1..=turns.len() {
            let window = &turns[end.saturating_sub(size)..end];
            match window_is_relevant(&mut judge, window).await {
                Ok(None) => relevant += 1,
                Ok(Some(problem)) => problems.push(problem),
                Err(error) => return judge.verdict(Err(error)),
            }
        }
        let score = relevant as f64 / turns.len() as f64;
        let enough = score >= cx.assertion.threshold.unwrap_or(0.5) - f64::EPSILON;
        let negated = cx.assertion.negated;
        let mut reason = format!("{relevant} out of {} conversation windows were relevant", turns.len());
        for problem in problems.iter().filter(|problem| !problem.is_empty()) {
            reason.push('\n');
            reason.push_str(problem);
        }
        judge.verdict(Ok(GradingResult {
            pass: enough != negated,
            score: if negated { 1.0 - score } else { score },
            reason,
            ..GradingResult::default()
        }))
    }
    .boxed()
}

/// Returns why the window's last answer is not relevant; none if it is.
async fn window_is_relevant(judge: &mut Judge<'_>, window: &[Value]) -> Result<Option<String>> {
    let said = judge.ask("conversation-relevance", VERDICT, &[("messages", json!(window))]).await?;
    let object = match &said {
        Value::Object(_) => Some(said.clone()),
        other => objects(&to_text(other)).into_iter().next(),
    };
    let field = |key: &str| object.as_ref().and_then(|object| object.get(key)?.as_str());
    match field("verdict") {
        Some("yes") => Ok(None),
        Some("no") => Ok(Some(field("reason").unwrap_or_default().to_owned())),
        _ => Err(GraderError::NoVerdict(to_text(&said))),
    }
}
