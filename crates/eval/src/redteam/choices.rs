//! Plugins and strategies to choose from.

use sandcove_redteam::plugin::{self, Plugin};
use sandcove_redteam::{category, mutate, probe, strategy};
use serde_json::{Value, json};

/// Returns the plugins: our own with what their probes attack, then those of promptfoo that the same probes answer.
pub fn plugins() -> Vec<Value> {
    let own = category::all().iter().map(|category| {
        let probes = probe::builtin().iter().filter(|probe| probe.category == category.id).count();
        json!({"id": category.plugin(), "about": category.about, "severity": category.severity.name(), "probes": probes})
    });
    let others = plugin::known_elsewhere().filter_map(|(id, found)| match found {
        Plugin::Probes(categories) => Some(json!({"id": id, "about": categories.join(", ")})),
        _ => None,
    });
    own.chain(others).collect()
}

/// Returns the strategies, with what they do to an attack.
pub fn strategies() -> Vec<Value> {
    let named = [
        ("basic", "the attack as it is"),
        ("code-injection", "programs written another way, such as by aliases of imports and split texts"),
        ("sandbox-bypass", "the same, for attacks that run in a sandbox"),
        ("malicious-patches", "programs in the form of a patch"),
        ("answer", "programs in other forms of an answer, such as two blocks or none"),
        ("jailbreak:composite", "several tricks at once, written by the model of `redteam.provider`"),
        ("other-encodings", "camelcase, morse, piglatin and emoji"),
        ("retry", "attacks that succeeded in earlier runs, beside those of this one"),
    ];
    let named = named.map(|(id, about)| json!({"id": id, "about": about}));
    let texts = strategy::TEXTS.iter().map(|id| json!({"id": id, "about": "a text in disguise"}));
    let codes = mutate::names()
        .into_iter()
        .map(|name| json!({"id": format!("code:{name}"), "about": "one way to write a program"}));
    named.into_iter().chain(texts).chain(codes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use sandcove_redteam::strategy::Strategy;

    #[test]
    fn everything_that_is_offered_exists() {
        for plugin in plugins() {
            let id = plugin["id"].as_str().unwrap();
            assert!(matches!(plugin::resolve(id), Plugin::Probes(_)), "{id}");
        }
        for strategy in strategies() {
            let id = strategy["id"].as_str().unwrap();
            assert_ne!(strategy::resolve(id, &[]), Strategy::Unknown, "{id}");
        }
    }
}
