//! Scores of how much an answer has in common with a text: BLEU, GLEU, ROUGE-N.

use std::collections::HashMap;

use crate::grading::{Grader, GradingContext};
use crate::model::{GradingResult, number};
use crate::template::value::to_text;

pub const GRADERS: &[(&str, Grader)] =
    &[("bleu", Grader::Pure(bleu)), ("gleu", Grader::Pure(gleu)), ("rouge-n", Grader::Pure(rouge_n))];

/// The verdict of a score; `not-` turns both around.
fn scored(cx: &GradingContext<'_>, name: &str, score: f64, default: f64) -> GradingResult {
    let threshold = cx.assertion.threshold.unwrap_or(default);
    let pass = (score >= threshold) != cx.assertion.negated;
    let shown = if cx.assertion.negated { 1.0 - score } else { score };
    let compared = if score >= threshold { "greater than or equal to" } else { "less than" };
    let digits = if name == "ROUGE-N" { 2 } else { 4 };
    let compared =
        format!("{name} score {score:.digits$} is {compared} threshold {}", number::text(threshold));
    let reason = if pass && name != "ROUGE-N" { "Assertion passed".to_owned() } else { compared };
    GradingResult { pass, score: shown, reason, ..GradingResult::default() }
}

fn references(cx: &GradingContext<'_>) -> Vec<String> {
    match cx.value {
        Some(serde_json::Value::Array(items)) => items.iter().map(to_text).collect(),
        Some(other) => vec![to_text(other)],
        None => Vec::new(),
    }
}

fn words(text: &str) -> Vec<String> {
    text.to_lowercase().split_whitespace().map(str::to_owned).collect()
}

fn counts(words: &[String], length: usize) -> HashMap<&[String], usize> {
    let mut counts = HashMap::new();
    for gram in words.windows(length) {
        *counts.entry(gram).or_insert(0) += 1;
    }
    counts
}

fn bleu(cx: &GradingContext<'_>) -> GradingResult {
    let candidate = words(cx.output_text);
    let references: Vec<Vec<String>> = references(cx).iter().map(|text| words(text)).collect();
    scored(cx, "BLEU", bleu_of(&candidate, &references), 0.5)
}

fn bleu_of(candidate: &[String], references: &[Vec<String>]) -> f64 {
    if candidate.is_empty() || references.is_empty() {
        return 0.0;
    }
    let mut logs = Vec::new();
    for length in 1..=4 {
        let own = counts(candidate, length);
        let total: usize = own.values().sum();
        if total == 0 {
            continue;
        }
        let theirs: Vec<_> = references.iter().map(|reference| counts(reference, length)).collect();
        let best =
            |gram: &[String]| theirs.iter().filter_map(|counts| counts.get(gram)).max().copied().unwrap_or(0);
        let matched: usize = own.iter().map(|(gram, count)| (*count).min(best(gram))).sum();
        logs.push(if matched == 0 { 1e-7 } else { matched as f64 / total as f64 }.ln());
    }
    let mean = logs.iter().sum::<f64>() / logs.len() as f64;
    let closest =
        references.iter().map(Vec::len).min_by_key(|length| (length.abs_diff(candidate.len()), *length));
    let (own, closest) = (candidate.len() as f64, closest.unwrap_or(0) as f64);
    let penalty = if own > closest { 1.0 } else { (1.0 - closest / own).exp() };
    penalty * mean.exp()
}

fn gleu(cx: &GradingContext<'_>) -> GradingResult {
    let plain = |text: &str| -> Vec<String> {
        words(text).iter().map(|word| word.trim_end_matches('.').to_owned()).collect()
    };
    let candidate = plain(cx.output_text);
    let best = references(cx).iter().map(|text| gleu_of(&candidate, &plain(text))).fold(0.0, f64::max);
    scored(cx, "GLEU", best, 0.5)
}

fn gleu_of(candidate: &[String], reference: &[String]) -> f64 {
    if candidate == reference {
        return 1.0;
    }
    let (mut matched, mut own, mut theirs) = (0, 0, 0);
    for length in 1..=4 {
        let (a, b) = (counts(candidate, length), counts(reference, length));
        own += a.values().sum::<usize>();
        theirs += b.values().sum::<usize>();
        matched +=
            a.iter().map(|(gram, count)| (*count).min(b.get(gram).copied().unwrap_or(0))).sum::<usize>();
    }
    let share = |total: usize| if total == 0 { 0.0 } else { matched as f64 / total as f64 };
    share(own).min(share(theirs))
}

fn rouge_n(cx: &GradingContext<'_>) -> GradingResult {
    let reference = cx.value.map(to_text).unwrap_or_default();
    let (candidate, reference) = (treebank(cx.output_text), treebank(&reference));
    let (a, b) = (counts(&candidate, 1), counts(&reference, 1));
    let matched: usize = a.iter().map(|(gram, count)| (*count).min(b.get(gram).copied().unwrap_or(0))).sum();
    let share = |total: usize| if total == 0 { 0.0 } else { matched as f64 / total as f64 };
    let (precision, recall) = (share(candidate.len()), share(reference.len()));
    let score = if matched == 0 { 0.0 } else { 2.0 * precision * recall / (precision + recall) };
    scored(cx, "ROUGE-N", score, 0.75)
}

/// Words the Penn Treebank way: punctuation and contractions stand alone.
fn treebank(text: &str) -> Vec<String> {
    let mut out = String::new();
    let chars: Vec<char> = text.to_lowercase().chars().collect();
    for (at, c) in chars.iter().enumerate() {
        let ends =
            chars[at + 1..].iter().all(|c| c.is_whitespace() || matches!(c, '"' | '\'' | ')' | ']' | '}'));
        let alone = ";:@#$%&?!()[]{}<>\"".contains(*c)
            || (*c == ',' && !chars.get(at + 1).is_some_and(char::is_ascii_digit))
            || (*c == '.' && ends);
        if alone {
            out.extend([' ', *c, ' ']);
        } else {
            out.push(*c);
        }
    }
    for ending in ["n't", "'s", "'re", "'ve", "'ll", "'d", "'m"] {
        out = out.replace(&format!("{ending} "), &format!(" {ending} "));
        if let Some(start) = out.strip_suffix(ending) {
            out = format!("{start} {ending}");
        }
    }
    out.split_whitespace().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_score_one() {
        let text = words("the cat sat on the mat");
        assert!((bleu_of(&text, std::slice::from_ref(&text)) - 1.0).abs() < 1e-12);
        assert_eq!(gleu_of(&text, &text), 1.0);
        assert_eq!(bleu_of(&[], &[text]), 0.0);
    }

    #[test]
    fn punctuation_stands_alone() {
        assert_eq!(treebank("Don't stop, it's 1,000."), ["do", "n't", "stop", ",", "it", "'s", "1,000", "."]);
    }
}
