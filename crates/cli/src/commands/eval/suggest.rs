//! Prompts that a model suggests, for the user to choose from.

use std::io::BufRead;

use anyhow::{Context, Result};
use sandcove_eval::config::Suite;
use sandcove_eval::generate;

use crate::output::{note, out};

/// The variants of the first prompt that the user wants to test. Without an answer none is.
pub async fn chosen(suite: &Suite, count: usize, cache: bool) -> Result<Vec<String>> {
    let mut chosen = Vec::new();
    for prompt in generate::variants(suite, count, cache).await? {
        out!("{prompt}\n");
        note!("Test this prompt? (y/N)");
        let mut answer = String::new();
        std::io::stdin().lock().read_line(&mut answer).context("failed to read the answer")?;
        if ["y", "yes"].contains(&answer.trim().to_lowercase().as_str()) {
            chosen.push(prompt);
        }
    }
    Ok(chosen)
}
