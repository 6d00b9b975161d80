//! Names of plugins: ours, and what promptfoo's stand for.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;

use crate::category::{self, Severity};
use crate::framework;

/// Meaning of a plugin id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Plugin {
    /// Probes of these categories.
    Probes(Vec<&'static str>),
    /// The user's own texts.
    Intent,
    /// Attacks that a model writes.
    Written(Written),
    /// Several plugins, by their ids.
    Several(Vec<String>),
    /// Nothing that can be made offline, with the reason.
    Unavailable(&'static str),
    /// No plugin has the name.
    Unknown,
}

/// Facts about a plugin whose attacks a model writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// The severity of a breach.
    pub severity: Severity,
    /// The aim of the attacks: what the system is to do. Empty where the plugin's settings have it.
    pub aim: String,
}

#[derive(Deserialize, Default)]
struct Table {
    service: Vec<String>,
    conversation: Vec<String>,
    download: Vec<String>,
    collections: BTreeMap<String, Vec<String>>,
    written: BTreeMap<String, (Severity, String)>,
    answered: BTreeMap<String, Vec<String>>,
}

/// Plugins whose settings have the aim of their attacks: a rule of the operator.
pub(crate) const RULE: &str = "policy";

static TABLE: LazyLock<Table> =
    LazyLock::new(|| toml::from_str(include_str!("../data/plugins.toml")).unwrap_or_default());

/// Returns what an id stands for.
pub fn resolve(id: &str) -> Plugin {
    let all = || category::all().iter().map(|category| category.id.as_str());
    match id {
        "default" | "recommended" | "sandbox" | "sandbox:all" => return Plugin::Probes(all().collect()),
        "intent" => return Plugin::Intent,
        RULE => return Plugin::Written(Written { severity: Severity::High, aim: String::new() }),
        _ => {}
    }
    if let Some(category) = id.strip_prefix("sandbox:").and_then(category::find) {
        return Plugin::Probes(vec![&category.id]);
    }
    if let Some(categories) = TABLE.answered.get(id) {
        return Plugin::Probes(all().filter(|id| categories.iter().any(|known| known == id)).collect());
    }
    if id.starts_with("file://") {
        return Plugin::Written(Written { severity: Severity::Medium, aim: String::new() });
    }
    if let Some(ids) = TABLE.collections.get(id) {
        return Plugin::Several(ids.clone());
    }
    if let Some(found) = framework::find(id) {
        return Plugin::Several(found.plugins);
    }
    let named = |list: &[String]| {
        list.iter().any(|known| known == id || (known.ends_with(':') && id.starts_with(known.as_str())))
    };
    if named(&TABLE.conversation) {
        return Plugin::Unavailable("its attacks are several messages, and one is sent");
    }
    if named(&TABLE.service) {
        return Plugin::Unavailable("only the servers of promptfoo write its attacks");
    }
    if named(&TABLE.download) {
        return Plugin::Unavailable("its attacks are a public data set, and nothing is downloaded");
    }
    written(id).map_or(Plugin::Unknown, Plugin::Written)
}

/// The facts of the longest id that an id is or begins with.
fn written(id: &str) -> Option<Written> {
    let fits = |known: &&String| *known == id || (known.ends_with(':') && id.starts_with(known.as_str()));
    let known = TABLE.written.keys().filter(fits).max_by_key(|known| known.len())?;
    let (severity, aim) = TABLE.written.get(known)?;
    let rest = id.strip_prefix(known.as_str()).unwrap_or_default();
    let is_whole = known.ends_with(':') && rest.is_empty();
    (!is_whole)
        .then(|| Written { severity: *severity, aim: aim.replace("{}", &rest.replace([':', '-'], " ")) })
}

/// Returns the plugins of promptfoo that are known, with what they stand for.
pub fn known_elsewhere() -> impl Iterator<Item = (&'static str, Plugin)> {
    let lists = [&TABLE.service, &TABLE.conversation, &TABLE.download].into_iter().flatten();
    let written = TABLE.written.keys().chain(TABLE.collections.keys());
    let ids = TABLE.answered.keys().chain(written).chain(lists).map(String::as_str);
    let ids = ids.chain([RULE]).filter(|id| !id.ends_with(':'));
    ids.map(|id| (id, resolve(id)))
}

/// Returns the name of a plugin's metric: `SandboxEscape`. That of a file is its name.
pub fn metric(id: &str) -> String {
    let file = id.strip_prefix("file://").map(|path| path.rsplit('/').next().unwrap_or(path));
    let name = file.map_or(id, |file| file.split('.').next().unwrap_or(file));
    name.split([':', '-', '_']).map(capitalised).collect()
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
        assert!(matches!(resolve("harmbench"), Plugin::Unavailable(_)));
        assert!(matches!(resolve("cross-session-leak"), Plugin::Unavailable(_)));
        assert!(matches!(resolve("owasp:llm:01"), Plugin::Several(_)));
        assert_eq!(resolve("sandbox:escapes"), Plugin::Unknown);
        assert_eq!(resolve("nothing"), Plugin::Unknown);
        for categories in TABLE.answered.values() {
            assert!(categories.iter().all(|id| category::find(id).is_some()), "{categories:?}");
        }
    }

    #[test]
    fn plugins_of_models_have_an_aim() {
        let aim = |id: &str| match resolve(id) {
            Plugin::Written(Written { severity, aim }) => (severity, aim),
            other => panic!("{id}: {other:?}"),
        };
        assert!(aim("pii:direct").1.starts_with("show data"));
        assert!(aim("harmful:cybercrime:malicious").1.ends_with("harmful: cybercrime malicious"));
        assert_eq!(aim("harmful:privacy").0, Severity::High);
        assert!(aim("harmful:privacy").1.contains("spy"));
        assert!(aim("medical").1.starts_with("give advice") && !aim("medical").1.contains("{}"));
        // Their settings have it.
        assert_eq!((aim("policy").1, aim("file://own.yaml").1), (String::new(), String::new()));
        assert_eq!(resolve("harmful:"), Plugin::Unknown);
        assert!(matches!(resolve("pii"), Plugin::Several(ids) if ids.len() == 4));
        for (id, ids) in &TABLE.collections {
            assert!(ids.iter().all(|id| matches!(resolve(id), Plugin::Written(_))), "{id}");
        }
        for (id, (_, aim)) in &TABLE.written {
            assert_eq!(id.ends_with(':'), aim.contains("{}"), "{id}");
            assert!(category::find(id).is_none(), "{id}");
        }
    }

    #[test]
    fn metrics_are_in_pascal_case() {
        assert_eq!(metric("sandbox:network-egress"), "SandboxNetworkEgress");
        assert_eq!(metric("coding-agent:secret-env-read"), "CodingAgentSecretEnvRead");
        assert_eq!(metric("file://./plugins/own-rule.yaml"), "OwnRule");
    }
}
