//! The strategy `retry` of red teams: attacks that succeeded in earlier runs, beside those of the suite.

use std::collections::{BTreeMap, HashSet};

use sandcove_redteam::generate::Retry;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::attacks::Attacks;
use crate::calling::spec::ProviderSpec;
use crate::model::Object;
use crate::store::{self, Attack, StoreError};

/// Adds the attacks of earlier runs that the suite asks for, and returns how many were added.
///
/// # Errors
/// An error if the stored runs cannot be read.
pub async fn repeat(attacks: &mut Attacks) -> Result<usize, StoreError> {
    let Some(retry) = attacks.retry.clone() else { return Ok(0) };
    let earlier = store::failed_attacks().await?;
    Ok(add(attacks, &retry, earlier))
}

/// The text by which two attacks are the same: the variables, the strategy and the target.
fn key(test: &Value, target: &str) -> String {
    json!([test["vars"], test["metadata"]["strategyId"], target]).to_string()
}

fn targets_of(test: &Value) -> impl Iterator<Item = &str> {
    test["providers"].as_array().into_iter().flatten().filter_map(Value::as_str)
}

/// Adds attacks, the newest first, and returns how many were added.
fn add(attacks: &mut Attacks, retry: &Retry, earlier: Vec<Attack>) -> usize {
    let specs = attacks.document["targets"].as_array().into_iter().flatten();
    let specs: Vec<ProviderSpec> =
        specs.filter_map(|value| ProviderSpec::from_value(value, &attacks.base)).collect();
    let Some(tests) = attacks.document["tests"].as_array_mut() else { return 0 };
    // Also what the suite has: the same attack would have the same outcome twice.
    let mut known: HashSet<String> = HashSet::new();
    let mut sizes: BTreeMap<String, usize> = BTreeMap::new();
    for test in &*tests {
        known.extend(targets_of(test).map(|target| key(test, target)));
        *sizes.entry(test["metadata"]["pluginId"].as_str().unwrap_or_default().to_owned()).or_default() += 1;
    }
    let mut counts: BTreeMap<(String, String), usize> = BTreeMap::new();
    let before = tests.len();
    for Attack { run, provider, test } in earlier {
        let plugin = test["metadata"]["pluginId"].as_str().unwrap_or_default().to_owned();
        let is_wanted = retry.plugins.as_ref().is_none_or(|only| only.contains(&plugin));
        let Some(size) = sizes.get(&plugin).filter(|_| is_wanted) else { continue };
        let id = provider.get("id").and_then(Value::as_str).unwrap_or_default();
        let label = provider.get("label").and_then(Value::as_str).filter(|label| !label.is_empty());
        let same = |spec: &&ProviderSpec| spec.id == id && label.is_none_or(|label| spec.name() == label);
        let Some(target) = specs.iter().find(same) else { continue };
        let count = counts.entry((plugin, target.name().to_owned())).or_default();
        if *count >= retry.most.unwrap_or(*size) || !known.insert(key(&test, target.name())) {
            continue;
        }
        *count += 1;
        tests.push(repeated(test, &run, target.name()));
    }
    let added = tests.len() - before;
    let digest = Sha256::digest(format!("{}{}", attacks.hash, json!(tests[before..])));
    if added > 0 {
        attacks.hash = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        attacks.document["metadata"]["configHash"] = json!(attacks.hash);
        attacks.note();
    }
    added
}

/// A test of an earlier run as one of this suite: for the target that it succeeded against, without what is merged into every test.
fn repeated(mut test: Value, run: &str, target: &str) -> Value {
    if let Some(test) = test.as_object_mut() {
        test.retain(|key, value| {
            ["description", "vars", "assert", "metadata", "prompts", "options", "provider"]
                .contains(&key.as_str())
                && value.as_object().is_none_or(|map| !map.is_empty())
        });
        test.insert("providers".to_owned(), json!([target]));
        let metadata = test.entry("metadata").or_insert_with(|| Value::Object(Object::new()));
        if let Some(metadata) = metadata.as_object_mut() {
            for merged in ["purpose", "entities"] {
                metadata.shift_remove(merged);
            }
            metadata.insert("originalEvalId".to_owned(), json!(run));
            metadata.insert("retry".to_owned(), json!(true));
        }
    }
    test
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test(plugin: &str, text: &str, strategy: &str) -> Value {
        json!({
            "vars": {"code": text}, "providers": ["mine"], "assert": [{"type": format!("promptfoo:redteam:{plugin}")}],
            "metadata": {"pluginId": plugin, "strategyId": strategy, "purpose": "p"}, "options": {},
        })
    }

    fn attacks() -> Attacks {
        let tests = json!([test("a", "1", "basic"), test("a", "2", "basic"), test("b", "3", "basic")]);
        Attacks {
            document: json!({"targets": [{"id": "echo", "label": "mine"}], "tests": tests, "redteam": {}, "metadata": {}}),
            hash: "h".to_owned(),
            base: "/".into(),
            skipped: Vec::new(),
            rewrites: Vec::new(),
            programs: Vec::new(),
            retry: Some(Retry::default()),
        }
    }

    fn earlier(test: Value, id: &str) -> Attack {
        let provider = json!({"id": id, "label": "mine"});
        Attack { run: "eval-1".to_owned(), provider: provider.as_object().unwrap().clone(), test }
    }

    #[test]
    fn attacks_are_repeated_against_the_target_that_fell_for_them() {
        let list = || {
            vec![
                earlier(test("a", "old", "base64"), "echo"),
                earlier(test("a", "old", "base64"), "echo"),
                // Other targets, plugins that the suite does not have, and attacks that it has.
                earlier(test("a", "other", "basic"), "openai:m"),
                earlier(test("c", "other", "basic"), "echo"),
                earlier(test("a", "1", "basic"), "echo"),
                earlier(test("a", "older", "basic"), "echo"),
                earlier(test("a", "oldest", "basic"), "echo"),
            ]
        };
        let mut made = attacks();
        assert_eq!(add(&mut made, &Retry::default(), list()), 2);
        let tests = made.document["tests"].as_array().unwrap();
        let expected = json!({
            "vars": {"code": "old"}, "assert": [{"type": "promptfoo:redteam:a"}], "providers": ["mine"],
            "metadata": {"pluginId": "a", "strategyId": "base64", "originalEvalId": "eval-1", "retry": true},
        });
        assert_eq!(tests[3], expected);
        assert_eq!(tests[4]["vars"]["code"], "older");
        assert_ne!(made.hash, "h");
        let mut made = attacks();
        assert_eq!(add(&mut made, &Retry { most: Some(3), plugins: None }, list()), 3);
        let mut made = attacks();
        let only = Retry { most: None, plugins: Some(vec!["b".to_owned()]) };
        assert_eq!(add(&mut made, &only, list()), 0);
        assert_eq!(made.hash, "h");
    }
}
