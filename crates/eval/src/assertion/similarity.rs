//! Checks that compare meanings, as vectors of a model.

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::Value;

use super::judge::Judge;
use crate::grading::{Grader, GradingContext};
use crate::model::{GradingResult, number};
use crate::template::value::to_text;

/// The types that compare vectors.
pub const GRADERS: &[(&str, Grader)] = &[
    ("similar", Grader::Async(similar)),
    ("similar:cosine", Grader::Async(similar)),
    ("similar:dot", Grader::Async(similar)),
    ("similar:euclidean", Grader::Async(similar)),
];

fn similar<'a>(cx: &'a GradingContext<'a>) -> BoxFuture<'a, GradingResult> {
    async move {
        let wanted: Vec<String> = match cx.value {
            Some(Value::Array(items)) => items.iter().map(to_text).collect(),
            Some(other) => vec![to_text(other)],
            None => return GradingResult::broken("`similar` needs a `value`"),
        };
        let mut judge = Judge::new(cx);
        let own = match judge.vector(cx.output_text).await {
            Ok(own) => own,
            Err(error) => return judge.verdict(Err(error)),
        };
        let mut best: Option<GradingResult> = None;
        for text in &wanted {
            let result = match judge.vector(text).await {
                Ok(theirs) => compared(cx, &own, &theirs),
                Err(error) => return judge.verdict(Err(error)),
            };
            // One is enough; for `not-` every one must differ.
            let decided = result.pass != cx.assertion.negated;
            let better = best.as_ref().is_none_or(|best| result.score > best.score);
            if decided {
                return judge.verdict(Ok(result));
            }
            if better {
                best = Some(result);
            }
        }
        judge.verdict(Ok(best.unwrap_or_else(|| {
            GradingResult::failed("None of the provided values met the similarity threshold")
        })))
    }
    .boxed()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// The cosine of the angle between two vectors; 0 if one of them is nothing.
pub fn cosine(a: &[f64], b: &[f64]) -> f64 {
    let lengths = dot(a, a).sqrt() * dot(b, b).sqrt();
    if lengths == 0.0 { 0.0 } else { dot(a, b) / lengths }
}

fn compared(cx: &GradingContext<'_>, a: &[f64], b: &[f64]) -> GradingResult {
    let threshold = cx.assertion.threshold.unwrap_or(0.75);
    let (measure, near, score) = match cx.assertion.kind.as_str() {
        "similar:euclidean" => {
            let distance = a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt();
            (distance, distance <= threshold, 1.0 / (1.0 + distance))
        }
        "similar:dot" => (dot(a, b), dot(a, b) >= threshold, dot(a, b)),
        _ => {
            let cosine = cosine(a, b);
            (cosine, cosine >= threshold, cosine)
        }
    };
    let compared = if measure >= threshold { "greater than or equal to" } else { "less than" };
    GradingResult {
        pass: near != cx.assertion.negated,
        score: if cx.assertion.negated { 1.0 - score } else { score },
        reason: format!("Similarity {measure:.2} is {compared} threshold {}", number::text(threshold)),
        ..GradingResult::default()
    }
}
