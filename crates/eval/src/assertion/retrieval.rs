//! Checks of answers that were made from retrieved text: is the text what was needed, and does the answer keep to it?

use std::collections::HashSet;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};

use super::error::{GraderError, Result};
use super::judge::{Judge, scored};
use super::similarity::cosine;
use crate::grading::{Grader, GradingContext};
use crate::model::{GradingResult, Object};
use crate::script::transform;
use crate::template::value::to_text;

/// The types about retrieval.
pub const GRADERS: &[(&str, Grader)] = &[
    ("answer-relevance", Grader::Async(answer_relevance)),
    ("context-recall", Grader::Async(recall)),
    ("context-relevance", Grader::Async(relevance)),
    ("context-faithfulness", Grader::Async(faithfulness)),
];

const QUESTION: &str = "Write the one question that this answer answers. Reply with the question and nothing else.\n\n\
<answer>\n{{ answer }}\n</answer>";

const RECALL: &str = "Go through the sentences of a statement and decide for each whether the context says so.\n\n\
<context>\n{{ context }}\n</context>\n<statement>\n{{ groundTruth }}\n</statement>\n\n\
Write one line for each sentence: its number, the sentence, a short reason, and at the end [Attributed] if the context says so \
or [Not Attributed] if it does not.";

const RELEVANCE: &str = "Copy those sentences of a context that are needed to answer a query, one on each line, unchanged and without anything else. \
If there are none, or the query cannot be answered from the context, reply with: Insufficient Information\n\n\
<query>\n{{ query }}\n</query>\n<context>\n{{ context }}\n</context>";

/// The reply to [`RELEVANCE`] when nothing is relevant.
const INSUFFICIENT: &str = "Insufficient Information";

const STATEMENTS: &str = "Break an answer into the single statements it makes, each a sentence that can be understood alone. \
Write one on each line and nothing else.\n\n<question>\n{{ question }}\n</question>\n<answer>\n{{ answer }}\n</answer>";

const VERDICTS: &str = "Decide for each statement whether it follows from the context.\n\n<context>\n{{ context }}\n</context>\n\
<statements>\n{% for statement in statements %}{{ loop.index }}. {{ statement }}\n{% endfor %}</statements>\n\n\
Write for each statement its number, a short reason, and `Verdict: Yes.` or `Verdict: No.` Then end with one line: \
Final verdict for each statement in order: followed by Yes. or No. for each.";

/// The words before the verdicts in an answer to [`VERDICTS`].
const FINAL: &str = "final verdict for each statement in order:";

/// The retrieved text: one piece, or several.
enum Context {
    Whole(String),
    Pieces(Vec<String>),
}

impl Context {
    fn read(value: &Value) -> Option<Self> {
        match value {
            Value::String(text) if !text.is_empty() => Some(Self::Whole(text.clone())),
            Value::Array(items) if !items.is_empty() => {
                let text = |item: &Value| item.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
                items.iter().map(text).collect::<Option<_>>().map(Self::Pieces)
            }
            _ => None,
        }
    }

    /// Reads the context from the answer if the assertion says how, else from the variable `context`, else from `fallback`.
    async fn of(cx: &GradingContext<'_>, fallback: Option<&str>) -> Result<Self> {
        if let Some(code) = &cx.assertion.context_transform {
            let output = cx.response.provider_transformed_output.as_ref().unwrap_or(cx.output).clone();
            let about =
                json!({"vars": cx.vars, "prompt": {"label": cx.prompt}, "metadata": cx.response.metadata});
            let found = transform::apply(code, output, about, "output", cx.workers)
                .await
                .map_err(GraderError::ContextTransform)?;
            return Self::read(&found).ok_or(GraderError::ContextTransformShape(found));
        }
        let given = cx.vars.get("context").filter(|value| !value.is_null());
        match (given, fallback) {
            (Some(value), _) => Self::read(value).ok_or(GraderError::ContextShape),
            (None, Some(text)) if !text.is_empty() => Ok(Self::Whole(text.to_owned())),
            _ => Err(GraderError::NoContext(cx.assertion.full_kind())),
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Whole(text) => text.clone(),
            Self::Pieces(pieces) => pieces.join("\n\n"),
        }
    }

