//! Names of plugins: ours, and what promptfoo's stand for.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;

use crate::category;

/// Meaning of a plugin id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Plugin {
    /// Probes of these categories.
    Probes(Vec<&'static str>),
    /// The user's own texts.
    Intent,
    /// Nothing that can be made offline, with the reason.
    Unavailable(&'static str),
    /// No plugin has the name.
    Unknown,
}

#[derive(Deserialize, Default)]
struct Table {
    model: Vec<String>,
    service: Vec<String>,
    download: Vec<String>,
    answered: BTreeMap<String, Vec<String>>,
}

static TABLE: LazyLock<Table> =
    LazyLock::new(|| toml::from_str(include_str!("../data/plugins.toml")).unwrap_or_default());

/// Returns what an id stands for.
pub fn resolve(id: &str) -> Plugin {
    let all = || category::all().iter().map(|category| category.id.as_str());
    match id {
        "default" | "recommended" | "sandbox" | "sandbox:all" => return Plugin::Probes(all().collect()),
        "intent" => return Plugin::Intent,
        _ => {}
    }
    if let Some(category) = id.strip_prefix("sandbox:").and_then(category::find) {
        return Plugin::Probes(vec![&category.id]);
    }
    if let Some(categories) = TABLE.answered.get(id) {
        return Plugin::Probes(all().filter(|id| categories.iter().any(|known| known == id)).collect());
    }
    if id.starts_with("file://") {
        return Plugin::Unavailable(
            "a model writes the attacks of plugins that are files, and none is asked for attacks",
        );
    }
    let named = |list: &[String]| {
        list.iter().any(|known| known == id || (known.ends_with(':') && id.starts_with(known.as_str())))
    };
    if named(&TABLE.model) {
        return Plugin::Unavailable("its attacks are written by a model, and none is asked for attacks");
    }
    if named(&TABLE.service) {
        return Plugin::Unavailable("only the servers of promptfoo write its attacks");
    }
    if named(&TABLE.download) {
        return Plugin::Unavailable("its attacks are a public data set, and nothing is downloaded");
    }
    Plugin::Unknown
}

/// Returns the plugins of promptfoo that are known, with what they stand for.
pub fn known_elsewhere() -> impl Iterator<Item = (&'static str, Plugin)> {
    let lists = [&TABLE.model, &TABLE.service, &TABLE.download].into_iter().flatten();
    let ids = TABLE.answered.keys().chain(lists).map(String::as_str).filter(|id| !id.ends_with(':'));
    ids.map(|id| (id, resolve(id)))
}

/// Returns the name of a plugin's metric: `SandboxEscape`.
pub fn metric(id: &str) -> String {
    id.split([':', '-', '_']).map(capitalised).collect()
}

/// Returns a word with a capital letter.
pub(crate) fn capitalised(word: &str) -> String {
    let mut letters = word.chars();
    letters
        .next()
        .map(|first| first.to_uppercase().collect::<String>() + letters.as_str())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plugins_stand_for_categories_or_say_why_not() {
        assert_eq!(resolve("sandbox:escape"), Plugin::Probes(vec!["escape"]));
        assert!(matches!(resolve("default"), Plugin::Probes(all) if all.len() == 24));
        assert!(matches!(resolve("coding-agent:core"), Plugin::Probes(some) if some.len() == 6));
        assert!(matches!(resolve("pii:direct"), Plugin::Unavailable(_)));
        assert!(matches!(resolve("harmful:hate"), Plugin::Unavailable(_)));
        assert!(matches!(resolve("harmbench"), Plugin::Unavailable(_)));
        assert!(matches!(resolve("tool-discovery:multi-turn"), Plugin::Unavailable(_)));
        assert!(matches!(resolve("file://own.yaml"), Plugin::Unavailable(_)));
        assert_eq!(resolve("sandbox:escapes"), Plugin::Unknown);
        assert_eq!(resolve("nothing"), Plugin::Unknown);
        for categories in TABLE.answered.values() {
            assert!(categories.iter().all(|id| category::find(id).is_some()), "{categories:?}");
        }
    }

    #[test]
    fn metrics_are_in_pascal_case() {
        assert_eq!(metric("sandbox:network-egress"), "SandboxNetworkEgress");
        assert_eq!(metric("coding-agent:secret-env-read"), "CodingAgentSecretEnvRead");
    }
}
