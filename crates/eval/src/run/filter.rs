//! Filters: the tests, providers and prompts of a suite that are run.

use serde_json::Value;

use super::RunError;
use crate::config::Suite;
use crate::javascript;
use crate::model::{Failure, Object, Row};
use crate::store::recording::{Recorded, Which};

/// The filters of the command line, in the order they are applied.
#[derive(Debug, Clone, Default)]
pub struct Filters {
    /// A regular expression for descriptions.
    pub pattern: Option<String>,
    /// Entries that the metadata must have.
    pub metadata: Vec<(String, String)>,
    /// A regular expression for ids and labels of providers.
    pub providers: Option<String>,
    /// A regular expression for ids and labels of prompts.
    pub prompts: Option<String>,
    /// The first test and the one after the last: `a:b`.
    pub range: Option<String>,
    /// The number of tests from the start.
    pub first: Option<usize>,
    /// The number of tests chosen at random.
    pub sample: Option<usize>,
    /// The seed of the random choice.
    pub seed: Option<u64>,
    /// The result file or run that tests must not have passed in.
    pub failing: Option<String>,
    /// The result file or run that tests must have failed in, without errors.
    pub failing_only: Option<String>,
    /// The result file or run that tests must have ended in with an error.
    pub errors_only: Option<String>,
}

impl Filters {
    /// Makes a seed for the random choice.
    pub fn random_seed() -> u64 {
        rand::random()
    }

    /// Removes from the suite what is not to be run.
    ///
    /// # Errors
    /// When a filter is malformed, or the results it names cannot be read.
    pub async fn apply(&self, suite: &mut Suite) -> Result<(), RunError> {
        if let Some(pattern) = &self.providers {
            let names =
                suite.providers.iter().map(|spec| vec![spec.id.clone(), spec.name().to_owned()]).collect();
            keep(&mut suite.providers, &matching(pattern, names)?);
        }
        if let Some(pattern) = &self.prompts {
            let names = suite.prompts.iter().map(|prompt| vec![prompt.id(), prompt.label.clone()]).collect();
            keep(&mut suite.prompts, &matching(pattern, names)?);
        }
        // As promptfoo: what the default test says holds for all, and chooses none.
        suite.tests.retain(|test| {
            let metadata = test.get("metadata");
            let own = |key: &String| metadata.and_then(|metadata| metadata.get(key));
            self.metadata.iter().all(|(key, wanted)| has(own(key), wanted))
        });
        type RowFilter = fn(&Row) -> bool;
        let results: [(&Option<String>, RowFilter); 3] = [
            (&self.failing, |row| !row.success),
            (&self.failing_only, |row| row.failure_reason == Failure::Assertion && !row.success),
            (&self.errors_only, |row| row.failure_reason == Failure::Error),
        ];
        for (source, wanted) in results {
            if let Some(source) = source {
                let rows: Vec<Row> = earlier(source).await?.into_iter().filter(wanted).collect();
                suite.tests.retain(|test| rows.iter().any(|row| same_test(row, test)));
            }
        }
        if let Some(pattern) = &self.pattern {
            let names = suite
                .tests
                .iter()
                .map(|test| {
                    vec![test.get("description").and_then(Value::as_str).unwrap_or_default().to_owned()]
                })
                .collect();
            keep(&mut suite.tests, &matching(pattern, names)?);
        }
        if let Some(range) = &self.range {
            let (start, end) = parse_range(range)?;
            let mut at = 0;
            suite.tests.retain(|_| {
                at += 1;
                at > start && at <= end
            });
        }
        if let Some(first) = self.first {
            suite.tests.truncate(first);
        }
        if let Some(count) = self.sample {
            sample(&mut suite.tests, count, self.seed.unwrap_or_else(Self::random_seed));
        }
        Ok(())
    }
}

/// The rows of a result file, or of the run that is stored under an id.
async fn earlier(source: &str) -> Result<Vec<Row>, RunError> {
    if source.starts_with("eval-") && !std::path::Path::new(source).exists() {
        return Ok(Recorded::open(Some(source)).await?.rows(Which::Failed).await?);
    }
    let text = std::fs::read_to_string(source)
        .map_err(|error| RunError::Unreadable { path: source.to_owned(), source: error })?;
    let wrong = |error| RunError::NotResults { path: source.to_owned(), source: error };
    let mut document: Value = serde_json::from_str(&text).map_err(wrong)?;
    let rows = document.pointer_mut("/results/results").map(Value::take).unwrap_or_default();
    serde_json::from_value(rows).map_err(wrong)
}