    fn json(&self) -> Value {
        match self {
            Self::Whole(text) => json!(text),
            Self::Pieces(pieces) => json!(pieces),
        }
    }
}

/// The question that was asked.
fn query<'a>(cx: &'a GradingContext<'a>) -> Result<&'a str> {
    let query = cx.vars.get("query").and_then(Value::as_str);
    query.ok_or_else(|| GraderError::NoQuery(cx.assertion.full_kind()))
}

fn lines(text: &str) -> Vec<&str> {
    text.split('\n').filter(|line| !line.trim().is_empty()).collect()
}

/// Sentences: lines if there are several, else what ends with a mark and a space. A bare number of a list is none.
fn sentences(text: &str) -> Vec<&str> {
    let mut found = lines(text);
    if found.len() < 2 {
        found.clear();
        let mut start = 0;
        let mut before = None;
        for (at, c) in text.char_indices() {
            if c.is_whitespace() && matches!(before, Some('.' | '!' | '?')) {
                found.push(&text[start..at]);
                start = at;
            }
            before = Some(c);
        }
        found.push(&text[start..]);
    }
    let marker = |text: &str| {
        text.strip_suffix(['.', ')']).is_some_and(|n| !n.is_empty() && n.chars().all(|c| c.is_ascii_digit()))
    };
    found.into_iter().map(str::trim).filter(|text| !text.is_empty() && !marker(text)).collect()
}

