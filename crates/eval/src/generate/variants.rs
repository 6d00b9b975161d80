//! Other ways to write a prompt of a suite.

use serde_json::json;

use super::{GenerateError, Model};
use crate::config::Suite;
use crate::template::value::to_text;

const TASK: &str = "You improve prompts for language models. You are given one prompt, and answer with another prompt for the same task: \
    worded or built differently, and at least as clear. Keep every variable in double braces, such as {{name}}, as it is. Answer with \
    the prompt alone, without quotes, explanations or a fence.";

/// Has the model write `count` variants of the first prompt of a suite.
///
/// # Errors
/// When the configuration names no model for it, or the model fails.
pub async fn variants(suite: &Suite, count: usize, cache: bool) -> Result<Vec<String>, GenerateError> {
    let Some(prompt) = suite.prompts.first() else { return Ok(Vec::new()) };
    let model = Model::new(suite, None, cache)?;
    let messages = json!([
        {"role": "system", "content": TASK},
        {"role": "user", "content": "Generate a variant for the following prompt:"},
        {"role": "user", "content": prompt.raw},
    ]);
    let request = messages.to_string();
    let mut all = Vec::new();
    for attempt in 0..count {
        let variant = to_text(&model.ask(&request, "variant", attempt).await?).trim().to_owned();
        if !variant.is_empty() {
            all.push(variant);
        }
    }
    Ok(all)
}
