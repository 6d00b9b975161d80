//! METEOR: how many words of a reference an answer has, in which order, where words with the same stem and synonyms count too.

mod stemmer;
mod wordnet;

use std::path::Path;

use serde_json::Value;

use crate::grading::{Grader, GradingContext};
use crate::model::{GradingResult, number};
use wordnet::WordNet;

/// The graders of the types of assertions that this room has.
pub const GRADERS: &[(&str, Grader)] = &[("meteor", Grader::Pure(meteor))];

/// Returns what to do before answers of a suite in this directory can be graded, if something is missing.
pub fn missing(base: &Path) -> Option<&'static str> {
    WordNet::find(base).is_none().then_some(wordnet::WHERE)
}

/// The parameters of the score.
struct Parameters {
    /// The weight of precision against recall.
    alpha: f64,
    /// How much more many pieces cost than few.
    beta: f64,
    /// The most that the order of words costs.
    gamma: f64,
}

fn meteor(cx: &GradingContext<'_>) -> GradingResult {
    let references = match cx.value {
        Some(Value::String(text)) => vec![text.as_str()],
        Some(Value::Array(list)) => match list.iter().map(Value::as_str).collect() {
            Some(texts) => texts,
            None => return GradingResult::broken("the references of `meteor` must be texts"),
        },
        _ => return GradingResult::broken("`meteor` needs a reference, or a list of them"),
    };
    if cx.output_text.is_empty() || references.is_empty() {
        return GradingResult::broken("`meteor` needs an answer and a reference that are not empty");
    }
    let Some(wordnet) = WordNet::find(cx.workers.base()) else {
        return GradingResult::broken(format!("`meteor` needs the files of WordNet: {}", wordnet::WHERE));
    };
    let parameter =
        |key: &str, default: f64| cx.assertion.raw.get(key).and_then(Value::as_f64).unwrap_or(default);
    let parameters = Parameters {
        alpha: parameter("alpha", 0.9),
        beta: parameter("beta", 3.0),
        gamma: parameter("gamma", 0.5),
    };
    let mut best = 0.0;
    for reference in references {
        match score(cx.output_text, reference, &parameters, &wordnet) {
            Ok(score) => best = f64::max(best, score),
            Err(error) => return GradingResult::broken(format!("failed to read WordNet: {error}")),
        }
    }
    let (threshold, negated) = (cx.assertion.threshold.unwrap_or(0.5), cx.assertion.negated);
    let pass = (best >= threshold) != negated;
    let reason = match pass {
        true => "METEOR assertion passed".to_owned(),
        false => format!("METEOR score {best:.4} did not meet threshold {}", number::text(threshold)),
    };
    GradingResult { pass, score: if negated { 1.0 - best } else { best }, reason, ..GradingResult::default() }
}

/// A word, and its place in the text.
type Placed = (usize, String);

/// Returns the words between spaces, without the dots at their end. Spaces around a text have an empty word before or behind them.
fn words(text: &str) -> Vec<Placed> {
    let mut words: Vec<&str> = text.split_whitespace().collect();
    if text.starts_with(char::is_whitespace) {
        words.insert(0, "");
    }
    if text.ends_with(char::is_whitespace) {
        words.push("");
    }
    let plain = |word: &str| word.trim_end_matches('.').to_lowercase();
    words.into_iter().map(plain).enumerate().collect()
}

fn score(answer: &str, reference: &str, parameters: &Parameters, wordnet: &WordNet) -> std::io::Result<f64> {
    let (mut ours, mut theirs) = (words(answer), words(reference));
    let (precise, complete) = (ours.len() as f64, theirs.len() as f64);
    let mut matches = Vec::new();
    pair(&mut ours, &mut theirs, &mut matches, |word| Ok(vec![word.to_owned()]))?;
    for (_, word) in ours.iter_mut().chain(&mut theirs) {
        *word = stemmer::stem(word);
    }
    pair(&mut ours, &mut theirs, &mut matches, |word| Ok(vec![word.to_owned()]))?;
    pair(&mut ours, &mut theirs, &mut matches, |word| wordnet.synonyms(word))?;
    matches.sort_unstable();
    let count = matches.len() as f64;
    if matches.is_empty() {
        return Ok(0.0);
    }
    let (precision, recall) = (count / precise, count / complete);
    let mean = precision * recall / (parameters.alpha * precision + (1.0 - parameters.alpha) * recall);
    let pieces = 1 + matches.windows(2).filter(|two| two[1] != (two[0].0 + 1, two[0].1 + 1)).count();
    Ok((1.0 - parameters.gamma * (pieces as f64 / count).powf(parameters.beta)) * mean)
}

/// Pairs words of the answer with words of the reference, from the end, where the reference has one that stands for the answer's.
fn pair(
    ours: &mut Vec<Placed>,
    theirs: &mut Vec<Placed>,
    matches: &mut Vec<(usize, usize)>,
    same: impl Fn(&str) -> std::io::Result<Vec<String>>,
) -> std::io::Result<()> {
    for at in (0..ours.len()).rev() {
        let accepted = same(&ours[at].1)?;
        if let Some(found) = theirs.iter().rposition(|(_, word)| accepted.contains(word)) {
            matches.push((ours.remove(at).0, theirs.remove(found).0));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_between_spaces() {
        let plain = |text: &str| words(text).into_iter().map(|(_, word)| word).collect::<Vec<_>>();
        assert_eq!(plain("The  cat... sat."), ["the", "cat", "sat"]);
        assert_eq!(plain(" a\n"), ["", "a", ""]);
    }

    #[test]
    fn order_and_number_of_words_decide() {
        let empty = tempfile::tempdir().unwrap();
        for part in ["noun", "verb", "adj", "adv"] {
            for kind in ["index", "data"] {
                std::fs::write(empty.path().join(format!("{kind}.{part}")), "").unwrap();
            }
        }
        let wordnet = WordNet::at(empty.path().to_owned());
        let parameters = Parameters { alpha: 0.9, beta: 3.0, gamma: 0.5 };
        let of = |answer: &str, reference: &str| score(answer, reference, &parameters, &wordnet).unwrap();
        let whole = of("the cat sat on the mat", "The cat sat on the mat.");
        assert!((whole - (1.0 - 0.5 / 216.0)).abs() < 1e-12);
        assert!(of("on the mat sat the cat", "the cat sat on the mat") < whole);
        assert_eq!(of("dogs", "cat"), 0.0);
        assert!(of("cats running", "cat runs") > 0.4);
    }
}