fn has(value: Option<&Value>, wanted: &str) -> bool {
    match value {
        Some(Value::Array(items)) => items.iter().any(|item| has(Some(item), wanted)),
        Some(Value::Null) | None => false,
        Some(other) => crate::template::value::to_text(other).contains(wanted),
    }
}

/// Whether a row came from a test: its variables are the test's, or one choice of them.
fn same_test(row: &Row, test: &Object) -> bool {
    let hidden = |name: &str| name.starts_with("_conversation") || name == "sessionId";
    test.get("vars").and_then(Value::as_object).into_iter().flatten().filter(|(name, _)| !hidden(name)).all(
        |(name, value)| match (row.vars.get(name), value) {
            (Some(own), value) if own == value => true,
            (Some(own), Value::Array(choices)) => choices.contains(own),
            (Some(_), Value::String(text)) => text.starts_with("file://"),
            _ => false,
        },
    )
}

fn parse_range(range: &str) -> Result<(usize, usize), RunError> {
    let wrong = || RunError::Range(range.to_owned());
    let (start, end) = range.split_once(':').ok_or_else(wrong)?;
    let number =
        |text: &str, default| if text.is_empty() { Ok(default) } else { text.parse().map_err(|_| wrong()) };
    let (start, end) = (number(start, 0)?, number(end, usize::MAX)?);
    if start > end { Err(wrong()) } else { Ok((start, end)) }
}

fn matching(pattern: &str, names: Vec<Vec<String>>) -> Result<Vec<bool>, RunError> {
    let code =
        "(p, all) => { const r = new RegExp(p); return all.map(names => names.some(name => r.test(name))) }";
    let wrong = |reason| RunError::Pattern { pattern: pattern.to_owned(), reason };
    match javascript::call(code, &[pattern.into(), serde_json::json!(names)]) {
        Ok(Value::Array(found)) => Ok(found.iter().map(|found| *found == Value::Bool(true)).collect()),
        Ok(_) => Err(wrong("the engine returned no list".to_owned())),
        Err(error) => Err(wrong(error.to_string())),
    }
}

fn keep<T>(items: &mut Vec<T>, wanted: &[bool]) {
    let mut wanted = wanted.iter();
    items.retain(|_| wanted.next() == Some(&true));
}

/// Keeps some by chance: the first of a shuffled list, in its order. The same seed chooses what it chooses in promptfoo.
fn sample<T>(items: &mut Vec<T>, count: usize, seed: u64) {
    let mut dice = Dice::new(seed);
    for at in (1..items.len()).rev() {
        let other = (dice.roll() * (at + 1) as f64) as usize;
        items.swap(at, other.min(at));
    }
    items.truncate(count);
}

/// Numbers by chance, which follow from a seed.
struct Dice(u32);

impl Dice {
    fn new(seed: u64) -> Self {
        let start: u32 = 2_166_136_261;
        Self(
            seed.to_string()
                .bytes()
                .fold(start, |state, digit| (state ^ u32::from(digit)).wrapping_mul(16_777_619)),
        )
    }

    /// Returns a number from 0 up to 1.
    fn roll(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(1_831_565_813);
        let mut value = self.0;
        value = (value ^ (value >> 15)).wrapping_mul(value | 1);
        value ^= value.wrapping_add((value ^ (value >> 7)).wrapping_mul(value | 61));
        f64::from(value ^ (value >> 14)) / 4_294_967_296.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_half_open() {
        assert_eq!(parse_range("2:4").unwrap(), (2, 4));
        assert_eq!(parse_range(":3").unwrap(), (0, 3));
        assert!(parse_range("-1:2").is_err());
        assert!(parse_range("5:2").is_err());
    }

    #[test]
    fn a_seed_chooses_what_promptfoo_chooses() {
        let of = |seed, count| {
            let mut items: Vec<u32> = (0..50).collect();
            sample(&mut items, count, seed);
            items
        };
        assert_eq!(of(7, 5), [0, 18, 16, 22, 32]);
        assert_eq!(of(42, 5), [23, 16, 35, 2, 48]);
        let mut all = of(7, 60);
        all.sort_unstable();
        assert_eq!(all, (0..50).collect::<Vec<u32>>());
    }
}
