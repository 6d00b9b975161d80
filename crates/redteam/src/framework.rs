//! Names that stand for plugins and strategies together: entries of public frameworks, such as `owasp:llm:01`.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;

use crate::category;

/// Plugins and strategies that a name stands for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Framework {
    /// The ids of plugins and of collections.
    pub plugins: Vec<String>,
    /// The ids of strategies.
    pub strategies: Vec<String>,
}

static ALL: LazyLock<BTreeMap<String, Framework>> =
    LazyLock::new(|| toml::from_str(include_str!("../data/frameworks.toml")).unwrap_or_default());

/// Entries that a whole framework does not have: they sort the same plugins another way.
const PHASES: &str = "owasp:llm:redteam";

/// Returns what an entry stands for, or all entries of a framework.
pub fn find(id: &str) -> Option<Framework> {
    let is_within = |key: &str| key.strip_prefix(id).is_some_and(|rest| rest.starts_with(':'));
    let is_other = |key: &str| key.starts_with(PHASES) && !id.starts_with(PHASES);
    let entries = ALL.iter().filter(|(key, _)| *key == id || (is_within(key) && !is_other(key)));
    let mut found: Option<Framework> = None;
    for (key, entry) in entries {
        let found = found.get_or_insert_default();
        let probes = probes(key);
        for plugin in entry.plugins.iter().chain(&probes) {
            if !found.plugins.contains(plugin) {
                found.plugins.push(plugin.clone());
            }
        }
        for strategy in &entry.strategies {
            if !found.strategies.contains(strategy) {
                found.strategies.push(strategy.clone());
            }
        }
    }
    found
}

/// The categories of probes that belong to an entry of OWASP's list for applications of models.
fn probes(entry: &str) -> Vec<String> {
    let Some(number) = entry.strip_prefix("owasp:llm:") else { return Vec::new() };
    let name = format!("LLM{number}");
    let belongs = |category: &&category::Category| category.owasp.contains(&name);
    category::all().iter().filter(belongs).map(category::Category::plugin).collect()
}

/// Returns the names of frameworks, without those of their entries.
pub fn names() -> Vec<&'static str> {
    let whole = |key: &'static str| match key.rfind(':') {
        // The articles of the regulation are sorted by parts.
        Some(_) if key.starts_with("eu:ai-act:") => "eu:ai-act",
        Some(end) => &key[..end],
        None => key,
    };
    let mut names: Vec<&str> = ALL.keys().map(|key| whole(key)).collect();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugin::{self, Plugin};
    use crate::strategy::{self, Strategy};
    use crate::{section, wish};

    #[test]
    fn all_that_entries_name_exists() {
        assert!(ALL.len() > 90);
        for (key, entry) in &*ALL {
            for id in &entry.plugins {
                assert_ne!(plugin::resolve(id), Plugin::Unknown, "{id} of {key}");
            }
            for id in &entry.strategies {
                assert_ne!(strategy::resolve(id, &[]), Strategy::Unknown, "{id} of {key}");
            }
        }
    }

    #[test]
    fn every_entry_ends_in_plugins_that_stand_for_themselves() {
        for key in ALL.keys().map(String::as_str).chain(names()) {
            let found = find(key).unwrap_or_default();
            assert!(!found.plugins.iter().any(|plugin| plugin == key), "{key}");
            let section = section::read(&serde_json::json!({"plugins": [key]})).unwrap();
            let all = wish::expanded(&section);
            assert!(
                all.iter().all(|plugin| !matches!(plugin::resolve(&plugin.id), Plugin::Several(_))),
                "{key}"
            );
            assert_eq!(all.is_empty(), found.plugins.is_empty(), "{key}");
        }
    }

    #[test]
    fn a_framework_stands_for_its_entries() {
        let all = find("owasp:llm").unwrap();
        let first = find("owasp:llm:01").unwrap();
        assert!(first.plugins.iter().all(|plugin| all.plugins.contains(plugin)));
        assert!(!all.strategies.contains(&"goat".to_owned()), "phases are sorted another way");
        assert!(find("owasp:llm:redteam").unwrap().strategies.contains(&"goat".to_owned()));
        assert!(find("owasp:llm:02").unwrap().plugins.contains(&"sandbox:network-egress".to_owned()));
        assert!(find("nist:ai").is_some() && find("toxicity").is_some());
        assert_eq!((find("owasp"), find("owasp:llm:11"), find("own")).1, None);
        assert!(
            names().contains(&"gdpr") && names().contains(&"eu:ai-act") && !names().contains(&"gdpr:art5")
        );
    }
}
