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
            let farther = |best: &GradingResult| match cx.assertion.negated {
                true => result.score < best.score,
                false => result.score > best.score,
            };
            let better = best.as_ref().is_none_or(farther);
            if decided {
                return judge.verdict(Ok(result));
            }
            if better {
                best = Some(result);
            }
        }
        const NONE: &str = "None of the provided values met the similarity threshold";
        judge.verdict(Ok(match best {
            Some(best) if best.pass || !cx.value.is_some_and(Value::is_array) => best,
            Some(best) => GradingResult { reason: NONE.to_owned(), ..best },
            None => GradingResult::failed(NONE),
        }))
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
    let is_distance = cx.assertion.kind == "similar:euclidean";
    let (name, measure, score) = match cx.assertion.kind.as_str() {
        "similar:euclidean" => {
            let distance = a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt();
            ("Distance", distance, 1.0 / (1.0 + distance))
        }
        "similar:dot" => ("Similarity", dot(a, b), dot(a, b)),
        _ => ("Similarity", cosine(a, b), cosine(a, b)),
    };
    let negated = cx.assertion.negated;
    // What is right at the threshold passes, with `not-` too.
    let pass = match is_distance == negated {
        true => measure >= threshold - f64::EPSILON,
        false => measure <= threshold + f64::EPSILON,
    };
    let is_above = pass == (is_distance == negated);
    let compared = match (is_distance, is_above) {
        (true, true) => "greater than",
        (true, false) => "less than or equal to",
        (false, true) => "greater than or equal to",
        (false, false) => "less than",
    };
    GradingResult {
        pass,
        score: if negated { 1.0 - score } else { score },
        reason: format!("{name} {measure:.2} is {compared} threshold {}", number::text(threshold)),
        ..GradingResult::default()
    }
}