fn with(mut result: GradingResult, facts: &[(&str, Value)]) -> GradingResult {
    let metadata = result.metadata.get_or_insert_with(Object::new);
    metadata.extend(facts.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
    result
}

fn answer_relevance<'a>(cx: &'a GradingContext<'a>) -> BoxFuture<'a, GradingResult> {
    async move {
        let mut judge = Judge::new(cx);
        let result = guess_the_question(&mut judge, cx).await;
        judge.verdict(result)
    }
    .boxed()
}

/// The similarity of the questions that the answer would fit to the one that was asked.
async fn guess_the_question(judge: &mut Judge<'_>, cx: &GradingContext<'_>) -> Result<GradingResult> {
    let mut questions = Vec::new();
    for _ in 0..3 {
        questions
            .push(judge.ask_text("answer-relevance", QUESTION, &[("answer", json!(cx.output_text))]).await?);
    }
    let asked = cx.vars.get("query").and_then(Value::as_str).unwrap_or(cx.prompt);
    let own = judge.vector(asked).await?;
    let mut listed = Vec::new();
    let mut sum = 0.0;
    for question in &questions {
        let similarity = cosine(&own, &judge.vector(question).await?);
        sum += similarity;
        listed.push(json!({"question": question, "similarity": similarity}));
    }
    let mean = sum / questions.len() as f64;
    Ok(with(
        scored(cx, "Relevance", mean, 0.0),
        &[("generatedQuestions", json!(listed)), ("averageSimilarity", json!(mean))],
    ))
}

fn recall<'a>(cx: &'a GradingContext<'a>) -> BoxFuture<'a, GradingResult> {
    async move {
        let mut judge = Judge::new(cx);
        let result = attributed(&mut judge, cx).await;
        judge.verdict(result)
    }
    .boxed()
}

/// The share of the expected facts that the context says.
async fn attributed(judge: &mut Judge<'_>, cx: &GradingContext<'_>) -> Result<GradingResult> {
    let context = Context::of(cx, Some(cx.prompt)).await?;
    let truth = cx.value.map(to_text).unwrap_or_default();
    let own = [("context", json!(context.text())), ("groundTruth", json!(truth))];
    let said = judge.ask_text("context-recall", RECALL, &own).await?.to_lowercase();
    let decided = lines(&said).into_iter().filter_map(|line| match line.contains("[not attributed]") {
        true => Some(false),
        false => line.contains("[attributed]").then_some(true),
    });
    let decided: Vec<bool> = decided.collect();
    let yes = decided.iter().filter(|yes| **yes).count();
    let score = if decided.is_empty() { 0.0 } else { yes as f64 / decided.len() as f64 };
    let facts = [
        ("context", context.json()),
        ("totalSentences", json!(decided.len())),
        ("attributedSentences", json!(yes)),
        ("score", json!(score)),
    ];
    Ok(with(scored(cx, "Recall", score, 0.0), &facts))
}

fn relevance<'a>(cx: &'a GradingContext<'a>) -> BoxFuture<'a, GradingResult> {
    async move {
        let mut judge = Judge::new(cx);
        let result = needed(&mut judge, cx).await;
        judge.verdict(result)
    }
    .boxed()
}

/// The share of the context that the question needs.
async fn needed(judge: &mut Judge<'_>, cx: &GradingContext<'_>) -> Result<GradingResult> {
    let query = query(cx)?;
    let context = Context::of(cx, None).await?;
    let own = [("context", json!(context.text())), ("query", json!(query))];
    let said = judge.ask_text("context-relevance", RELEVANCE, &own).await?;
    let (total, by_line) = match &context {
        Context::Whole(text) => (sentences(text).len(), lines(text).len() > 1),
        Context::Pieces(pieces) => (pieces.iter().filter(|piece| !piece.trim().is_empty()).count(), true),
    };
    let insufficient = said.contains(INSUFFICIENT);
    let relevant: HashSet<&str> = match (insufficient, by_line) {
        (true, _) => HashSet::new(),
        (false, true) => lines(&said).into_iter().collect(),
        (false, false) => sentences(&said).into_iter().collect(),
    };
    let count = relevant.len().min(total);
    let score = if total == 0 { 0.0 } else { count as f64 / total as f64 };
    let facts = [
        ("context", context.json()),
        ("totalContextUnits", json!(total)),
        ("relevantSentenceCount", json!(count)),
        ("insufficientInformation", json!(insufficient)),
        ("score", json!(score)),
    ];
    Ok(with(scored(cx, "Context relevance", score, 0.0), &facts))
}

fn faithfulness<'a>(cx: &'a GradingContext<'a>) -> BoxFuture<'a, GradingResult> {
    async move {
        let mut judge = Judge::new(cx);
        let result = supported(&mut judge, cx).await;
        judge.verdict(result)
    }
    .boxed()
}

/// The share of the answer's statements that follow from the context.
async fn supported(judge: &mut Judge<'_>, cx: &GradingContext<'_>) -> Result<GradingResult> {
    let query = query(cx)?;
    let context = Context::of(cx, None).await?;
    let own = [("question", json!(query)), ("answer", json!(cx.output_text))];
    let said = to_text(&judge.ask_part("context-faithfulness-longform", "0", STATEMENTS, &own).await?);
    let statements = lines(&said);
    let own = [("context", json!(context.text())), ("statements", json!(statements))];
    let said = to_text(&judge.ask_part("context-faithfulness-nli", "1", VERDICTS, &own).await?);
    let score = share_of_yes(&said, statements.len());
    Ok(with(scored(cx, "Faithfulness", score, 0.0), &[("context", context.json())]))
}

/// The share of statements with a yes; those without a verdict have none.
fn share_of_yes(said: &str, statements: usize) -> f64 {
    let said = said.to_lowercase();
    let (yes, no) = match said.find(FINAL) {
        Some(at) => {
            let verdicts: Vec<&str> =
                said[at + FINAL.len()..].split('.').filter(|part| !part.trim().is_empty()).collect();
            let yes = verdicts.iter().filter(|part| part.contains("yes")).count();
            (yes, verdicts.len() - yes)
        }
        None => (said.matches("verdict: yes").count(), said.matches("verdict: no").count()),
    };
    if statements == 0 || yes + no == 0 {
        return 0.0;
    }
    let without = no + statements.saturating_sub(yes + no);
    (1.0 - without as f64 / statements as f64).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_end_with_a_mark_or_a_line() {
        assert_eq!(sentences("1. One is here. Two, too! "), ["One is here.", "Two, too!"]);
        assert_eq!(sentences("a. b\nc"), ["a. b", "c"]);
        assert_eq!(sentences(" "), Vec::<&str>::new());
    }

    #[test]
    fn verdicts_are_counted() {
        assert_eq!(share_of_yes("… Final verdict for each statement in order: Yes. No. Yes. No.", 4), 0.5);
        assert_eq!(share_of_yes("1. x Verdict: Yes.\n2. y Verdict: No.", 4), 0.25);
        assert_eq!(share_of_yes("nothing", 4), 0.0);
    }
}
