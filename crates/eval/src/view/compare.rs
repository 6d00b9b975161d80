//! Another run beside a run.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::Value;
use sqlx::SqliteConnection;

use super::ViewError;
use super::scan::{self, Seen};
use crate::model::Object;

/// The tests of another run by what they are about, and digests of their answers: all that is remembered of it.
#[derive(Debug)]
pub struct Partners {
    /// The other run.
    pub id: String,
    by_vars: HashMap<u64, Vec<i64>>,
    outputs: HashMap<i64, Vec<u64>>,
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
        let mut partners = Self { id: id.to_owned(), by_vars: HashMap::new(), outputs: HashMap::new() };
        scan::each(connection, id, |test, row| {
            let tests = partners.by_vars.entry(about(&row.vars)).or_default();
            if tests.last() != Some(&test) {
                tests.push(test);
            }
            partners.outputs.entry(test).or_default().push(digest(&row.text()));
        })
        .await?;
        Ok(partners)
    }

    /// The other run's test with the same variables: the one at the same place if there are several.
    pub fn of(&self, test: i64, about: u64) -> Option<i64> {
        let tests = self.by_vars.get(&about)?;
        if tests.contains(&test) { Some(test) } else { tests.first().copied() }
    }

    /// Digests of the answers to the same test.
    pub fn outputs(&self, test: i64, row: &Seen) -> &[u64] {
        let partner = self.of(test, about(&row.vars));
        partner.and_then(|partner| self.outputs.get(&partner)).map(Vec::as_slice).unwrap_or_default()
    }
}
