//! Another run beside a run.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::Value;
use sqlx::SqliteConnection;

use super::ViewError;
use super::scan::{self, Seen};
use crate::model::Object;

/// An answer of another run, as far as it is remembered.
#[derive(Debug, Clone, Copy)]
pub struct Answer {
    /// The column.
    pub column: usize,
    /// A digest of its text.
    pub digest: u64,
    /// Whether it passed.
    pub passed: bool,
}

/// The tests of another run by what they are about, and its answers.
#[derive(Debug)]
pub struct Partners {
    /// The other run.
    pub id: String,
    by_vars: HashMap<u64, Vec<i64>>,
    answers: HashMap<i64, Vec<Answer>>,
}

/// Returns a digest, which is equal for equal texts.
pub fn digest(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

/// Returns a digest, which is equal for equal variables.
pub fn about(vars: &Object) -> u64 {
    let mut pairs: Vec<(&String, &Value)> = vars.iter().collect();
    pairs.sort_by_key(|(name, _)| name.as_str());
    let mut hasher = DefaultHasher::new();
    for (name, value) in pairs {
        (name, value.to_string()).hash(&mut hasher);
    }
    hasher.finish()
}

impl Partners {
    /// Reads the other run.
    pub async fn read(connection: &mut SqliteConnection, id: &str) -> Result<Self, ViewError> {
        let mut partners = Self { id: id.to_owned(), by_vars: HashMap::new(), answers: HashMap::new() };
        scan::each(connection, id, |test, row| {
            let tests = partners.by_vars.entry(about(&row.vars)).or_default();
            if tests.last() != Some(&test) {
                tests.push(test);
            }
            let answer = Answer { column: row.prompt_idx, digest: digest(&row.text()), passed: row.success };
            partners.answers.entry(test).or_default().push(answer);
        })
        .await?;
        Ok(partners)
    }

    /// The other run's test with the same variables: the one at the same place if there are several.
    pub fn of(&self, test: i64, about: u64) -> Option<i64> {
        let tests = self.by_vars.get(&about)?;
        if tests.contains(&test) { Some(test) } else { tests.first().copied() }
    }

    /// The answers to the same test.
    pub fn answers(&self, test: i64, row: &Seen) -> &[Answer] {
        let partner = self.of(test, about(&row.vars));
        partner.and_then(|partner| self.answers.get(&partner)).map(Vec::as_slice).unwrap_or_default()
    }

    /// Whether the same column passed the same test.
    pub fn passed(&self, test: i64, row: &Seen) -> bool {
        self.answers(test, row).iter().any(|answer| answer.column == row.prompt_idx && answer.passed)
    }
}
