//! Prices of models: a table with its source and date, which users can extend and correct.

use std::collections::HashMap;
use std::path::Path;
use std::sync::LazyLock;

use serde::Deserialize;
use serde_json::Value;

use crate::model::{Object, TokenUsage};
use crate::reading::diagnostic::Diagnostic;
use crate::reading::node::Node;

/// The variable that names a file of prices, in YAML or JSON, which go before the known ones.
pub const VARIABLE: &str = "SANDCOVE_PRICES";

/// Dollars for a million tokens of prompts, and of answers.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
struct Price(f64, f64);

/// The prices of a service, with where and when they were read.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Service {
    #[serde(default, rename = "source")]
    _source: String,
    #[serde(default, rename = "date")]
    _date: String,
    models: HashMap<String, Price>,
}

/// Prices by service and model.
#[derive(Debug, Clone, Default)]
pub struct Prices(HashMap<String, Service>);

/// The list prices that this program was built with.
static KNOWN: LazyLock<Prices> = LazyLock::new(|| {
    // A test parses the table.
    Prices(serde_json::from_str(include_str!("prices.json")).unwrap_or_default())
});

/// Reason why a file of prices was not read.
#[derive(Debug, thiserror::Error)]
pub enum PricesError {
    /// The file could not be read.
    #[error(transparent)]
    Read(#[from] std::io::Error),
    /// The file is not YAML.
    #[error("{0}")]
    Parse(Diagnostic),
    /// The file has no prices by service and model.
    #[error(transparent)]
    Shape(#[from] serde_json::Error),
}

impl Prices {
    /// Reads a file of prices.
    ///
    /// # Errors
    /// If the file cannot be read, or holds something else.
    pub fn read(path: &Path) -> Result<Self, PricesError> {
        let text = std::fs::read_to_string(path)?;
        let node = Node::parse(&text, &path.into()).map_err(PricesError::Parse)?;
        Ok(Self(serde_json::from_value(node.into_value())?))
    }

    /// Returns what an answer cost, in dollars: by the prices for one token in the configuration (`inputCost` and `outputCost`, or
    /// `cost` for both), else by these prices, else by the known ones. Nothing if the price or the number of tokens is unknown.
    pub fn cost(&self, service: &str, model: &str, config: &Object, usage: &TokenUsage) -> Option<f64> {
        let set = |key: &str| config.get(key).or_else(|| config.get("cost")).and_then(Value::as_f64);
        let known = || self.of(service, model).or_else(|| KNOWN.of(service, model));
        let (input, output) = match (set("inputCost"), set("outputCost")) {
            (Some(input), Some(output)) => (input, output),
            (input, output) => {
                let Price(known_input, known_output) = known()?;
                (input.unwrap_or(known_input / 1e6), output.unwrap_or(known_output / 1e6))
            }
        };
        let completion = usage.completion.or_else(|| (output == 0.0).then_some(0.0))?;
        Some(usage.prompt? * input + completion * output)
    }

    /// The price of a model: under its name, else under its name without a date or `-latest`.
    fn of(&self, service: &str, model: &str) -> Option<Price> {
        let models = &self.0.get(service)?.models;
        models.get(model).or_else(|| models.get(undated(model))).copied()
    }
}

/// A model without the date of its version: `gpt-4o` for `gpt-4o-2024-08-06`, `claude-sonnet-4-5` for `claude-sonnet-4-5-20250929`.
fn undated(model: &str) -> &str {
    if let Some(name) = model.strip_suffix("-latest") {
        return name;
    }
    let name = model.trim_end_matches(|c: char| c.is_ascii_digit() || c == '-');
    let date = &model[name.len()..];
    // The first digits may belong to the name: `claude-sonnet-4-5-20250929`.
    let dated = date.char_indices().filter(|(_, c)| *c == '-').map(|(at, _)| at).find(|at| {
        let groups: Vec<usize> = date[at + 1..].split('-').map(str::len).collect();
        groups == [8] || groups == [4, 2, 2]
    });
    dated.map_or(model, |at| &model[..name.len() + at])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tokens() -> TokenUsage {
        TokenUsage { prompt: Some(1000.0), completion: Some(500.0), ..TokenUsage::default() }
    }

    fn cost(prices: &Prices, service: &str, model: &str, config: Value) -> Option<f64> {
        let cost = prices.cost(service, model, config.as_object().unwrap(), &tokens());
        cost.map(|cost| (cost * 1e9).round() / 1e9)
    }

    #[test]
    fn known_models_have_prices() {
        assert!(serde_json::from_str::<HashMap<String, Service>>(include_str!("prices.json")).is_ok());
        let of = |service, model| cost(&Prices::default(), service, model, json!({}));
        assert_eq!(of("openai", "gpt-4o-mini"), Some(0.00045));
        assert_eq!(of("openai", "gpt-4.1-2025-04-14"), Some(0.006));
        assert_eq!(of("openai", "o3-mini"), Some(0.0033));
        assert_eq!(of("openai", "gpt-4o-2024-05-13"), Some(0.0125));
        assert_eq!(of("anthropic", "claude-sonnet-4-5-20250929"), Some(0.0105));
        assert_eq!(of("anthropic", "claude-3-5-haiku-latest"), Some(0.0028));
        assert_eq!(of("openai", "gpt-9"), None);
        assert_eq!(of("groq", "gpt-4o"), None);
    }

    #[test]
    fn users_set_prices() {
        let none = Prices::default();
        assert_eq!(cost(&none, "openai", "gpt-9", json!({"cost": 0.001})), Some(1.5));
        let config = json!({"inputCost": 0.001, "outputCost": 0.002});
        assert_eq!(cost(&none, "openai", "gpt-9", config), Some(2.0));
        assert_eq!(cost(&none, "openai", "gpt-9", json!({"inputCost": 0.001})), None);
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("prices.yaml");
        std::fs::write(&file, "groq: {models: {llama: [1, 2]}}\nopenai: {models: {gpt-4o: [0, 0]}}\n")
            .unwrap();
        let own = Prices::read(&file).unwrap();
        assert_eq!(cost(&own, "groq", "llama", json!({})), Some(0.002));
        assert_eq!(cost(&own, "openai", "gpt-4o", json!({})), Some(0.0));
        assert_eq!(cost(&own, "openai", "gpt-4o-mini", json!({})), Some(0.00045));
        std::fs::write(&file, "groq: {llama: 1}\n").unwrap();
        assert!(Prices::read(&file).is_err());
    }

    #[test]
    fn no_tokens_are_no_price() {
        let config = Object::new();
        let usage = TokenUsage { prompt: Some(1000.0), ..TokenUsage::default() };
        assert_eq!(Prices::default().cost("openai", "gpt-4o", &config, &usage), None);
        let embedded = Prices::default().cost("openai", "text-embedding-3-small", &config, &usage);
        assert_eq!(embedded, Some(0.00002));
    }
}
