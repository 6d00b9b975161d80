//! Which assertion types there are.

use super::Grader;

/// Finds the grader of a type, without `not-`.
pub fn grader(kind: &str) -> Option<Grader> {
    TABLES.iter().flat_map(|table| table.iter()).find(|(name, _)| *name == kind).map(|(_, grader)| *grader)
}

/// All types, for hints about a misspelt one.
pub fn kinds() -> impl Iterator<Item = &'static str> {
    TABLES.iter().flat_map(|table| table.iter()).map(|(name, _)| *name)
}

const TABLES: &[&[(&str, Grader)]] = &[crate::code::GRADERS];
