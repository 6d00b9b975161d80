//! The strategies of a section, with what they need.

use serde_json::{Map, Value, json};

use super::{GenerateError, Generated, NO_MODEL, Retry, Skipped};
use crate::attacker;
use crate::framework;
use crate::section::{Named, Section};
use crate::strategy::{self, Strategy};

/// The strategies of a section. Those that need a model are skipped without one.
pub(super) fn strategies(
    section: &Section,
    has_model: bool,
    generated: &mut Generated,
) -> Result<Vec<(Named, Strategy)>, GenerateError> {
    let mut resolved = Vec::new();
    let all = with_those_of_frameworks(section);
    for named in &all {
        let steps: Vec<String> = steps(named).into_iter().map(|step| step.id).collect();
        match strategy::resolve(&named.id, &steps) {
            Strategy::Unknown => return Err(GenerateError::Strategy(named.id.clone())),
            Strategy::Unavailable(why) => {
                let what = format!("strategy {}", named.id);
                generated.skipped.push(Skipped { what, why: why.to_owned() });
            }
            strategy if !has_model && asks_model(&strategy) => {
                let what = format!("strategy {}", named.id);
                generated.skipped.push(Skipped { what, why: NO_MODEL.to_owned() });
            }
            Strategy::Attacked { by, .. } if by.provider == attacker::CUSTOM && own_way(named).is_none() => {
                return Err(GenerateError::Custom(named.id.clone()));
            }
            Strategy::Retry => {
                let plugins = named.config.get("plugins").and_then(Value::as_array);
                let plugins =
                    plugins.map(|list| list.iter().filter_map(Value::as_str).map(str::to_owned).collect());
                generated.retry = Some(Retry { most: number(named, "numTests").or(named.tests), plugins });
            }
            Strategy::Program => generated.programs.push(named.clone()),
            Strategy::Basic if named.config.get("enabled") == Some(&json!(false)) => {}
            strategy => resolved.push((named.clone(), strategy)),
        }
    }
    // The untouched attack is always there, unless it is switched off.
    let is_named = all.iter().any(|named| matches!(named.id.as_str(), "basic" | "default"));
    if !is_named {
        resolved.insert(0, (Named { id: "basic".to_owned(), ..Named::default() }, Strategy::Basic));
    }
    if !section.languages.is_empty() {
        let id = strategy::TRANSLATED;
        match (strategy::resolve(id, &[]), has_model) {
            (strategy @ Strategy::Rewritten(_), true) => {
                let config = Map::from_iter([("languages".to_owned(), json!(section.languages))]);
                resolved.push((Named { id: id.to_owned(), config, ..Named::default() }, strategy));
            }
            _ => {
                let why = "a model translates attacks, which are in English; name one in `redteam.provider`";
                let what = format!("language {}", section.languages.join(", "));
                generated.skipped.push(Skipped { what, why: why.to_owned() });
            }
        }
    }
    Ok(resolved)
}

/// The strategies of a section, and those of the frameworks among its plugins.
fn with_those_of_frameworks(section: &Section) -> Vec<Named> {
    let mut all = section.strategies.clone();
    let found = section.plugins.iter().filter_map(|plugin| framework::find(&plugin.id));
    for id in found.flat_map(|found| found.strategies) {
        if !all.iter().any(|named| named.id == id) {
            all.push(Named { id, ..Named::default() });
        }
    }
    all
}

/// Whether a model writes something of a strategy's attacks.
fn asks_model(strategy: &Strategy) -> bool {
    match strategy {
        Strategy::Rewritten(_) => true,
        Strategy::Attacked { by, .. } => by.asks_model(),
        _ => false,
    }
}

/// The steps of the strategy `layer`: ids, or maps with settings.
fn steps(named: &Named) -> Vec<Named> {
    let steps = named.config.get("steps").and_then(Value::as_array).into_iter().flatten();
    let read = steps.filter_map(|step| {
        let id = step.as_str().or_else(|| step.get("id")?.as_str())?;
        let config = step.get("config").and_then(Value::as_object).cloned().unwrap_or_default();
        Some(Named { id: id.to_owned(), config, ..Named::default() })
    });
    read.collect()
}

/// The step of the strategy `layer` that is an attacker.
pub(super) fn attacker_step(named: &Named) -> Option<Named> {
    steps(named).into_iter().find(|step| attacker::of_strategy(&step.id).is_some())
}

/// The way of a strategy to attack, where its settings have it.
fn own_way(named: &Named) -> Option<String> {
    let own = attacker_step(named).unwrap_or_else(|| named.clone());
    own.config.get(attacker::CUSTOM_WAY)?.as_str().filter(|way| !way.trim().is_empty()).map(str::to_owned)
}

/// A number of the settings.
pub(super) fn number(named: &Named, key: &str) -> Option<usize> {
    named.config.get(key).and_then(Value::as_u64).map(|n| n as usize)
}
